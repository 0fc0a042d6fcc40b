"""What a ledger record says, on one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from owlclaw_ray import wire
from owlclaw_ray.counting import counted

_WIDTH = 160


def line(record: wire.LedgerRecord) -> str:
    """Return the record in short; what it does not know as such, as JSON."""
    try:
        said = _SAID[record["kind"]](record["data"])
    except (KeyError, TypeError, ValueError):
        said = _json(record["data"])
    return said if len(said) <= _WIDTH else f"{said[: _WIDTH - 1]}…"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _trigger(data: Mapping[str, Any]) -> str:
    others = " ".join(f"{name}={value}" for name, value in data.items() if name != "what")
    return f"{data['what']} {others}"


def _run(data: Mapping[str, Any]) -> str:
    counts = f"{data['status']} · {counted(data['turns'], 'turn')} · {counted(data['tool_calls'], 'tool call')} · {data['duration_ms']} ms"
    error = data["error"]
    return f"{counts} · {error['type']}: {error['message']}" if error else counts


def _model_call(data: Mapping[str, Any]) -> str:
    if "usage" not in data:
        return _json(data)
    usage = data["usage"]
    tokens = usage["prompt_tokens"] + usage["completion_tokens"]
    cost = f" · ${usage['cost']:.4f}" if usage["cost"] else ""
    return f"{data['model']} · {counted(tokens, 'token')}{cost} · {data['duration_ms']} ms"


def _tool_call(data: Mapping[str, Any]) -> str:
    error = data.get("error")
    gave = f"{error['type']}: {error['message']}" if error else _json(data.get("content"))
    return f"{data['tool']} {data['arguments']} → {gave} · {data['duration_ms']} ms"


def _decision(data: Mapping[str, Any]) -> str:
    return f"{data['decision_type']}: {data['reasoning']}"


def _visibility(data: Mapping[str, Any]) -> str:
    hidden = [f"{', '.join(each['tools'])} ({each['reason']})" for each in data["hidden"]]
    hidden += [f"skills {', '.join(each['skills'])} ({each['reason']})" for each in data.get("skills", ())]
    return f"{counted(data['visible'], 'tool')} visible" + (f" · hidden: {'; '.join(hidden)}" if hidden else "")


def _approval(data: Mapping[str, Any]) -> str:
    if data["what"] == "requested":
        return f"{data['tool']} asks: {data['reason']} · {data['approval_id']}"
    if data["what"] == "granted":
        return f"{data['tool']} runs by an approval for the session · {data['approval_id']}"
    by = f" by {data['by']}" if data.get("by") else ""
    reason = f" ({data['reason']})" if data.get("reason") else ""
    return f"{data['tool']} {data['status']}{by}{reason} · {data['approval_id']}"


def _memory(data: Mapping[str, Any]) -> str:
    by = f" by {data['by']}" if data["by"] else ""
    said = f": {data['content']}" if "content" in data else ""
    made = "perhaps not done" if data.get("uncertain") else "not done"
    failed = f" · {made}: {data['error']}" if "error" in data else ""
    return f"{data['what']}{by} {', '.join(data['memory_ids'])}".rstrip() + said + failed


def _warning(data: Mapping[str, Any]) -> str:
    return f"{data['what']}: {data['why']}"


_SAID: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "trigger": _trigger,
    "run": _run,
    "model_call": _model_call,
    "tool_call": _tool_call,
    "approval": _approval,
    "memory": _memory,
    "decision": _decision,
    "visibility": _visibility,
    "warning": _warning,
}
