"""The data of journal entries and ledger records: made here, read here, so that writing and resuming cannot drift apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import asdict

from owlclaw_ray.domain.embedding import EmbeddedCall, EmbeddingPurpose, used_by
from owlclaw_ray.domain.governance import Hidden
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.memory import Recall
from owlclaw_ray.domain.model import FailedAttempt, ModelReply, ModelRoute, NextAttempt
from owlclaw_ray.domain.run import RunResult, Usage
from owlclaw_ray.domain.skill import Skill, Withheld
from owlclaw_ray.domain.tool import ToolCall, ToolError, ToolResult
from owlclaw_ray.domain.tool_call import ToolOutcome
from owlclaw_ray.ids import ToolCallId

_NO_SKILLS: Mapping[str, Withheld] = {}


def usage_data(usage: Usage) -> JsonObject:
    """Return the JSON form of token and cost counts."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
        "cost": usage.cost,
    }


def slot_wait(waited: float) -> JsonObject:
    """Return what an entry or a record says of so many seconds of waiting for a slot: nothing if there was no wait."""
    return {"waited_ms": round(waited * 1_000)} if waited else {}


def model_replied(reply: ModelReply, waited: float = 0.0, note: str = "") -> JsonObject:
    """Return the data of a model_replied entry."""
    return {
        "text": reply.text,
        "tool_calls": [
            {"id": call.call_id, "name": call.name, "arguments": call.arguments} for call in reply.tool_calls
        ],
        "model": reply.model,
        "scripted": reply.scripted,
        "usage": usage_data(reply.usage),
        "duration_ms": reply.duration_ms,
        **({"asked_ms": reply.asked_ms} if reply.failed_attempts else {}),
        **({"note": note} if note else {}),
        **slot_wait(waited),
    }


def model_attempt_failed(following: NextAttempt, waited: float = 0.0) -> JsonObject:
    """Return the data of a model_attempt_failed entry."""
    return {
        "model": following.failed.model,
        "attempt": following.attempt,
        "error": following.failed.error,
        "next_model": following.model,
        "retry_in": round(following.seconds, 3),
        **slot_wait(waited),
    }


def model_call_record(reply: ModelReply, waited: float = 0.0, route: ModelRoute | None = None) -> JsonObject:
    """Return the data of a model_call ledger record; `route` is why the run asks other models than its definition's."""
    data: JsonObject = {
        "model": reply.model,
        "scripted": reply.scripted,
        "usage": usage_data(reply.usage),
        "duration_ms": reply.duration_ms,
        **slot_wait(waited),
    }
    if route is not None:
        data["route"] = {"task_type": route.task_type, "by": route.by}
    return {**data, **_failed(reply.failed_attempts)}


def embedding_record(call: EmbeddedCall, purpose: EmbeddingPurpose) -> JsonObject:
    """Return the data of a model_call ledger record for vectors."""
    return {
        "model": call.model,
        "purpose": purpose.value,
        "usage": usage_data(call.usage),
        "duration_ms": call.duration_ms,
        **_failed(call.failed_attempts),
    }


def recall_records(found: Recall) -> Iterator[tuple[LedgerKind, str, JsonObject]]:
    """Return what the ledger is to know of a recall, each with a name: that its index was out of use, what its vector cost."""
    if found.degraded:
        yield LedgerKind.WARNING, "degraded", {"what": "recall without its index", "why": found.reason}
    for number, call in enumerate(found.embeddings):
        yield LedgerKind.MODEL_CALL, f"embedding {number}", embedding_record(call, EmbeddingPurpose.RECALL)


def embeddings_data(calls: Sequence[EmbeddedCall]) -> JsonObject:
    """Return what an entry says of calls for vectors that were made for it; nothing if there were none."""
    if not calls:
        return {}
    told = [
        {
            "model": call.model,
            "usage": usage_data(call.usage),
            "at": call.at.isoformat(),
            "duration_ms": call.duration_ms,
            **_failed(call.failed_attempts),
        }
        for call in calls
    ]
    return {"usage": usage_data(used_by(calls)), "embeddings": told}


