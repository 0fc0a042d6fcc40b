"""A run's journal as people read it: what was said, what was called, what came back, and what else happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, assert_never

from msgspec import Struct

from console.jinja import duration, money
from console.text import pretty
from owlclaw_ray.counting import counted
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.runs.prompt_view import shown_memories

_MODEL_ERRORS = frozenset({"model_failed", "context_window_exceeded"})
"""How a run ended whose model did not answer."""


class EntryPart(Struct, frozen=True):
    """A text of an entry."""

    label: str
    text: str
    code: bool = False
    open: bool = True
    """Whether it is shown at once."""


class Call(Struct, frozen=True):
    """A tool call that a model asked for."""

    name: str
    arguments: str


class EntryLink(Struct, frozen=True):
    """A way from an entry to what it speaks of."""

    path: str
    text: str
    scope: str
    """What one needs to go there."""
    elsewhere: bool = False
    """Whether it may be of another agent than the run is."""

    @property
    def name(self) -> str:
        """What it leads to, for who may not go there."""
        return self.path.rpartition("/")[2]


class View(Struct, frozen=True):
    """An entry as it is shown."""

    seq: int
    kind: str
    at: datetime
    shape: str
    """`said` by the model, `tool` result, `ask` for a person, `note` for all else."""
    title: str
    detail: str = ""
    tone: str = ""
    """`good`, `bad`, `warn` or nothing."""
    parts: tuple[EntryPart, ...] = ()
    calls: tuple[Call, ...] = ()
    facts: tuple[str, ...] = ()
    links: tuple[EntryLink, ...] = ()
    data: JsonObject = {}
    """What the journal has."""
    asked: bool = False
    """Whether a model was shown something for it."""


class EntryViews:
    """Makes views of a run's entries, in their order. It knows what came `before` the first: a reply tells of the attempts that failed
    for it.
    """

    def __init__(self, before: Sequence[JournalEntry] = ()) -> None:
        self._failed: list[JsonObject] = []
        for each in before:
            self._note(each)

    def of(self, entries: Sequence[JournalEntry]) -> list[View]:
        """Return the next entries as they are shown."""
        return [self._view(each) for each in entries]

    def _view(self, entry: JournalEntry) -> View:
        view = _view(entry, self._failed)
        self._note(entry)
        return view

    def _note(self, entry: JournalEntry) -> None:
        if entry.kind is EntryKind.MODEL_ATTEMPT_FAILED:
            self._failed.append(entry.data)
        elif entry.kind is EntryKind.MODEL_REPLIED:
            self._failed = []


def was_asked(entry: JournalEntry) -> bool:
    """Return whether the entry is what came of asking a model: its reply, an attempt that failed, or that the run ended with that."""
    if entry.kind is EntryKind.RUN_FINISHED:
        return (entry.data.get("error") or {}).get("type") in _MODEL_ERRORS
    return entry.kind in {EntryKind.MODEL_REPLIED, EntryKind.MODEL_ATTEMPT_FAILED}


def _view(entry: JournalEntry, failed: Sequence[JsonObject]) -> View:
    title, fields = _told(entry.kind, entry.data)
    if entry.kind is EntryKind.MODEL_REPLIED:
        fields = _with_retries(fields, entry.data, failed)
    return View(
        entry.seq,
        entry.kind.value,
        entry.at,
        fields.pop("shape", "note"),
        title,
        data=entry.data,
        asked=was_asked(entry),
        **fields,
    )


def _with_retries(fields: dict[str, Any], reply: JsonObject, failed: Sequence[JsonObject]) -> dict[str, Any]:
    """Return what is shown of a reply, with the attempts that failed for it, and the model that it falls back from."""
    if not failed:
        return fields
    first = str(failed[0].get("model", ""))
    instead = f", instead of {first}" if first != str(reply.get("model", "")) else ""
    said = f"after {counted(len(failed), 'failed attempt')}{instead}"
    told = "\n".join(
        f"{each.get('model', '')}, attempt {each.get('attempt', '?')}: {each.get('error', '')}" for each in failed
    )
    return {
        **fields,
        "detail": "; ".join(filter(None, (said, fields["detail"]))),
        "tone": "warn",
        "parts": (*fields["parts"], EntryPart("failed attempts", told, open=False)),
    }


def _told(kind: EntryKind, data: JsonObject) -> tuple[str, dict[str, Any]]:  # noqa: C901, PLR0911 - one case a kind
    match kind:
        case EntryKind.RUN_QUEUED:
            return "Queued", {"detail": f"by {data.get('trigger', '')}"}
        case EntryKind.TRIGGER_MERGED:
            return "Merged", {
                "detail": f"one more trigger, {data.get('merged', '?')} now; the payload is the newest one's"
            }
        case EntryKind.RUN_STARTED:
            return "Started", {}
        case EntryKind.RUN_RESUMED:
            recorded = counted(data.get("recorded_tool_calls", 0), "recorded tool call")
            return "Resumed", {"detail": f"by another activation; {recorded} will not be repeated", "tone": "warn"}
        case EntryKind.HEARTBEAT_WOKEN:
            events = ", ".join(str(each.get("source", "")) for each in data.get("events", ()))
            return "Woken", {"detail": f"something is pending: {events}"}
        case EntryKind.PROMPT_BUILT:
            return "Prompt", _prompt(data)
        case EntryKind.CONTEXT_COMPACTED:
            shortened, dropped = len(data.get("shortened", ())), data.get("dropped", 0)
            detail = f"{counted(shortened, 'result')} shortened, {counted(dropped, 'turn')} dropped"
            return "Context compacted", {"detail": detail, "tone": "warn"}
        case EntryKind.MODEL_ATTEMPT_FAILED:
            then = f"next: {data.get('next_model', '')} in {data.get('retry_in', 0)} s"
            parts = (EntryPart("error", str(data.get("error", ""))),)
            return f"{data.get('model', '')} failed", {
                "detail": f"attempt {data.get('attempt', '?')}; {then}",
                "tone": "bad",
                "parts": parts,
            }
        case EntryKind.MODEL_REPLIED:
            return str(data.get("model", "model")), _reply(data)
        case EntryKind.TOOL_STARTED:
            return "Running", {"detail": str(data.get("tool", ""))}
        case EntryKind.TOOL_FINISHED:
            return str(data.get("tool", "")), _result(data)
        case EntryKind.APPROVAL_REQUESTED:
            parts = (EntryPart("arguments", pretty(data.get("arguments", {})), code=True),)
            path = f"/console/approvals/{data.get('approval_id', '')}"
            return f"Approval asked for: {data.get('tool', '')}", {
                "shape": "ask",
                "detail": str(data.get("reason", "")),
                "tone": "warn",
                "parts": parts,
                "links": (EntryLink(path, "decide", "approvals:read"),),
            }
        case EntryKind.RUN_WAITING:
            return "Waiting", _waiting(data)
        case EntryKind.APPROVAL_DECIDED:
            return "Approval", _decided(data)
        case EntryKind.RUN_CONTINUED:
            return "Continued", {}
        case EntryKind.RUN_ACTIVE:
            return "Active", _active(data)
        case EntryKind.CANCEL_REQUESTED:
            by = data.get("by")
            detail = "asked for" if by is None else f"interrupted by {by}"
            return "Cancel", {"detail": detail, "tone": "warn"}
        case EntryKind.RUN_FINISHED:
            return "Finished", _finished(data)
        case unknown:
            assert_never(unknown)


def _prompt(data: JsonObject) -> dict[str, Any]:
    visible = [str(each) for each in data.get("visible", ())]
    facts = [
        str(data.get("model", "")),
        counted(len(visible), "tool"),
        counted(data.get("memories", 0), "memory", "memories"),
    ]
    if data.get("scripted"):
        facts.append("scripted, no real model")
    facts += usage_facts(data.get("usage") or {})
    user, skills = str(data.get("user", "")), [str(each) for each in data.get("skills", ())]
    withheld = data.get("withheld") or {}
    memories = "\n".join(f"{each.get('created_at', '')}  {each.get('content', '')}" for each in shown_memories(user))
    route = data.get("route") or {}
    texts = {
        "memories that it was reminded of": memories,
        "skills that it read": "\n".join(skills),
        "skills that were withheld": "\n".join(f"{name}: {why}" for name, why in withheld.items()),
        "tools": "\n".join(visible),
        "user message": user,
    }
    if route:
        facts.append(f"models for {route.get('task_type', '')}, by {route.get('by', '')}")
    parts = [EntryPart(label, text, open=False) for label, text in texts.items() if text]
    return {"facts": tuple(facts), "parts": tuple(parts)}


def _reply(data: JsonObject) -> dict[str, Any]:
    calls = tuple(
        Call(str(each.get("name", "")), pretty(each.get("arguments", ""))) for each in data.get("tool_calls", ())
    )
    facts = [duration(data.get("duration_ms", 0)), *usage_facts(data.get("usage") or {})]
    if data.get("waited_ms"):
        facts.append(f"waited {duration(data['waited_ms'])} for a slot")
    text, note = str(data.get("text") or ""), str(data.get("note") or "")
    return {
        "shape": "said",
        "facts": tuple(facts),
        "parts": (EntryPart("", text),) if text else (),
        "calls": calls,
        "detail": note,
        "tone": "warn" if note else "",
    }


def usage_facts(usage: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a usage says, without what is nothing."""
    prompt, completion = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    if prompt or completion:
        yield f"{prompt:,} → {completion:,} tokens"
    if prompt and usage.get("cached_tokens"):
        yield f"{100 * usage['cached_tokens'] / prompt:.0f} % cached"
    if usage.get("cost"):
        yield money(usage["cost"])


