from __future__ import annotations

import json

import pytest

from tests.serve.cli.conftest import Run


@pytest.fixture
def schedule_id(owlclaw: Run) -> str:
    made = owlclaw(
        "schedules", "create", "assistant", "看一下", "--cron", "0 9 * * *", "--zone", "Asia/Shanghai", "--json"
    )
    return json.loads(made.output)["schedule_id"]


def test_schedules_are_listed_and_shown(owlclaw: Run, schedule_id: str):
    listed = owlclaw("schedules", "list", "assistant").output

    assert schedule_id in listed
    assert "0 9 * * * Asia/Shanghai" in listed
    assert "focus      看一下" in owlclaw("schedules", "show", schedule_id).output
    assert "patient has no schedules\n" in owlclaw("schedules", "list", "patient").output
    assert "there are no schedules that are done\n" in owlclaw("schedules", "list", "--status", "done").output
    assert [each["schedule_id"] for each in json.loads(owlclaw("schedules", "list", "--json").output)] == [schedule_id]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--in", "60"), "once"),
        (("--at", "2100-01-01T00:00:00Z"), "once"),
        (("--every", "90", "--jitter", "5", "--overlap", "skip", "--catch-up", "30"), "every 90 s"),
        (("--cron", "@daily"), "@daily UTC"),
    ],
)
def test_a_schedule_is_made_for_each_way_of_saying_when(owlclaw: Run, options: tuple[str, ...], told: str):
    made = owlclaw("schedules", "create", "assistant", "look", *options)

    assert made.exit_code == 0
    assert f"active · {told}" in made.output


def test_what_a_schedule_says_of_itself_is_shown(owlclaw: Run):
    options = ("--every", "90", "--jitter", "5", "--overlap", "skip", "--catch-up", "30", "--task-type", "summary")

    lines = owlclaw("schedules", "create", "assistant", "look", *options).output.splitlines()

    assert {
        "  jitter     up to 5 s",
        "  overlap    skip",
        "  catch up   up to 30 s late",
        "  task type  summary",
    } <= set(lines)


def test_a_schedule_is_paused_resumed_and_cancelled(owlclaw: Run, schedule_id: str):
    for verb, status in (("pause", "paused"), ("resume", "active"), ("cancel", "cancelled")):
        assert f"{schedule_id} · {status}" in owlclaw("schedules", verb, schedule_id).output

    refused = owlclaw("schedules", "pause", schedule_id)

    assert (refused.exit_code, refused.output) == (1, f"schedule {schedule_id!r} is cancelled\n")


def test_past_times_are_backfilled_and_told(owlclaw: Run, schedule_id: str):
    times = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-03T00:00:00Z")

    assert f"no time of {schedule_id} has come yet" in owlclaw("schedules", "ticks", schedule_id).output
    assert (
        "2 runs queued, 0 times had one already, 0 refused"
        in owlclaw("schedules", "backfill", schedule_id, *times).output
    )
    assert json.loads(owlclaw("schedules", "backfill", schedule_id, *times, "--json").output)["known"] == 2
    assert owlclaw("schedules", "ticks", schedule_id).output.count("backfill") == 2
    assert len(json.loads(owlclaw("schedules", "ticks", schedule_id, "-n", "1", "--json").output)) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("list", "--status", "gone"), "none of active, paused"),
        (("create", "assistant", "x", "--at", "tomorrow"), "no time with a zone"),
        (("create", "assistant", "x", "--at", "2100-01-01T00:00:00"), "no time with a zone"),
        (("create", "assistant", "x", "--every", "60", "--overlap", "never"), "none of buffer_one"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(owlclaw: Run, arguments: tuple[str, ...], words: str):
    refused = owlclaw("schedules", *arguments)

    assert refused.exit_code == 2
    assert words in " ".join(refused.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "schedule: none is given; must have exactly one of --at, --in, --every, --cron"),
        (
            ("--every", "90", "--in", "60"),
            "schedule: got --in and --every; must have exactly one of --at, --in, --every, --cron",
        ),
        (("--every", "5"), "--every: got 5; must be 60 to 31622400"),
        (("--every", "90", "--zone", "Asia/Tokyo"), "--zone: is only for --cron; --every needs none"),
        (("--cron", "@weakly"), "--cron: got '@weakly'; known names are @"),
        (("--cron", "0 9 * * *", "--zone", "timezone"), "--zone: got 'timezone'; must be an IANA time zone name"),
        (("--in", "-1"), "--in: got -1; must be over 0"),
        (("--at", "2000-01-01T00:00:00Z"), "--at: 2000-01-01T00:00:00+00:00 is over"),
        (("--every", "90", "--jitter", "99999"), "--jitter: got 99999; must be 0 to"),
        (("--every", "90", "--catch-up", "-3"), "--catch-up: got -3; must be 0 to"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_with_the_servers_words_about_the_options_that_were_typed(
    owlclaw: Run, options: tuple[str, ...], message: str
):
    refused = owlclaw("schedules", "create", "assistant", "x", *options)

    assert refused.exit_code == 1
    assert refused.output.startswith(message)
