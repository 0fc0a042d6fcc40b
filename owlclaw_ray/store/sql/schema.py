"""The tables. Times are microseconds since 1970 in UTC; JSON is text.

An agent's column holds its key (`codec.agent_key`): tenant and id in one, so that every look-up is by one column. The row
of an agent is the lock of everything that is the agent's: runs, journals and schedules. The indexes keep the cost of a
command independent of how many runs, agents and records there are; ledger records are unique within their run, because an
index of their random ids alone would have every commit write as many pages as it has records.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnClause,
    ColumnElement,
    Computed,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Sequence,
    Table,
    Text,
    case,
    false,
    func,
    literal_column,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.domain.usage import RunCounts, ToolCounts

metadata = MetaData()

NAME = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is compared byte by byte on every database."""
ROW_ID = BigInteger().with_variant(Integer, "sqlite")
ACTIVE = text("status IN ('queued', 'running', 'waiting')")
OPEN = text("status IN ('active', 'paused')")
OVER = text("status IN ('completed', 'failed', 'timeout', 'terminated', 'cancelled', 'skipped')")
FINISHED = text("finished_at IS NOT NULL")
"""How SQLite's indexes say it: for a list of statuses it builds a table for each row that it writes, 2 µs for each index. Whoever ends a
run writes when it finished."""
PENDING = text("status = 'pending'")
WAITING_FOR_HEARTBEAT = text("status = 'waiting'")
AWAITING = text("awaits IS NOT NULL")
OPEN_BREAKER = text("has_open_breaker")
OF_KEYS = text("counts_for IS NOT NULL AND status IN ('queued', 'running', 'waiting')")
MERGEABLE = text("status = 'queued' AND merge_key IS NOT NULL")
QUEUED: ColumnClause[str] = literal_column("'queued'")
RUNNING: ColumnClause[str] = literal_column("'running'")
WAITING: ColumnClause[str] = literal_column("'waiting'")
IS_PENDING: ColumnClause[str] = literal_column("'pending'")
"""As literals: a plan made for a parameter cannot use a partial index."""


class Extract(ColumnElement[Any]):
    """What the database itself keeps up from another column: the kind that a trigger's text begins with, the definition in the key of an
    agent, with its tenant, or whether an agent's state has a breaker that is not closed.
    """

    inherit_cache = True

    def __init__(self, part: str) -> None:
        self.part = part


KIND_STARTS = len('{"kind":"') + 1
EXTRACTS = {
    "sqlite": {
        "kind": f'substr("trigger", {KIND_STARTS}, instr(substr("trigger", {KIND_STARTS}), \'"\') - 1)',
        "definition": "substr(agent, 1, instr(agent || ':', ':') - 1)",
        "has_open_breaker": "state GLOB '*\"open_until\":[1-9]*'",
    },
    "postgresql": {
        "kind": f"split_part(substr(trigger, {KIND_STARTS}, 40), '\"'::text, 1)",
        "definition": "split_part(agent, ':'::text, 1)",
        "has_open_breaker": "state ~ '\"open_until\":[1-9]'::text",
    },
}


class _OverRun(ColumnElement[bool]):
    """Whether a run is over, as the indexes of such runs say it."""

    _traverse_internals = []  # noqa: RUF012 - SQLAlchemy declares it
    """Nothing of it differs: without this, SQLAlchemy compiles each statement with it every time."""


@compiles(_OverRun)
def _compile_over_run(_element: _OverRun, compiler: SQLCompiler, **_options: object) -> str:
    return (FINISHED if compiler.dialect.name == "sqlite" else OVER).text


@compiles(Extract)
def _compile_extract(element: Extract, compiler: SQLCompiler, **_options: object) -> str:
    return EXTRACTS[compiler.dialect.name][element.part]