def _result(data: JsonObject) -> dict[str, Any]:
    parts = [EntryPart("arguments", pretty(data.get("arguments", "")), code=True, open=False)]
    if data.get("executed") is not None:
        parts.append(EntryPart("executed with", pretty(data["executed"]), code=True))
    error = data.get("error")
    if error is not None:
        parts.append(EntryPart(str(error.get("type", "error")), str(error.get("message", ""))))
        if error.get("details") is not None:
            parts.append(EntryPart("details", pretty(error["details"]), code=True, open=False))
    else:
        parts.append(EntryPart("result", pretty(data.get("content")), code=True))
    if data.get("hooks"):
        parts.append(EntryPart("hooks", pretty(data["hooks"]), code=True, open=False))
    attempts = (data.get("metadata") or {}).get("attempts", 1)
    retried = (f"{attempts} attempts",) if attempts != 1 else ()
    return {
        "shape": "tool",
        "facts": (*retried, duration(data.get("duration_ms", 0)), *usage_facts(data.get("usage") or {})),
        "parts": tuple(parts),
        "tone": "" if error is None else "bad",
        "detail": "" if error is None else "failed",
    }


def _waiting(data: JsonObject) -> dict[str, Any]:
    approvals, runs = [str(each) for each in data.get("approvals", ())], data.get("runs") or {}
    waited = [str(each) for each in (runs.values() if isinstance(runs, dict) else runs)]
    links = [EntryLink(f"/console/approvals/{each}", each, "approvals:read") for each in approvals]
    links += [EntryLink(f"/console/runs/{each}", each, "runs:read", elsewhere=True) for each in waited]
    what = [
        *([counted(len(approvals), "approval")] if approvals else ()),
        *([counted(len(waited), "run")] if waited else ()),
    ]
    return {"detail": f"for {' and '.join(what)}" if what else "", "tone": "warn", "links": tuple(links)}