def _failed(attempts: Iterable[FailedAttempt]) -> JsonObject:
    told = [asdict(each) for each in attempts]
    return {"failed_attempts": told} if told else {}


def visibility_record(
    visible: int, schemas: str, hidden: Iterable[Hidden], withheld: Mapping[str, Withheld] = _NO_SKILLS
) -> JsonObject:
    """Return the data of a visibility ledger record, which stays short however many tools are visible.

    `withheld` are skills that the run does not read, each with the reason.
    """
    data: JsonObject = {
        "visible": visible,
        "tools": schemas,
        "hidden": [{"tools": list(each.tools), "by": each.by, "reason": each.reason} for each in hidden],
    }
    if withheld:
        data["skills"] = [
            {"skills": [name for name, each in withheld.items() if each == why], "by": why.by, "reason": why.reason}
            for why in dict.fromkeys(withheld.values())
        ]
    return data


def prompt_skills(skills: Iterable[Skill], withheld: Mapping[str, Withheld]) -> JsonObject:
    """Return what of a definition's skills holds for the calls of a run: which it must not read, and its programs' variables.

    Where two skills set a variable, the first one's by name counts.
    """
    environment: dict[str, str] = {}
    for skill in skills:
        if skill.environment and skill.name not in withheld:
            environment = dict(skill.environment) | environment
    found = {"withheld": {name: why.reason for name, why in withheld.items()}, "environment": environment}
    return {name: value for name, value in found.items() if value}


def replied_calls(data: JsonObject) -> tuple[ToolCall, ...]:
    """Return the calls of a model_replied entry."""
    return tuple(ToolCall(ToolCallId(call["id"]), call["name"], call["arguments"]) for call in data["tool_calls"])


def used(data: JsonObject) -> Usage:
    """Return what models used for what the entry says: all of a model_replied entry, seldom any of another."""
    usage = data.get("usage")
    return Usage() if usage is None else Usage(**usage)


def tool_finished(call: ToolCall, tool: str, outcome: ToolOutcome) -> JsonObject:
    """Return the data of a tool_finished entry, which a tool_call ledger record repeats."""
    result, duration_ms = outcome.result, outcome.duration_ms
    data: JsonObject = {"call_id": call.call_id, "tool": tool, "arguments": call.arguments, "duration_ms": duration_ms}
    if result.error is None:
        data["content"] = result.content
    else:
        data["error"] = error_data(result.error)
    if result.metadata:
        data["metadata"] = result.metadata
    data |= embeddings_data(outcome.embeddings)
    if outcome.hooks:
        data["hooks"] = list(outcome.hooks)
    if outcome.arguments is not None:
        data["executed"] = outcome.arguments
    return data


def finished_result(data: JsonObject) -> ToolResult:
    """Return the result of a tool_finished entry."""
    error = data.get("error")
    return ToolResult(
        ToolCallId(data["call_id"]),
        content=data.get("content"),
        error=ToolError(**error) if error else None,
        metadata=data.get("metadata", {}),
    )


def error_data(error: ToolError) -> JsonObject:
    """Return the JSON form of a tool error, as the model reads it too."""
    return {
        "type": error.type,
        "message": error.message,
        "retryable": error.retryable,
        "details": error.details,
    }


def run_finished(result: RunResult) -> JsonObject:
    """Return the data of a run_finished entry, which a run ledger record repeats."""
    error = result.error
    return {
        "status": result.status.value,
        "final_text": result.final_text,
        "error": {"type": error.type, "message": error.message, "retryable": error.retryable} if error else None,
        "turns": result.turns,
        "tool_calls": result.tool_calls,
        "duration_ms": result.duration_ms,
        "usage": usage_data(result.usage),
    }
