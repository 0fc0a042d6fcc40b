"""A ledger record in short, on one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from owlclaw_ray import wire
from owlclaw_ray.counting import counted

_WIDTH = 160


def line(record: wire.LedgerRecord) -> str:
    """Return the record in short; data of another shape than is known here, as JSON."""
    try:
        text = _text(record["kind"], record["data"])
    except (AttributeError, KeyError, TypeError, ValueError):
        text = _json(record["data"])
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _text(kind: wire.LedgerKind, data: Mapping[str, Any]) -> str:
    by = f" by {data['by']}" if data.get("by") else ""
    error = data.get("error")
    match kind:
        case "trigger":
            return f"{data['what']} " + " ".join(f"{name}={value}" for name, value in data.items() if name != "what")
        case "run":
            counts = f"{counted(data['turns'], 'turn')} · {counted(data['tool_calls'], 'tool call')}"
            error = data["error"]
            failed = f" · {error['type']}: {error['message']}" if error else ""
            return f"{data['status']} · {counts} · {data['duration_ms']} ms{failed}"
        case "model_call":
            usage = data["usage"]
            tokens = counted(usage["prompt_tokens"] + usage["completion_tokens"], "token")
            cost = f" · ${usage['cost']:.4f}" if usage["cost"] else ""
            return f"{data['model']} · {tokens}{cost} · {data['duration_ms']} ms"
        case "tool_call":
            returned = f"{error['type']}: {error['message']}" if error else _json(data.get("content"))
            return f"{data['tool']} {data['arguments']} → {returned} · {data['duration_ms']} ms"
        case "approval":
            if data["what"] == "requested":
                done = f"asks: {data['reason']}"
            elif data["what"] == "granted":
                done = "runs by an approval for the session"
            else:
                done = f"{data['status']}{by}" + (f" ({data['reason']})" if data.get("reason") else "")
            return f"{data['tool']} {done} · {data['approval_id']}"
        case "memory":
            content = f": {data['content']}" if "content" in data else ""
            done = "perhaps not done" if data.get("uncertain") else "not done"
            failed = f" · {done}: {error}" if "error" in data else ""
            return f"{data['what']}{by} {', '.join(data['memory_ids'])}".rstrip() + content + failed
        case "decision":
            return f"{data['decision_type']}: {data['reasoning']}"
        case "visibility":
            hidden = [f"{', '.join(each['tools'])} ({each['reason']})" for each in data["hidden"]]
            hidden += [f"skills {', '.join(each['skills'])} ({each['reason']})" for each in data.get("skills", ())]
            return f"{counted(data['visible'], 'tool')} visible" + (f" · hidden: {'; '.join(hidden)}" if hidden else "")
        case "access":
            more = [f"{name}={value}" for name, value in data.items() if name not in {"what", "by"}]
            return " ".join([f"{data['what']}{by}", *more])
        case "warning":
            return f"{data['what']}: {data['why']}"
