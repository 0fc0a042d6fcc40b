"""From domain objects to the JSON of `owlclaw_ray.wire`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import orjson
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentState
from owlclaw_ray.domain.approval import Approval
from owlclaw_ray.domain.artifact import StoredArtifact
from owlclaw_ray.domain.callback import Callback
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.json import JsonText, JsonValue
from owlclaw_ray.domain.ledger import ChainedRecord, NotedHead
from owlclaw_ray.domain.lineage import ChildRole
from owlclaw_ray.domain.memory import Memory, MemoryStats, Recall
from owlclaw_ray.domain.run import Run, RunResult, RunStatus
from owlclaw_ray.domain.schedule import Backfill, Schedule, Tick
from owlclaw_ray.domain.score import Score
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.tool import Permission
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.domain.webhook import Delivery, WebhookSource
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.runtime.api import AgentView, LedgerVerification
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.store.commands import DeliveryStored, RunAccepted
from owlclaw_ray.store.queries import LedgerChain, LedgerPlace
from owlclaw_ray.tools.mcp.api import McpServerView

PLACE_PATTERN = r"^[0-9]{1,16}\.[0-9]{1,18}\.[^\u0000]+$"
"""A place in the ledger, as clients pass it on: time, position and writer, which mean nothing to them."""
HEAD_PATTERN = r"^[0-9]{1,16}\.[0-9]{1,18}\.[0-9a-f]{64}\.[^\u0000]+$"
"""The end of a chain: microseconds, position, hash and writer."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def json_response(value: JsonValue, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(orjson.dumps(value), status, headers, "application/json")


def moment(at: datetime) -> str:
    """Return ISO 8601 in UTC, such as `2026-11-03T09:30:00.250Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exact_moment(at: datetime) -> str:
    """Return as `moment`, with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment_or_none(at: datetime | None) -> str | None:
    """Return ISO 8601 in UTC, or None for what did not happen."""
    return None if at is None else moment(at)


def accepted_body(accepted: RunAccepted, status: RunStatus) -> wire.Accepted:
    """Return what became of a trigger that is committed."""
    return {
        "run_id": accepted.run_id,
        "agent": accepted.agent.agent_id,
        "status": status.value,
        "scripted": accepted.scripted,
        "duplicate": accepted.duplicate,
        "merged": accepted.merged,
        "interrupted": accepted.interrupted,
    }


def source_body(source: WebhookSource) -> wire.WebhookSource:
    """Return a source without its secrets."""
    form = source.signature
    return {
        "source": source.name,
        "path": f"/v1/webhooks/{source.name}",
        "agent": source.mapping.agent,
        "signature_header": form.header,
        "algorithm": form.algorithm,
        "window_seconds": form.tolerance if form.timed else None,
        "dedupe": source.mapping.dedupe,
    }


def delivery_body(delivery: Delivery) -> wire.Delivery:
    """Return a delivery, without its body."""
    return {
        "delivery_id": delivery.delivery_id,
        "source": delivery.source,
        "status": delivery.status.value,
        "reason": delivery.reason,
        "agent": None if delivery.agent is None else delivery.agent.agent_id,
        "run_id": delivery.run_id,
        "received_at": moment(delivery.received_at),
    }


def full_delivery_body(delivery: Delivery) -> wire.FullDelivery:
    """Return a delivery with all that is kept of it."""
    headers = {name: str(value) for name, value in delivery.headers.items()}
    return {**delivery_body(delivery), "headers": headers, "body": delivery.body, "repeatable": delivery.repeatable}


def receipt_body(stored: DeliveryStored) -> wire.WebhookReceipt:
    """Return what the sender of a webhook is told."""
    delivery = stored.delivery
    return {
        "delivery_id": delivery.delivery_id,
        "status": delivery.status.value,
        "run_id": delivery.run_id,
        "duplicate": stored.duplicate,
        "reason": delivery.reason,
    }


def callback_body(callback: Callback) -> wire.Callback:
    """Return what is, or was, to be told of a run's end."""
    return {
        "callback_id": callback.callback_id,
        "run_id": callback.run_id,
        "agent": callback.agent.agent_id,
        "url": callback.url,
        "status": callback.status.value,
        "attempts": callback.attempts,
        "problem": callback.problem,
        "created_at": moment(callback.created_at),
        "tried_at": moment_or_none(callback.tried_at),
        "next_try_at": moment_or_none(callback.next_try_at),
        "delivered_at": moment_or_none(callback.delivered_at),
    }


