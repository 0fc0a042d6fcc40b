"""The data of journal entries and ledger records, made of the structs that they are about.

Who reads an entry converts its data to the same struct: `convert(entry.data, ModelReply)`. Keys that are not fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import to_builtins
from msgspec.structs import asdict

from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalRequest
from owlclaw_ray.domain.embedding import EmbeddedCall, EmbeddingPurpose, used_by
from owlclaw_ray.domain.governance import Hidden
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.memory import Recall
from owlclaw_ray.domain.model import ModelReply, ModelRoute, NextAttempt
from owlclaw_ray.domain.run import RunResult
from owlclaw_ray.domain.skill import Skill, Withheld
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.domain.tool_call import ToolOutcome
from owlclaw_ray.domain.trigger import Trigger

_NO_SKILLS: Mapping[str, Withheld] = {}


def slot_wait(waited: float) -> JsonObject:
    """Return what an entry or a record says of so many seconds of waiting for a slot: nothing if there was no wait."""
    return {"waited_ms": round(waited * 1_000)} if waited else {}


def model_replied(reply: ModelReply, waited: float = 0.0, note: str = "") -> JsonObject:
    """Return the data of a model_replied entry."""
    data: JsonObject = to_builtins(reply)
    if not data.pop("failed_attempts"):
        del data["asked_ms"]
    if note:
        data["note"] = note
    return data | slot_wait(waited)


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
        "usage": asdict(reply.usage),
        "duration_ms": reply.duration_ms,
        **slot_wait(waited),
    }
    if route is not None:
        data["route"] = {"task_type": route.task_type, "by": route.by}
    if reply.failed_attempts:
        data["failed_attempts"] = list(map(asdict, reply.failed_attempts))
    return data


def unanswered_record(model: str, error: str) -> JsonObject:
    """Return the data of a model_call ledger record for a call that nothing came of; `model`: the last that was asked, if any was."""
    return {"model": model, "error": error} if model else {"error": error}


def embedding_record(call: EmbeddedCall, purpose: EmbeddingPurpose) -> JsonObject:
    """Return the data of a model_call ledger record for vectors."""
    data: JsonObject = to_builtins(call)
    del data["at"]
    return data | {"purpose": purpose.value}


def recall_records(found: Recall) -> Iterator[tuple[LedgerKind, str, JsonObject]]:
    """Return what the ledger is to know of a recall, each with a name: that its index was out of use, what its vector cost."""
    if found.degraded:
        yield LedgerKind.WARNING, "degraded", {"what": "recall without its index", "why": found.reason}
    for number, call in enumerate(found.embeddings):
        yield LedgerKind.MODEL_CALL, f"embedding {number}", embedding_record(call, EmbeddingPurpose.RECALL)


def embeddings_data(calls: Sequence[EmbeddedCall]) -> JsonObject:
    """Return what an entry says of calls for vectors that were made for it; nothing if there were none."""
    return {"usage": asdict(used_by(calls)), "embeddings": to_builtins(calls)} if calls else {}


def visibility_record(
    visible: int, schemas: str, hidden: Iterable[Hidden], withheld: Mapping[str, Withheld] = _NO_SKILLS
) -> JsonObject:
    """Return the data of a visibility ledger record, which stays short however many tools are visible.

    `withheld` are skills that the run does not read, each with the reason.
    """
    data: JsonObject = {"visible": visible, "tools": schemas, "hidden": to_builtins(list(hidden))}
    if withheld:
        data["skills"] = [
            {"skills": [name for name, each in withheld.items() if each == why], **asdict(why)}
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


def tool_finished(call: ToolCall, tool: str, outcome: ToolOutcome) -> JsonObject:
    """Return the data of a tool_finished entry, which a tool_call ledger record repeats; a ToolResult can be read from it."""
    result, duration_ms = outcome.result, outcome.duration_ms
    data: JsonObject = {"call_id": call.call_id, "tool": tool, "arguments": call.arguments, "duration_ms": duration_ms}
    if result.error is None:
        data["content"] = result.content
    else:
        data["error"] = asdict(result.error)
    if result.metadata:
        data["metadata"] = result.metadata
    data |= embeddings_data(outcome.embeddings)
    if outcome.hooks:
        data["hooks"] = list(outcome.hooks)
    if outcome.arguments is not None:
        data["executed"] = outcome.arguments
    return data


def run_finished(result: RunResult) -> JsonObject:
    """Return the data of a run_finished entry, which a run ledger record repeats: see run_record."""
    data: JsonObject = to_builtins(result)
    for name in ("tools_called", "model", "scripted"):
        del data[name]
    return data


def run_record(finished: JsonObject, trigger: Trigger) -> JsonObject:
    """Return the data of the ledger record of a run that ended so: with who asked for it, and for the runs above it, if it is known."""
    by = trigger.all_submitters
    return {**finished, "by": [*by]} if by else finished


def request_data(request: ApprovalRequest) -> JsonObject:
    """Return the data of an approval_requested entry: everything but whose it is, and when."""
    data = asdict(request) | {"expires_at": request.expires_at.isoformat()}
    for name in ("agent", "run_id", "requested_at"):
        del data[name]
    if request.needed == 1:
        del data["needed"]
    if not request.excluded:
        del data["excluded"]
    if not request.ends_run:
        del data["ends_run"]
    return data


def requested_record(request: ApprovalRequest) -> JsonObject:
    """Return the data of the ledger record of a request."""
    data = request_data(request)
    del data["input_schema"]
    return {"what": "requested", **data}


def decision_data(decision: ApprovalDecision) -> JsonObject:
    """Return the JSON of a decision."""
    data = asdict(decision) | {"decision": decision.decision.value}
    if decision.arguments is None:
        del data["arguments"]
    if not decision.principal:
        del data["principal"]
    return data


def approval_decided(approval: Approval) -> JsonObject:
    """Return the data of the approval_decided entry of an approval; of one that was withdrawn it has no decision."""
    request, decision = approval.request, approval.decision
    place = {"approval_id": request.approval_id, "call_id": request.call_id, "tool": request.tool}
    return {**place, "status": approval.status.value, **({} if decision is None else decision_data(decision))}


def allowed_record(approval: Approval, decision: ApprovalDecision) -> JsonObject:
    """Return the data of the ledger record of an allowance that others must follow."""
    request = approval.request
    place = {"approval_id": request.approval_id, "call_id": request.call_id, "tool": request.tool}
    return {"what": "allowed", **place, "still_needed": approval.still_needed, **decision_data(decision)}


def decided_record(approval: Approval) -> JsonObject:
    """Return the data of the ledger record of an approval's end, withdrawal included."""
    return {"what": "decided", **approval_decided(approval)}
