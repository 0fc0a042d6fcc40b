from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as replace_run

from benchmarks.chaos.evidence import Blow
from benchmarks.chaos.report import judge, summary
from benchmarks.chaos.resumption import not_over, resumptions, standstills, waits_for_slots
from benchmarks.chaos.runtime_logs import complaints
from benchmarks.chaos.session import FACTS
from benchmarks.chaos.strikes import Role
from owlclaw_ray.domain.journal import EntryKind


def resumed(evidence, run_id):
    """The last entry before the run's resumption, and the entry of the resumption."""
    journal = evidence.journals[run_id]
    index = next(index for index, entry in enumerate(journal) if entry.kind is EntryKind.RUN_RESUMED)
    return journal[index - 1], journal[index]


def with_blows(evidence, *blows):
    return replace(
        evidence, blows=[Blow(number, role, "killed", at, load=1.0) for number, (role, at) in enumerate(blows)]
    )


def test_the_time_to_resume_counts_from_the_first_blow_since_the_run_was_last_alive(played):
    evidence = played.evidence()
    alive, entry = resumed(evidence, played.second)
    before, first, second = (
        (Role.ROOT, alive.at - timedelta(milliseconds=1)),
        (Role.AGENT, entry.at - timedelta(milliseconds=3)),
        (Role.HUNG_AGENT, entry.at - timedelta(milliseconds=1)),
    )

    [found] = resumptions(with_blows(evidence, second, first, before))

    assert (found.run_id, found.role, found.after) == (played.second, Role.AGENT, alive.kind)
    assert found.seconds == pytest.approx(0.003)


def test_the_time_to_resume_counts_from_the_last_blow_that_ended_every_host(played):
    evidence = played.evidence()
    _, entry = resumed(evidence, played.second)
    single, first, last = (
        (Role.AGENT, entry.at - timedelta(milliseconds=4)),
        (Role.ROOT, entry.at - timedelta(milliseconds=3)),
        (Role.TREE, entry.at - timedelta(milliseconds=2)),
    )

    [found] = resumptions(with_blows(evidence, first, single, last))

    assert found.role is Role.TREE
    assert found.seconds == pytest.approx(0.002)


def test_a_host_that_wrote_once_more_after_the_blow_died_of_it(played):
    evidence = played.evidence()
    alive, entry = resumed(evidence, played.second)
    blow = alive.at - timedelta(milliseconds=10)

    [found] = resumptions(with_blows(evidence, (Role.TREE, blow), (Role.KEEPER, entry.at)))

    assert found.role is Role.TREE
    assert found.seconds == pytest.approx((entry.at - blow).total_seconds())


def test_a_blow_that_ends_no_host_explains_no_resumption(played):
    evidence = played.evidence()
    alive, entry = resumed(evidence, played.second)

    [found] = resumptions(with_blows(evidence, (Role.KEEPER, entry.at)))

    assert found.role is None
    assert found.seconds == pytest.approx((entry.at - alive.at).total_seconds())


def test_what_the_first_call_of_a_resumed_run_waited_for_a_slot_is_told(played):
    evidence = played.evidence()
    journal = list(evidence.journals[played.second])
    place = next(at for at, entry in enumerate(journal) if entry.kind is EntryKind.RUN_RESUMED)
    replies = [at for at, entry in enumerate(journal) if entry.kind is EntryKind.MODEL_REPLIED and at > place]
    for seconds, at in enumerate(replies, 7):
        journal[at] = replace_run(journal[at], data={**journal[at].data, "waited_ms": 1_000 * seconds})
    active = replace_run(journal[place], kind=EntryKind.RUN_ACTIVE, data={"waited_ms": 30_000})
    journal[replies[0] : replies[0]] = [active, journal[place], active]
    unbroken = {played.first: evidence.journals[played.first]}

    assert list(waits_for_slots(evidence)) == [0.0]
    assert list(waits_for_slots(replace(evidence, journals={**unbroken, played.second: journal}))) == [37.0]