agents = Table(
    "agents",
    metadata,
    Column("agent", NAME, primary_key=True),
    Column("tenant", NAME, nullable=False),
    Column("definition", NAME, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("activation_id", Text),
    Column("state", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("lineage", Text),
    Column("node_id", Text),
    Column("has_open_breaker", Boolean, Computed(Extract("has_open_breaker"))),
    Index("agents_by_tenant", "tenant", "agent"),
    Index("agents_by_definition", "definition", "agent"),
    Index("agents_with_open_breakers", "tenant", "agent", sqlite_where=OPEN_BREAKER, postgresql_where=OPEN_BREAKER),
)

runs_seq = Sequence("runs_seq", metadata=metadata)
"""Order of acceptance on PostgreSQL, where many write at once; SQLite counts on from the last row."""

runs = Table(
    "runs",
    metadata,
    Column("seq", ROW_ID, primary_key=True, autoincrement=False),
    Column("run_id", NAME, nullable=False, unique=True),
    Column("tenant", NAME, nullable=False),
    Column("agent", NAME, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("status", NAME, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("cancel_requested", Boolean, nullable=False),
    Column("claimed_epoch", BigInteger, nullable=False),
    Column("result", Text),
    Column("rank", BigInteger, nullable=False, server_default="0"),
    Column("deadline", BigInteger),
    Column("merge_key", NAME),
    Column("interrupted_by", NAME),
    Column("reserves", Boolean, nullable=False, server_default=false()),
    Column("awaits", Text),
    Column("payload", Text),
    Column("counts_for", Text),
    Column("kind", NAME, Computed(Extract("kind"))),
    Column("definition", NAME, Computed(Extract("definition"))),
    Index("runs_active", "agent", "status", "rank", "seq", sqlite_where=ACTIVE, postgresql_where=ACTIVE),
    Index("runs_mergeable", "agent", "merge_key", sqlite_where=MERGEABLE, postgresql_where=MERGEABLE),
    Index("runs_of_keys", "tenant", "status", "seq", sqlite_where=OF_KEYS, postgresql_where=OF_KEYS),
    Index("runs_awaiting", "seq", sqlite_where=AWAITING, postgresql_where=AWAITING),
    Index("runs_by_agent", "agent", "seq"),
    Index("runs_by_tenant", "tenant", "seq"),
    Index("runs_by_status", "tenant", "status", "seq"),
    Index("runs_over", "tenant", "status", "kind", "seq", sqlite_where=FINISHED, postgresql_where=OVER),
    Index("runs_over_by_agent", "agent", "status", "kind", "seq", sqlite_where=FINISHED, postgresql_where=OVER),
    Index(
        "runs_over_by_definition", "definition", "status", "kind", "seq", sqlite_where=FINISHED, postgresql_where=OVER
    ),
    Index("runs_by_definition", "definition", "seq"),
)

focus_terms = Table(
    "focus_terms",
    metadata,
    Column("tenant", NAME, primary_key=True),
    Column("term", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
"""Which runs have a word in their focus, see `focus_index`."""

journal = Table(
    "journal",
    metadata,
    Column("run_id", NAME, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("kind", NAME, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("data", Text, nullable=False),
    sqlite_with_rowid=False,
)

blobs = Table(
    "blobs",
    metadata,
    Column("hash", NAME, primary_key=True),
    Column("content", Text, nullable=False),
    Column("used_at", BigInteger),
    Index("blobs_by_use", "hash", "used_at"),
)
"""Texts that journals name by their hashes, each tenant's apart: see `codec.blob_key`. `used_at`: when one was stored last, anew or
again; NULL where an older version did it."""

ledger = Table(
    "ledger",
    metadata,
    Column("id", ROW_ID, primary_key=True),
    Column("tenant", NAME, nullable=False),
    Column("writer", NAME, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("record_id", NAME, nullable=False),
    Column("agent", NAME, nullable=False),
    Column("run_id", NAME, nullable=False),
    Column("kind", NAME, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("data", Text, nullable=False),
    Column("previous_hash", NAME, nullable=False),
    Column("hash", NAME, nullable=False),
    Index("ledger_chain", "tenant", "writer", "position", unique=True),
    Index("ledger_by_time", "tenant", "at", "id"),
    Index("ledger_by_agent", "agent", "at", "id"),
    Index("ledger_by_run", "run_id", "record_id", unique=True),
    Index("ledger_by_kind", "tenant", "kind", "at", "id"),
)

ledger_heads = Table(
    "ledger_heads",
    metadata,
    Column("tenant", NAME, primary_key=True),
    Column("writer", NAME, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("hash", NAME, nullable=False),
)

schedules = Table(
    "schedules",
    metadata,
    Column("schedule_id", NAME, primary_key=True),
    Column("agent", NAME, nullable=False),
    Column("kind", NAME, nullable=False),
    Column("rule", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by_run", Text),
    Column("status", NAME, nullable=False),
    Column("next_fire_at", BigInteger),
    Column("paused_until", BigInteger),
    Column("forgotten_until", BigInteger),
    Column("found_over_at", BigInteger),
    Index(
        "schedules_due",
        "next_fire_at",
        sqlite_where=text("status = 'active'"),
        postgresql_where=text("status = 'active'"),
    ),
    Index("schedules_open", "agent", sqlite_where=OPEN, postgresql_where=OPEN),
    Index("schedules_by_agent", "agent", "created_at", "schedule_id"),
)

ticks = Table(
    "ticks",
    metadata,
    Column("firing_id", NAME, primary_key=True),
    Column("schedule_id", NAME, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("outcome", NAME, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("run_id", NAME),
    Column("reason", Text, nullable=False),
    Column("last_due_at", BigInteger),
    Column("count", BigInteger, nullable=False),
    Index("ticks_by_schedule", "schedule_id", "due_at"),
    Index("ticks_by_run", "run_id"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("task_id", NAME, primary_key=True),
    Column("agent", NAME, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("data", Text, nullable=False),
    Index("tasks_by_agent", "agent", "created_at"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("approval_id", NAME, primary_key=True),
    Column("tenant", NAME, nullable=False),
    Column("agent", NAME, nullable=False),
    Column("run_id", NAME, nullable=False),
    Column("status", NAME, nullable=False),
    Column("requested_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("request", Text, nullable=False),
    Column("decision", Text),
    Column("decided_at", BigInteger),
    Column("allowed_by", Text),
    Index("approvals_pending", "expires_at", sqlite_where=PENDING, postgresql_where=PENDING),
    Index("approvals_by_run", "run_id"),
    Index("approvals_by_agent", "agent", "requested_at"),
    Index("approvals_by_tenant", "tenant", "requested_at"),
    Index("approvals_by_status", "tenant", "status", "requested_at"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("delivery_id", NAME, primary_key=True),
    Column("tenant", NAME, nullable=False),
    Column("source", NAME, nullable=False),
    Column("receipt", NAME, nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Column("status", NAME, nullable=False),
    Column("reason", Text, nullable=False),
    Column("agent", NAME),
    Column("run_id", NAME),
    Column("headers", Text, nullable=False),
    Column("whole", Boolean, nullable=False),
    Column("body", Text, nullable=False),
    Column("event", Text),
    Column("failures", BigInteger, nullable=False, server_default="0"),
    Index(
        "webhook_deliveries_waiting",
        "agent",
        "received_at",
        sqlite_where=WAITING_FOR_HEARTBEAT,
        postgresql_where=WAITING_FOR_HEARTBEAT,
    ),
    Index("webhook_deliveries_by_age", "received_at"),
    Index("webhook_deliveries_by_tenant", "tenant", "received_at"),
    Index("webhook_deliveries_by_source", "tenant", "source", "received_at"),
    Index("webhook_deliveries_by_status", "tenant", "status", "received_at"),
)

callbacks = Table(
    "callbacks",
    metadata,
    Column("callback_id", NAME, primary_key=True),
    Column("tenant", NAME, nullable=False),
    Column("agent", NAME, nullable=False),
    Column("run_id", NAME, nullable=False),
    Column("url", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("status", NAME, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("next_try_at", BigInteger),
    Column("tried_at", BigInteger),
    Column("problem", Text, nullable=False),
    Column("delivered_at", BigInteger),
    Column("version", BigInteger, nullable=False),
    Column("changed_by", NAME, nullable=False),
    Column("host", NAME, nullable=False, server_default=""),
    Index("callbacks_due", "tenant", "host", "next_try_at", sqlite_where=PENDING, postgresql_where=PENDING),
    Index("callbacks_by_age", "created_at"),
    Index("callbacks_by_run", "run_id"),
    Index("callbacks_by_agent", "agent", "created_at"),
    Index("callbacks_by_tenant", "tenant", "created_at"),
    Index("callbacks_by_status", "tenant", "status", "created_at"),
)
"""What is to be told of runs that are, or will be, over: the outbox."""

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", NAME, primary_key=True),
    Column("body_hash", Text, nullable=False),
    Column("run_id", NAME, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("idempotency_keys_expiry", "expires_at"),
)

budgets = Table(
    "budgets",
    metadata,
    Column("account", NAME, primary_key=True),
    Column("used", BigInteger, nullable=False),
    Column("reserved", BigInteger, nullable=False),
    Column("alerted", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Index("budgets_expiry", "expires_at"),
)

budget_reservations = Table(
    "budget_reservations",
    metadata,
    Column("reservation_id", NAME, primary_key=True),
    Column("account", NAME, primary_key=True),
    Column("run_id", NAME, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Index("budget_reservations_by_run", "run_id"),
)
"""What calls under way may use. A run that ever reserved anything has `reserves` set, so that others need not look here."""

probes = Table(
    "probes",
    metadata,
    Column("writer", NAME, primary_key=True),
    Column("written", BigInteger, nullable=False),
)
"""Where each store writes to see whether it can."""

cluster_lease = Table(
    "cluster_lease",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("cluster", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("beats", BigInteger, nullable=False),
    Column("directory", Text, nullable=False, server_default=""),
    Column("term", BigInteger, nullable=False, server_default="0"),
    Column("leaving", Text, nullable=False, server_default=""),
)
"""Who runs the agents of this database, in one row."""

cluster_nodes = Table(
    "cluster_nodes",
    metadata,
    Column("node_id", NAME, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("beats", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("details", Text, nullable=False),
)
"""The nodes of the clusters that use this database."""

memories = Table(
    "memories",
    metadata,
    Column("agent", NAME, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("change_id", Text, nullable=False),
    Column("documents", Text, nullable=False),
)
"""The version of each agent's memory, the change that made it, and what there is then: see StoredDocument."""

memory_parts = Table(
    "memory_parts",
    metadata,
    Column("agent", NAME, primary_key=True),
    Column("document", NAME, primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)
"""The documents of memories: the parts of each, in the order of the versions that added them, are its text."""

attempts = Table(
    "attempts",
    metadata,
    Column("attempt", NAME, primary_key=True),
    Column("named_at", BigInteger, nullable=False),
    Column("begun", Boolean, nullable=False),
    Index("attempts_by_age", "named_at"),
)
"""Attempts at tool calls, by whoever named them first: who was to run them, or who gave them up."""

artifacts = Table(
    "artifacts",
    metadata,
    Column("agent", NAME, primary_key=True),
    Column("artifact_id", NAME, primary_key=True),
    Column("media_type", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("parts", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("stored_at", BigInteger, nullable=False),
    Index("artifacts_by_agent", "agent", "stored_at"),
)
artifact_parts = Table(
    "artifact_parts",
    metadata,
    Column("agent", NAME, primary_key=True),
    Column("artifact_id", NAME, primary_key=True),
    Column("part", BigInteger, primary_key=True),
    Column("stored_at", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Index("artifact_parts_by_age", "stored_at"),
)
"""The contents of artifacts, and of those of which not all parts are there yet."""

export_positions = Table(
    "export_positions",
    metadata,
    Column("tenant", NAME, primary_key=True),
    Column("writer", NAME, primary_key=True),
    Column("position", BigInteger, nullable=False),
)
"""Up to which record of each ledger chain traces are exported. A row of no chain says that the export has begun."""

access_keys = Table(
    "access_keys",
    metadata,
    Column("key_id", NAME, primary_key=True),
    Column("tenant", NAME, nullable=False),
    Column("name", Text, nullable=False),
    Column("secret_hash", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("patterns", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("previous_hash", Text),
    Column("previous_until", BigInteger),
    Column("last_used_at", BigInteger),
    Column("revoked_at", BigInteger),
    Column("starts_a_minute", BigInteger),
    Column("open_runs", BigInteger),
    Column("running_runs", BigInteger),
    Column("model_tokens_a_minute", BigInteger),
    Index("access_keys_by_tenant", "tenant", "key_id"),
)
"""Access keys, without their secrets."""

tenants = Table(
    "tenants",
    metadata,
    Column("tenant", NAME, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("weight", BigInteger, nullable=False),
    Column("quotas", Text, nullable=False, server_default="{}"),
    Column("deletion", Text),
    Column("retention", Text, nullable=False, server_default="{}"),
    Column("callback_networks", Text),
)
"""The tenants, but for the default one as long as nothing was said of it."""

secrets = Table(
    "secrets",
    metadata,
    Column("tenant", NAME, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("ciphertext", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("rotated_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Index("secrets_by_age", "rotated_at"),
)
"""Secrets of tenants, each encrypted with the master key of that id, for its tenant and its name."""

schema_compatibility = Table(
    "schema_compatibility",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("oldest", Text, nullable=False),
    Column("migrated_by", Text, nullable=False),
)
"""The oldest schema whose runtimes may work on this database, and the version that migrated it, in one row."""


sweeps = Table(
    "sweeps",
    metadata,
    Column("what", NAME, primary_key=True),
    Column("swept_at", BigInteger, nullable=False),
)
"""The moment as of which things of each kind were removed last because they were old, see `store.retention`."""


queue_minutes = Table(
    "queue_minutes",
    metadata,
    Column("begins_at", BigInteger, primary_key=True, autoincrement=False),
    Column("queue", NAME, primary_key=True),
    Column("least", BigInteger, nullable=False),
    Column("most", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""How long queues were in each minute, of all tenants together."""

concurrency_limits = Table(
    "concurrency_limits",
    metadata,
    Column("asked", NAME, primary_key=True),
    Column("node_id", NAME, primary_key=True),
    Column("calls", BigInteger, nullable=False),
    Column("threshold", BigInteger),
    Column("noted_at", BigInteger, nullable=False),
)
"""How many calls each node's gateway makes at once of what it asked in the last minutes."""


def _counts(of: type[Struct]) -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False) for name in of.__struct_fields__]


usage_of_tenants = Table(
    "usage_of_tenants",
    metadata,
    Column("tenant", NAME, primary_key=True),
    Column("seconds", BigInteger, primary_key=True, autoincrement=False),
    Column("begins_at", BigInteger, primary_key=True, autoincrement=False),
    Column("writer", NAME, primary_key=True),
    *_counts(RunCounts),
    Index("usage_of_tenants_by_age", "seconds", "begins_at"),
    sqlite_with_rowid=False,
)
"""Runs that ended, by minutes and by hours. Each writer has rows of its own here, so that Keepers do not wait for one another."""

usage_of_agents = Table(
    "usage_of_agents",
    metadata,
    Column("tenant", NAME, primary_key=True),
    Column("begins_at", BigInteger, primary_key=True, autoincrement=False),
    Column("agent", NAME, primary_key=True),
    Column("definition", NAME, nullable=False),
    *_counts(RunCounts),
    Index("usage_of_agents_by_age", "begins_at"),
    sqlite_with_rowid=False,
)
"""Runs of each agent that ended, by days. Who ends a run has its agent locked, and so this row."""

usage_of_tools = Table(
    "usage_of_tools",
    metadata,
    Column("tenant", NAME, primary_key=True),
    Column("begins_at", BigInteger, primary_key=True, autoincrement=False),
    Column("tool", NAME, primary_key=True),
    Column("writer", NAME, primary_key=True),
    *_counts(ToolCounts),
    Index("usage_of_tools_by_age", "begins_at"),
    sqlite_with_rowid=False,
)
"""Calls of tools that ended, by hours, each writer's apart."""

has_open_breaker: ColumnClause[bool] = literal_column("has_open_breaker")
"""Spelt as in the index agents_with_open_breakers, which serves it."""
active_run = runs.c.status.in_([QUEUED, RUNNING, WAITING])
"""Spelt as in the index runs_active, which serves it, also together with a narrower condition."""
over_run: ColumnElement[bool] = _OverRun()
"""Spelt as in the indexes runs_over, runs_over_by_agent and runs_over_by_definition, which serve it together with a status."""
small_payload = case((func.length(runs.c.payload) <= LARGE, runs.c.payload)).label("payload")
"""The payload, unless it is large."""
payload_left = case((func.length(runs.c.payload) > LARGE, func.length(runs.c.payload)), else_=0).label("payload_left")
"""The characters of a large payload, else 0."""
mergeable_run = (runs.c.status == QUEUED) & runs.c.merge_key.is_not(None)
"""Spelt as in the index runs_mergeable, which serves it."""
begun_run = runs.c.status.in_([RUNNING, WAITING]) & active_run
"""The run at the head of an agent, of which there is one at most."""
executed_run = (runs.c.status == RUNNING) & (runs.c.claimed_epoch != literal_column("0"))
"""Not those that went on after waiting, and that nobody has claimed yet (EPOCH_AFTER_WAIT)."""
key_run = runs.c.counts_for.is_not(None) & active_run
"""Spelt as in the index runs_of_keys, which serves it."""
awaiting_run = runs.c.awaits.is_not(None)
"""Spelt as in the index runs_awaiting, which serves it."""
pending_approval = approvals.c.status == literal_column("'pending'")
"""Spelt as in the index approvals_pending, which serves it."""
active_schedule = schedules.c.status == literal_column("'active'")
"""Spelt as in the index schedules_due, which serves it."""
open_schedule = schedules.c.status.in_([literal_column("'active'"), literal_column("'paused'")])
"""Spelt as in the index schedules_open, which serves it."""
pending_callback = callbacks.c.status == IS_PENDING
"""Spelt as in the index callbacks_due, which serves it."""
settled_callback = callbacks.c.status.in_([literal_column("'delivered'"), literal_column("'dead'")])
waiting_delivery = webhook_deliveries.c.status == WAITING
"""Spelt as in the index webhook_deliveries_waiting, which serves it."""