def score_body(run_id: RunId, score: Score) -> wire.Score:
    """Return a score that is kept."""
    said = score.judgement
    return {
        "score_id": score.score_id,
        "run_id": run_id,
        "trace_id": score.trace_id,
        "name": said.name,
        "value": said.value,
        "comment": said.comment,
    }


def event_body(entry: JournalEntry) -> wire.Event:
    """Return a journal entry as an event."""
    return {
        "seq": entry.seq,
        "kind": entry.kind.value,
        "at": moment(entry.at),
        "data": entry.data,
    }


def run_body(run: Run, *, payload: bool = True) -> wire.Run:
    """Return a run without its events; without its payload too, if that is said."""
    trigger = run.trigger
    shown: wire.Trigger = {
        "kind": trigger.kind.value,
        "focus": trigger.focus,
        "source": trigger.source,
        "merged": trigger.merged,
    }
    if trigger.task_type:
        shown["task_type"] = trigger.task_type
    if trigger.session:
        shown["session"] = trigger.session
    if trigger.user:
        shown["user"] = trigger.user
    if payload:
        content = trigger.content
        shown["payload"] = orjson.Fragment(content.text) if isinstance(content, JsonText) else content
    return {
        "run_id": run.run_id,
        "seq": run.seq,
        "agent": run.agent.agent_id,
        "status": run.status.value,
        "trigger": shown,
        "created_at": moment(run.created_at),
        "started_at": moment_or_none(run.started_at),
        "finished_at": moment_or_none(run.finished_at),
        "priority": run.priority,
        "deadline": moment_or_none(run.deadline),
        "cancel_requested": run.cancel_requested,
        "interrupted_by": run.interrupted_by,
        "result": None if run.result is None else result_body(run.result),
    }


def result_body(result: RunResult) -> wire.RunResult:
    """Return how a run ended."""
    usage, error = result.usage, result.error
    return {
        "status": result.status.value,
        "turns": result.turns,
        "tool_calls": result.tool_calls,
        "final_text": result.final_text,
        "tools_called": list(result.tools_called),
        "duration_ms": result.duration_ms,
        "tokens": {
            "prompt": usage.prompt_tokens,
            "completion": usage.completion_tokens,
            "cached": usage.cached_tokens,
        },
        "cost": usage.cost,
        "model": result.model,
        "scripted": result.scripted,
        "error": None
        if error is None
        else {"type": error.type, "message": error.message, "retryable": error.retryable},
    }


def agent_body(view: AgentView) -> wire.Agent:
    """Return an agent, with zeroes for one that never had a trigger."""
    record = view.record
    state = record.state if record else AgentState()
    return {
        "agent": view.agent.agent_id,
        "definition": view.agent.definition,
        "model": view.model,
        "scripted": view.scripted,
        "isolation": view.isolation,
        "problem": view.problem,
        "warnings": list(view.warnings),
        "runs": state.runs,
        "recent_outcomes": list(state.recent_outcomes),
        "queued_runs": record.queued_runs if record else 0,
        "running_run": record.running_run if record else None,
        "created_at": moment(record.created_at) if record else None,
    }


def skill_body(skill: Skill) -> wire.Skill:
    """Return what is known of a skill without reading it."""
    return {
        "name": skill.name,
        "description": skill.description,
        "tokens": skill.tokens,
        "focus": list(skill.focus),
        "trigger": list(skill.triggers),
        "task_type": skill.task_type,
        "risk_level": cast("wire.RiskLevel", skill.risk_level),
        "requires_confirmation": skill.requires_confirmation,
        "constraints": skill.constraints(),
        "problem": skill.unmet,
    }


def memory_body(memory: Memory) -> wire.Memory:
    """Return a memory."""
    return {
        "memory_id": memory.memory_id,
        "content": memory.content,
        "tags": list(memory.tags),
        "created_at": moment(memory.created_at),
        "run_id": memory.run_id,
        "session": memory.session,
        "count": memory.count,
        "also": list(memory.also),
    }