def test_a_queued_run_stands_still_from_the_end_of_the_run_before_it(played):
    evidence = played.evidence()
    first, second = (evidence.runs[run_id] for run_id in (played.first, played.second))
    second = replace_run(second, started_at=first.finished_at + timedelta(seconds=3))
    evidence = replace(evidence, runs={each.run_id: each for each in (first, second)})
    blow = (Role.GCS, first.finished_at + timedelta(seconds=1))

    quiet, still = standstills(with_blows(evidence, blow))

    assert (quiet.run_id, quiet.role) == (first.run_id, None)
    assert (quiet.seconds, still.seconds) == (quiet.behind, 3.0)
    assert (still.run_id, still.role, still.behind) == (second.run_id, Role.GCS, 2.0)


def test_a_run_that_is_queued_half_a_minute_after_a_blow_stands_still_for_its_sake(played):
    evidence = played.evidence()
    first = evidence.runs[played.first]
    evidence = replace(evidence, runs={first.run_id: first})

    for before, role in ((29, Role.MACHINE), (31, None)):
        blow = (Role.MACHINE, first.created_at - timedelta(seconds=before))
        [found] = standstills(with_blows(evidence, blow))
        assert found.role is role
        assert found.behind == found.seconds


def test_runs_that_are_not_over_are_counted_as_a_strike_begins_and_apart_if_they_have_started(played):
    evidence = played.evidence()
    first, second = (evidence.runs[run_id] for run_id in (played.first, played.second))
    evidence = replace(evidence, runs={each.run_id: each for each in (first, second)})
    at = first.finished_at - timedelta(microseconds=1)
    blows = [Blow(0, Role.HANDOVER, "ending", at, 1.0), Blow(0, Role.HANDOVER, "ended", at + timedelta(hours=1), 1.0)]

    assert second.created_at < at < second.started_at
    assert list(not_over(replace(evidence, blows=blows))) == [(2, 1)]
    assert list(not_over(with_blows(evidence, (Role.CLUSTER, second.started_at)))) == [(1, 1)]
    assert list(not_over(with_blows(evidence, (Role.CLUSTER, first.created_at - timedelta(seconds=1))))) == [(0, 0)]


@pytest.fixture
def facts(session):
    told = {
        "plan": {"seed": 7},
        "seconds_submitting": 1.0,
        "seconds_until_quiet": 2.0,
        "quiet": True,
        "stop_problem": "",
        "client_retries": {},
    }
    (session.folder / FACTS).write_text(json.dumps(told))
    return told


def test_a_report_of_a_session_without_a_fault_counts_what_happened(session, facts):
    report = judge(session.folder, session.evidence())

    assert report.kept
    assert report.content["runs"] == {"completed": 3, "cancelled": 2}
    assert report.content["accepted"] == 4
    assert report.content["resumed"] == 1
    assert report.content["not_over"]["count"] == report.content["under_way"]["count"] == 1
    assert report.content["resume_seconds"]["all"]["count"] == 1
    assert "violations: none" in summary(report)


def test_a_report_of_a_violation_has_the_journal_of_its_run(session, facts):
    session.write_effects([line for line in session.effects() if line["tool"] != "chaos.look"])

    report = judge(session.folder, session.evidence())

    assert not report.kept
    assert report.content["violations"][0]["run_ids"] == [session.first]
    assert "run_finished" in summary(report)


@pytest.mark.parametrize(("fact", "value"), [("quiet", False), ("stop_problem", "it hung")])
def test_a_session_that_did_not_end_in_order_is_no_success(session, facts, fact, value):
    (session.folder / FACTS).write_text(json.dumps({**facts, fact: value}))

    assert not judge(session.folder, session.evidence()).kept


def test_tracebacks_are_counted_by_their_last_line_once_a_session(tmp_path):
    ray = tmp_path / "ray"
    logs = ray / "session_1" / "logs"
    logs.mkdir(parents=True)
    (ray / "session_latest").symlink_to(ray / "session_1")
    lines = [
        "fine",
        *2 * ["Traceback (most recent call last):", "  File", "ValueError: run_12ab is bad", "KeyError: no"],
    ]
    (logs / "worker-1.err").write_text("\n".join(lines))

    assert complaints(tmp_path) == {"ValueError: … is bad": 2}