def _decided(data: JsonObject) -> dict[str, Any]:
    decision = str(data.get("decision") or data.get("status") or "")
    by = f" by {data['by']}" if data.get("by") else ""
    parts = [EntryPart("reason", str(data["reason"]))] if data.get("reason") else []
    if data.get("arguments") is not None:
        parts.append(EntryPart("other arguments", pretty(data["arguments"]), code=True))
    good = data.get("status") == "allowed"
    return {
        "detail": f"{decision.replace('_', ' ')}{by}: {data.get('tool', '')}",
        "tone": "good" if good else "bad",
        "parts": tuple(parts),
    }


def _active(data: JsonObject) -> dict[str, Any]:
    running = [f"{each.get('tool', '')} for {each.get('seconds', 0):.0f} s" for each in data.get("running", ())]
    asking = [f"{data['asking']} has not answered yet"] if data.get("asking") else []
    return {"detail": "; ".join([f"for {data.get('seconds', 0):.0f} s in all", *asking, *running])}


def _finished(data: JsonObject) -> dict[str, Any]:
    status, error = str(data.get("status", "")), data.get("error")
    facts = [
        counted(data.get("turns", 0), "turn"),
        counted(data.get("tool_calls", 0), "tool call"),
        duration(data.get("duration_ms", 0)),
        *usage_facts(data.get("usage") or {}),
    ]
    parts = () if error is None else (EntryPart(str(error.get("type", "error")), str(error.get("message", ""))),)
    return {
        "detail": status,
        "tone": {"completed": "good", "skipped": "good"}.get(status, "bad"),
        "facts": tuple(facts),
        "parts": parts,
    }
