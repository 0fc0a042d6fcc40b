"""A run as lines that people read, one or more for each event."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import assert_never

import orjson
from rich.console import Console
from rich.text import Text

from owlclaw_ray import wire
from owlclaw_ray.counting import counted
from owlclaw_ray.domain.json import JsonObject, JsonValue
from serve.cli.output import plain, shortened

SCRIPTED = "scripted model, no real LLM"
_GOOD = {"completed", "skipped"}
_VALUE_WIDTH = 40


class Timeline:
    """Prints the events of one run, in order, with seconds since the first; `over`: one that waits for nobody any more."""

    def __init__(self, console: Console, *, over: bool = False) -> None:
        self._console, self._over = console, over
        self._origin: datetime | None = None

    def show(self, event: wire.Event) -> None:
        """Print what happened."""
        at = datetime.fromisoformat(event["at"])
        self._origin = self._origin or at
        seconds = (at - self._origin).total_seconds()
        for label, body, style in _lines(event):
            line = Text.assemble((f"{seconds:8.2f}s  ", "dim"), (f"{label:<10}", style or "bold"), (plain(body), style))
            line.truncate(self._console.width, overflow="ellipsis")
            self._console.print(line, soft_wrap=True)
        if event["kind"] == "run_waiting" and not self._over:
            for approval_id in event["data"].get("approvals", ()):
                decide = f"owlclaw approvals allow {approval_id}"
                self._console.print(Text.assemble(" " * 11, ("decide    ", "yellow"), (decide, "bold")), soft_wrap=True)
        if event["kind"] == "run_finished" and event["data"].get("final_text"):
            self._console.print(Text(f"\n{plain(event['data']['final_text'], keep_lines=True)}"), soft_wrap=True)


def heading(run_id: str, agent: str, *, scripted: bool) -> Text:
    """Return the line above a timeline."""
    note = f" · {SCRIPTED}" if scripted else ""
    return Text.assemble((run_id, "bold"), f" of {plain(agent)}", (note, "yellow"))


def _lines(event: wire.Event) -> Iterator[tuple[str, str, str]]:  # noqa: C901, PLR0912 - one case a kind
    """Yield label, text and style of each line."""
    data = event["data"]
    match event["kind"]:
        case "run_queued":
            focus = f" · focus: {data['focus']}" if data.get("focus") else ""
            yield "queued", f"{data.get('trigger', '')}{focus}", ""
        case "trigger_merged":
            yield "merged", f"one more trigger, {data.get('merged', '?')} now; the payload is the newest one's", ""
        case "run_started":
            yield "started", "", ""
        case "run_resumed":
            recorded = data.get("recorded_tool_calls", 0)
            yield (
                "resumed",
                f"taken over by a new activation; {counted(recorded, 'recorded tool call')} will not be repeated",
                "yellow",
            )
        case "heartbeat_woken":
            yield "woken", f"something is pending: {', '.join(each['source'] for each in data.get('events', ()))}", ""
        case "prompt_built":
            yield "prompt", _prompt(data), "yellow" if data.get("scripted") else ""
        case "context_compacted":
            yield "context", _compacted(data), ""
        case "model_attempt_failed":
            yield _failed_attempt(data)
        case "model_replied":
            yield from _reply(data)
        case "tool_started":
            yield "running", str(data.get("tool", "")), ""
        case "tool_finished":
            yield _result(data)
        case "approval_requested":
            arguments = _arguments(orjson.dumps(data.get("arguments", {})).decode())
            yield "asking", f"{data.get('tool', '')}({arguments}): {data.get('reason', '')}", "yellow"
        case "run_waiting":
            yield "waiting", _awaited(data), "yellow"
        case "approval_decided":
            yield _decision(data)
        case "run_continued":
            yield "continued", "", ""
        case "run_active":
            asking = f"; {data['asking']} has not answered yet" if data.get("asking") else ""
            if not data.get("running"):
                yield "active", f"for {data.get('seconds', 0):.0f} s in all{asking}", ""
            for call in data.get("running", ()):
                yield "running", _running(call), ""
        case "cancel_requested":
            yield "cancel", f"interrupted by {data['by']}" if "by" in data else "asked for", "yellow"
        case "run_finished":
            yield _end(data)
        case unknown:
            assert_never(unknown)


def _awaited(data: JsonObject) -> str:
    runs, approvals = data.get("runs", {}), data.get("approvals", ())
    of_runs = [f"for the runs that it started: {', '.join(runs.values())}"] if runs else []
    of_people = [f"for approvals: {', '.join(approvals)}"] if approvals or not runs else []
    return "; ".join((*of_people, *of_runs))


def _prompt(data: JsonObject) -> str:
    parts = [str(data.get("model", ""))]
    if data.get("scripted"):
        parts.append(SCRIPTED)
    parts.append(f"{counted(len(data.get('visible', ())), 'tool')} offered")
    if data.get("memories"):
        parts.append(f"memories: {data['memories']}")
    return " · ".join(parts)


def _compacted(data: JsonObject) -> str:
    if "window" in data:
        return f"the model takes less than was known: prompts get shorter than {data['window']} tokens"
    parts = [
        f"{counted(number, what)} {done}"
        for number, what, done in (
            (len(data.get("shortened", ())), "result", "shortened"),
            (data.get("dropped", 0), "turn", "not shown any more"),
        )
        if number
    ]
    return f"{', '.join(parts)}, to fit the model's context window"


def _failed_attempt(data: JsonObject) -> tuple[str, str, str]:
    model, following, seconds = data.get("model", ""), data.get("next_model", ""), data.get("retry_in", 0)
    failed = f"attempt {data.get('attempt', 1)} of {model}: {data.get('error', '')}"
    if following != model:
        return "fallback", f"{failed}; asking {following} instead", "yellow"
    seconds = f" in {seconds:.0f} s" if seconds >= 1 else ""
    return "retry", f"{failed}; trying again{seconds}", "yellow"


def _running(call: JsonObject) -> str:
    done, total = call.get("progress"), call.get("total")
    share = "" if done is None else f"{done / total:.0%}" if total else f"{done:g} so far"
    said = " · ".join(filter(None, (share, call.get("message", ""))))
    return f"{call['tool']} for {call['seconds']:.0f} s{said and f': {said}'}"


def _reply(data: JsonObject) -> Iterator[tuple[str, str, str]]:
    calls = data.get("tool_calls") or ()
    if data.get("text") or not calls:
        yield "model", data.get("text") or "(no text)", ""
    if data.get("note"):
        yield "note", data["note"], "yellow"
    for call in calls:
        yield "call", f"{call['name'].replace('__', '.')}({_arguments(call['arguments'])})", "cyan"


def _arguments(text: str) -> str:
    try:
        parsed = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return text
    if not isinstance(parsed, dict):
        return text
    return ", ".join(
        f"{name}={shortened(orjson.dumps(value).decode(), _VALUE_WIDTH)}" for name, value in parsed.items()
    )


def _result(data: JsonObject) -> tuple[str, str, str]:
    took = f"{data.get('duration_ms', 0)} ms"
    error = data.get("error")
    if error:
        return "error", f"{data['tool']} ({took}): {error['type']}: {error['message']}", "red"
    return "result", f"{data['tool']} ({took}): {_content(data.get('content'))}", "green"


def _decision(data: JsonObject) -> tuple[str, str, str]:
    by = f" by {data['by']}" if data.get("by") else ""
    reason = f": {data['reason']}" if data.get("reason") else ""
    changed = ", with other arguments" if "arguments" in data else ""
    status = data.get("status", "decided")
    return status, f"{data.get('tool', '')}{by}{changed}{reason}", "green" if status == "allowed" else "red"


def _end(data: JsonObject) -> tuple[str, str, str]:
    usage, error = data.get("usage") or {}, data.get("error")
    tokens = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
    parts = [
        counted(data.get("turns", 0), "turn"),
        counted(data.get("tool_calls", 0), "tool call"),
        counted(tokens, "token"),
        f"{data.get('duration_ms', 0) / 1000:.2f} s",
    ]
    if usage.get("cost"):
        parts.append(f"${usage['cost']:.4f}")
    if error:
        parts.append(f"{error['type']}: {error['message']}")
    return data["status"], " · ".join(parts), "bold green" if data["status"] in _GOOD else "bold red"


def _content(value: JsonValue) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