def memories_body(memories: Sequence[Memory], after: str | None, limit: int) -> wire.Memories:
    """Return a page of the memories that begins after that one; raises NotFoundError if it is not among them."""
    begin = 0
    if after is not None:
        begin = next((at for at, each in enumerate(memories, start=1) if each.memory_id == after), 0)
        if not begin:
            raise NotFoundError("memory", after)
    page = memories[begin : begin + limit]
    more = begin + limit < len(memories)
    return {"memories": [memory_body(each) for each in page], "next_after": page[-1].memory_id if more else None}


def found_body(found: Recall, *, explained: bool) -> wire.FoundMemories:
    """Return what a query found, with the parts of the scores if they are to be explained."""
    memories: list[wire.FoundMemory] = [
        {
            **memory_body(each.memory),
            "score": round(each.score, 4),
            "explanation": each.parts.as_json() if explained else None,
        }
        for each in found.memories
    ]
    return {"memories": memories, "degraded": found.degraded, "reason": found.reason}


def memory_stats_body(stats: MemoryStats) -> wire.MemoryStats:
    """Return how much an agent remembers."""
    return {
        "active": stats.active,
        "archived": stats.archived,
        "file_bytes": stats.file_bytes,
        "archive_bytes": stats.archive_bytes,
        "index_bytes": stats.index_bytes,
        "oldest": None if stats.oldest is None else moment(stats.oldest),
        "newest": None if stats.newest is None else moment(stats.newest),
        "problems": [{"where": each.where, "what": each.what, "fix": each.fix} for each in stats.problems],
    }


def artifact_body(artifact: StoredArtifact) -> wire.Artifact:
    """Return what is known of an artifact."""
    return {
        "artifact_id": artifact.artifact_id,
        "media_type": artifact.media_type,
        "size_bytes": artifact.size_bytes,
        "stored_at": moment(artifact.stored_at),
    }


def schedule_body(schedule: Schedule) -> wire.Schedule:
    """Return a schedule."""
    return {
        "schedule_id": schedule.schedule_id,
        "agent": schedule.agent.agent_id,
        "kind": schedule.kind.value,
        "status": schedule.status.value,
        "focus": schedule.focus,
        "cron_expression": schedule.cron_expression,
        "timezone": schedule.timezone,
        "interval_seconds": schedule.interval_seconds or None,
        "jitter_seconds": schedule.jitter_seconds,
        "overlap": schedule.overlap.value,
        "catch_up_seconds": schedule.catch_up_seconds,
        "task_type": schedule.task_type,
        "next_fire_at": moment_or_none(schedule.next_fire_at),
        "created_at": moment(schedule.created_at),
        "created_by_run": schedule.created_by_run,
    }


def schedules_body(schedules: Sequence[Schedule], limit: int) -> wire.Schedules:
    """Return a page of schedules; if it is as long as it may be, with the place to go on."""
    return {
        "schedules": [schedule_body(each) for each in schedules],
        "next_after": schedules[-1].schedule_id if len(schedules) >= limit else None,
    }


def ticks_body(ticks: Sequence[Tick], limit: int) -> wire.Ticks:
    """Return a page of ticks; if it is as long as it may be, with the place to go on."""
    return {
        "ticks": [
            {
                "firing_id": each.firing_id,
                "due_at": exact_moment(each.due_at),
                "last_due_at": exact_moment(each.last_due_at or each.due_at),
                "count": each.count,
                "outcome": each.outcome.value,
                "reason": each.reason,
                "at": moment(each.at),
                "run_id": each.run_id,
            }
            for each in ticks
        ],
        "next_before": exact_moment(ticks[-1].due_at) if len(ticks) >= limit else None,
    }


def backfill_body(backfill: Backfill) -> wire.Backfill:
    """Return what a backfill did."""
    return {"queued": list(backfill.queued), "known": backfill.known, "refused": backfill.refused}


def ring_body(alarm: Alarm) -> wire.Ring:
    """Return when to ring again."""
    return {"schedule_id": alarm.schedule_id, "at": moment_or_none(alarm.at)}


