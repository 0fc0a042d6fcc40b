"""The ledger: append-only audit records, hash-chained by tenant and writer."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec import Struct, field

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.ids import AgentId, RecordId, RunId, TenantId


class LedgerKind(Enum):
    """What a record is about."""

    TRIGGER = "trigger"
    """A trigger did more than queue a run: what (`merged` or `interrupted`) and the other run or trigger concerned; or less: what
    (`idle`) and why, of the first of several heartbeats that had nothing to do."""
    RUN = "run"
    """A run ended: status, error, turns, tool_calls, usage, duration_ms."""
    MODEL_CALL = "model_call"
    """A model was asked: model, usage, duration_ms, failed_attempts, error."""
    TOOL_CALL = "tool_call"
    """A tool was called: tool, arguments, result or error, duration_ms."""
    APPROVAL = "approval"
    """A person was asked about a call, or somebody decided: what (`requested`, `decided`, `granted`), approval_id, call_id, tool, …"""
    MEMORY = "memory"
    """A person changes what an agent remembers: what (`add`, `edit`, `delete`, `archive`, `import`, `import_archive` or `reindex`), by,
    memory_ids, and the content and tags that are new; with error: it was not made."""
    DECISION = "decision"
    """The agent logged why: reasoning, decision_type."""
    VISIBILITY = "visibility"
    """Which tools a run may use, and why others not: visible (how many), tools (hash of the blob with their schemas), hidden
    [{tools, by, reason}]."""
    ACCESS = "access"
    """Who may do what has changed, or was tried: what (`key_created`, `key_first_used`, `key_rotated`, `key_revoked`, `key_refused`,
    `tenant_created`, `tenant_changed`, `session_begun`), by, key_id, and what there is to it; or what somebody had done that no other
    record tells (`run_cancelled`, `schedule_paused`, `schedule_resumed`, `schedule_cancelled`, `nodes_drained`, `nodes_undrained`,
    `tenant_exported`, `callback_secrets_shown`). It belongs to no agent and no run, but for those of runs and schedules."""
    WARNING = "warning"
    """Something degraded: what, why."""


class Chain(Struct, frozen=True, order=True):
    """A ledger chain: what one Keeper wrote of one tenant, in the order of its commits and without gaps."""

    tenant: TenantId
    writer: str


class LedgerRecord(Struct, frozen=True):
    """One fact for the auditor."""

    record_id: RecordId
    tenant: TenantId
    agent_id: AgentId
    run_id: RunId
    kind: LedgerKind
    at: datetime
    data: JsonObject = field(default_factory=dict)


class ChainedRecord(Struct, frozen=True):
    """A record with its place in its writer's chain."""

    record: LedgerRecord
    writer: str
    position: int
    """Counts from 1 in each chain (tenant, writer)."""
    previous_hash: str
    hash: str


class BreakKind(Enum):
    """What was done to a ledger chain."""

    CHANGED = "changed"
    REMOVED = "removed"
    INSERTED = "inserted"
    MOVED = "moved"


class ChainBreak(Struct, frozen=True):
    """Where a ledger chain does not hold."""

    tenant: TenantId
    writer: str
    position: int
    """Where the record stands, or stood."""
    problem: str
    """A sentence for people."""
    kind: BreakKind
    record_id: RecordId | None = None
    """None for what is not there any more."""


class NotedHead(Struct, frozen=True, forbid_unknown_fields=True):
    """A chain's end as it was noted outside the store: the hash that it had at this position, at this time."""

    at: datetime
    tenant: TenantId
    writer: str
    position: int
    hash: str


class NotedHeads(Struct, frozen=True):
    """What was noted of the ends of chains."""

    heads: tuple[NotedHead, ...] = ()
    problems: tuple[str, ...] = ()
    """Why there is less than there should be, in sentences for people."""


def access_record(
    record_id: str,
    tenant: TenantId,
    what: str,
    at: datetime,
    data: JsonObject,
    *,
    agent_id: str = "",
    run_id: str = "",
) -> LedgerRecord:
    """Return a record of the kind `access`: what happened, to an agent or a run if it did, and what there is to it."""
    place = AgentId(agent_id), RunId(run_id)
    return LedgerRecord(RecordId(record_id), tenant, *place, LedgerKind.ACCESS, at, {"what": what, **data})
