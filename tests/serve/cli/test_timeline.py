from __future__ import annotations

import io
from typing import Any, get_args

import pytest
from rich.console import Console

from owlclaw_ray import wire
from serve.cli.timeline import Timeline


def shown(kind: wire.EventKind, data: dict[str, Any], width: int = 200) -> str:
    out = io.StringIO()
    event: wire.Event = {"seq": 1, "kind": kind, "at": "2026-11-03T09:30:00.000Z", "data": data}
    Timeline(Console(file=out, width=width, highlight=False)).show(event)
    return out.getvalue()


def test_times_count_from_the_first_event():
    out = io.StringIO()
    timeline = Timeline(Console(file=out, width=100))
    timeline.show({"seq": 1, "kind": "run_started", "at": "2026-11-03T09:30:00.000Z", "data": {}})
    timeline.show({"seq": 2, "kind": "run_started", "at": "2026-11-03T09:30:01.250Z", "data": {}})

    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["0.00s", "1.25s"]


@pytest.mark.parametrize(
    "kind", [kind for kind in get_args(wire.EventKind) if kind not in {"run_finished", "tool_finished"}]
)
def test_events_with_data_that_this_version_does_not_know_are_shown(kind: wire.EventKind):
    assert shown(kind, {"colour": "red"}).count("\n") == 1


def test_a_run_that_waits_says_for_what():
    assert "for approvals: apr_1, apr_2" in shown("run_waiting", {"approvals": ["apr_1", "apr_2"]})
    assert "for the runs that it started: run_2" in shown("run_waiting", {"approvals": [], "runs": {"call_1": "run_2"}})
    both = shown("run_waiting", {"approvals": ["apr_1"], "runs": {"call_1": "run_2"}})
    assert "for approvals: apr_1; for the runs that it started: run_2" in both


def test_a_run_that_waits_for_people_shows_the_command_that_decides_in_full_on_any_screen():
    lines = shown("run_waiting", {"approvals": ["apr_1", "apr_2"]}, width=30).splitlines()

    assert [line.split(maxsplit=1) for line in lines[1:]] == [
        ["decide", "owlclaw approvals allow apr_1"],
        ["decide", "owlclaw approvals allow apr_2"],
    ]


def test_a_run_that_waited_for_people_once_does_not_ask_them_to_decide():
    out = io.StringIO()
    event: wire.Event = {
        "seq": 1,
        "kind": "run_waiting",
        "at": "2026-11-03T09:30:00.000Z",
        "data": {"approvals": ["apr_1"]},
    }
    Timeline(Console(file=out, width=200), over=True).show(event)

    assert "for approvals: apr_1" in out.getvalue()
    assert "owlclaw approvals" not in out.getvalue()


FAILED = {
    "model": "openai/smollm2",
    "attempt": 1,
    "error": "did not answer within 60 s",
    "next_model": "openai/smollm2",
}


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            {"retry_in": 0.25},
            "retry     attempt 1 of openai/smollm2: did not answer within 60 s; trying again",
        ),
        (
            {"retry_in": 8.2, "error": "rate limited"},
            "retry     attempt 1 of openai/smollm2: rate limited; trying again in 8 s",
        ),
        (
            {"attempt": 3, "next_model": "openai/big", "retry_in": 0.0},
            "fallback  attempt 3 of openai/smollm2: did not answer within 60 s; asking openai/big instead",
        ),
    ],
)
def test_an_attempt_that_failed_says_why_and_what_comes_next(data: dict[str, Any], line: str):
    assert shown("model_attempt_failed", FAILED | data).endswith(f"{line}\n")


def test_a_run_whose_model_is_slow_names_it():
    data = {"seconds": 30.0, "asking": "openai/smollm2"}

    assert "for 30 s in all; openai/smollm2 has not answered yet" in shown("run_active", data)
    assert shown("run_active", {"seconds": 30.0}).endswith("for 30 s in all\n")


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({}, "mcp.shop.sync for 12 s"),
        ({"progress": 3, "total": 4, "message": "page 3"}, "mcp.shop.sync for 12 s: 75% · page 3"),
        ({"progress": 3}, "mcp.shop.sync for 12 s: 3 so far"),
        ({"progress": 0, "total": 0, "message": "begun"}, "mcp.shop.sync for 12 s: 0 so far · begun"),
    ],
)
def test_a_call_that_takes_long_says_how_far_it_is(said: dict[str, Any], line: str):
    call = {"call_id": "call_1", "tool": "mcp.shop.sync", "seconds": 12.01} | said

    assert shown("run_active", {"seconds": 30.0, "running": [call]}).endswith(f"running   {line}\n")


def test_a_resumed_run_says_that_nothing_is_repeated():
    assert "3 recorded tool calls will not be repeated" in shown("run_resumed", {"recorded_tool_calls": 3})


def test_a_failed_run_says_why():
    error = {"type": "model_unavailable", "message": "rate limit", "retryable": True}
    line = shown("run_finished", {"status": "failed", "error": error, "turns": 1, "final_text": ""})

    assert "failed    1 turn · 0 tool calls · 0 tokens · 0.00 s · model_unavailable: rate limit" in line


def test_arguments_that_are_no_json_are_shown_as_they_are():
    call = {"id": "c", "name": "my_app__write_note", "arguments": '{"text": '}

    assert 'my_app.write_note({"text": )' in shown("model_replied", {"text": "", "tool_calls": [call]})


def test_what_is_odd_about_a_reply_is_told_after_it():
    text, note = shown("model_replied", {"text": "I cannot.", "note": "10 tools were offered"}).splitlines()

    assert text.endswith("I cannot.")
    assert note.split(maxsplit=2)[1:] == ["note", "10 tools were offered"]


def test_long_results_are_cut_to_the_width_of_the_screen():
    line = shown("tool_finished", {"tool": "t", "content": {"text": "很长" * 100}, "duration_ms": 1}, width=60)

    assert line.count("\n") == 1
    assert line.rstrip().endswith("…")


def test_what_a_terminal_would_obey_is_not_passed_on():
    text = "\x1b]0;owned\x07 [red]red[/red] \r\n next"

    assert "\x1b" not in shown("model_replied", {"text": text, "tool_calls": []})
    assert "[red]red[/red]" in shown("run_finished", {"status": "completed", "final_text": text})


def test_merged_triggers_and_interruptions_are_told():
    assert "one more trigger, 3 now" in shown("trigger_merged", {"trigger_id": "run_2", "merged": 3, "superseded": 1})
    assert "interrupted by run_2" in shown("cancel_requested", {"by": "run_2"})
    assert "asked for" in shown("cancel_requested", {})