def approval_body(approval: Approval) -> wire.Approval:
    """Return an approval with everything that a person needs to decide about it."""
    request, decision = approval.request, approval.decision
    return {
        "approval_id": request.approval_id,
        "status": approval.status.value,
        "agent": request.agent.agent_id,
        "role": request.role,
        "run_id": request.run_id,
        "call_id": request.call_id,
        "trigger": TriggerKind(request.trigger).value,
        "source": request.source,
        "parent": request.parent,
        "started_as": ChildRole(request.started_as).value if request.started_as else "",
        "tool": request.tool,
        "description": request.description,
        "permission": Permission(request.permission).value,
        "tags": list(request.tags),
        "reason": request.reason,
        "arguments": request.arguments,
        "written": request.written,
        "input_schema": request.input_schema,
        "target": request.target,
        "cwd": request.cwd,
        "hooks": list(request.hooks),
        "requested_at": moment(request.requested_at),
        "expires_at": moment(request.expires_at),
        "decided_at": moment_or_none(approval.decided_at),
        "decision": None
        if decision is None
        else {
            "decision": decision.decision.value,
            "reason": decision.reason,
            "by": decision.by,
            "arguments": decision.arguments,
        },
    }


def mcp_server_body(view: McpServerView) -> wire.McpServer:
    """Return an MCP server."""
    return {
        "name": view.name,
        "transport": "stdio" if view.transport == "stdio" else "http",
        "target": view.target,
        "state": view.state.value,
        "since": moment(view.since),
        "problem": view.problem,
        "starts": view.starts,
        "calls": view.calls,
        "running": view.running,
        "tools": list(view.tools),
        "left_out": [{"tool": each.tool, "why": each.why} for each in view.left_out],
    }


def record_body(chained: ChainedRecord) -> wire.LedgerRecord:
    """Return a ledger record with its place in the chain."""
    record = chained.record
    return {
        "record_id": record.record_id,
        "agent": record.agent_id,
        "run_id": record.run_id,
        "kind": record.kind.value,
        "at": exact_moment(record.at),
        "data": record.data,
        "writer": chained.writer,
        "position": chained.position,
        "previous_hash": chained.previous_hash,
        "hash": chained.hash,
    }


def ledger_body(records: Sequence[ChainedRecord], limit: int) -> wire.Ledger:
    """Return a page of records; if it is as long as it may be, with the place to go on."""
    more = len(records) >= limit
    return {
        "records": [record_body(record) for record in records],
        "next_after": _place_text(LedgerPlace.of(records[-1])) if more else None,
    }


def verification_body(verification: LedgerVerification) -> wire.LedgerVerification:
    """Return what came of following all chains."""
    return {
        "holds": not verification.breaks,
        "chains": [
            {"writer": each.writer, "records": each.position, "hash": each.hash} for each in verification.chains
        ],
        "breaks": [
            {
                "writer": each.writer,
                "position": each.position,
                "kind": each.kind.value,
                "record_id": each.record_id,
                "problem": each.problem,
            }
            for each in verification.breaks
        ],
        "noted": {"heads": verification.noted, "problems": list(verification.problems)},
        "missing_guards": list(verification.missing_guards),
    }


def heads_body(tenant: TenantId, chains: Sequence[LedgerChain], at: datetime) -> wire.LedgerHeads:
    """Return the ends of chains as they are noted."""
    return {
        "heads": [
            {
                "at": exact_moment(at),
                "tenant": tenant,
                "writer": each.writer,
                "position": each.position,
                "hash": each.hash,
            }
            for each in chains
        ]
    }


def place_of(text: str) -> LedgerPlace:
    """Return the place that a text of PLACE_PATTERN means."""
    micros, position, writer = text.split(".", 2)
    return LedgerPlace(_EPOCH + timedelta(microseconds=int(micros)), writer, int(position))


def head_of(tenant: TenantId, text: str) -> NotedHead:
    """Return the head that a text of HEAD_PATTERN means."""
    micros, position, digest, writer = text.split(".", 3)
    return NotedHead(_EPOCH + timedelta(microseconds=int(micros)), tenant, writer, int(position), digest)


def _place_text(place: LedgerPlace) -> str:
    return f"{(place.at - _EPOCH) // timedelta(microseconds=1)}.{place.position}.{place.writer}"
