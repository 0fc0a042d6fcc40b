"""The first schema. Its number goes on from those of the development versions, whose revisions it holds together.

Revision ID: 0011
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from owlclaw_ray.store.sql.ledger_guard import ON_POSTGRESQL, ON_SQLITE, REFUSING

revision = "0011"
down_revision = None
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ACTIVE = sa.text("status IN ('queued', 'running', 'waiting')")
_OPEN = sa.text("status IN ('active', 'paused')")
_PENDING = sa.text("status = 'pending'")
_WAITING_FOR_HEARTBEAT = sa.text("status = 'waiting'")
_AWAITING = sa.text("awaits IS NOT NULL")
_MERGEABLE = sa.text("status = 'queued' AND merge_key IS NOT NULL")
_metadata = sa.MetaData()

sa.Table(
    "agents",
    _metadata,
    sa.Column("agent", _NAME, primary_key=True),
    sa.Column("tenant", _NAME, nullable=False),
    sa.Column("definition", _NAME, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("activation_id", sa.Text),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("lineage", sa.Text),
    sa.Index("agents_by_tenant", "tenant", "agent"),
    sa.Index("agents_by_definition", "definition", "agent"),
)

sa.Sequence("runs_seq", metadata=_metadata)

sa.Table(
    "runs",
    _metadata,
    sa.Column("seq", _ROW_ID, primary_key=True, autoincrement=False),
    sa.Column("run_id", _NAME, nullable=False, unique=True),
    sa.Column("tenant", _NAME, nullable=False),
    sa.Column("agent", _NAME, nullable=False),
    sa.Column("trigger", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("status", _NAME, nullable=False),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("finished_at", sa.BigInteger),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("claimed_epoch", sa.BigInteger, nullable=False),
    sa.Column("result", sa.Text),
    sa.Column("rank", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("deadline", sa.BigInteger),
    sa.Column("merge_key", _NAME),
    sa.Column("interrupted_by", _NAME),
    sa.Column("reserves", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("awaits", sa.Text),
    sa.Column("payload", sa.Text),
    sa.Index("runs_active", "agent", "status", "rank", "seq", sqlite_where=_ACTIVE, postgresql_where=_ACTIVE),
    sa.Index("runs_mergeable", "agent", "merge_key", sqlite_where=_MERGEABLE, postgresql_where=_MERGEABLE),
    sa.Index("runs_awaiting", "seq", sqlite_where=_AWAITING, postgresql_where=_AWAITING),
    sa.Index("runs_by_agent", "agent", "seq"),
    sa.Index("runs_by_tenant", "tenant", "seq"),
    sa.Index("runs_by_status", "tenant", "status", "seq"),
)

sa.Table(
    "journal",
    _metadata,
    sa.Column("run_id", _NAME, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("kind", _NAME, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

sa.Table(
    "blobs",
    _metadata,
    sa.Column("hash", _NAME, primary_key=True),
    sa.Column("content", sa.Text, nullable=False),
)

sa.Table(
    "ledger",
    _metadata,
    sa.Column("id", _ROW_ID, primary_key=True),
    sa.Column("tenant", _NAME, nullable=False),
    sa.Column("writer", _NAME, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("record_id", _NAME, nullable=False),
    sa.Column("agent", _NAME, nullable=False),
    sa.Column("run_id", _NAME, nullable=False),
    sa.Column("kind", _NAME, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sa.Column("previous_hash", _NAME, nullable=False),
    sa.Column("hash", _NAME, nullable=False),
    sa.Index("ledger_chain", "tenant", "writer", "position", unique=True),
    sa.Index("ledger_by_time", "tenant", "at", "id"),
    sa.Index("ledger_by_agent", "agent", "at", "id"),
    sa.Index("ledger_by_run", "run_id", "record_id", unique=True),
    sa.Index("ledger_by_kind", "tenant", "kind", "at", "id"),
)

sa.Table(
    "ledger_heads",
    _metadata,
    sa.Column("tenant", _NAME, primary_key=True),
    sa.Column("writer", _NAME, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("hash", _NAME, nullable=False),
)

sa.Table(
    "schedules",
    _metadata,
    sa.Column("schedule_id", _NAME, primary_key=True),
    sa.Column("agent", _NAME, nullable=False),
    sa.Column("kind", _NAME, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("created_by_run", sa.Text),
    sa.Column("status", _NAME, nullable=False),
    sa.Column("next_fire_at", sa.BigInteger),
    sa.Column("paused_until", sa.BigInteger),
    sa.Index(
        "schedules_due",
        "next_fire_at",
        sqlite_where=sa.text("status = 'active'"),
        postgresql_where=sa.text("status = 'active'"),
    ),
    sa.Index("schedules_open", "agent", sqlite_where=_OPEN, postgresql_where=_OPEN),
    sa.Index("schedules_by_agent", "agent", "created_at", "schedule_id"),
)

sa.Table(
    "ticks",
    _metadata,
    sa.Column("firing_id", _NAME, primary_key=True),
    sa.Column("schedule_id", _NAME, nullable=False),
    sa.Column("due_at", sa.BigInteger, nullable=False),
    sa.Column("outcome", _NAME, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("run_id", _NAME),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("last_due_at", sa.BigInteger),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Index("ticks_by_schedule", "schedule_id", "due_at"),
    sa.Index("ticks_by_run", "run_id"),
)

sa.Table(
    "tasks",
    _metadata,
    sa.Column("task_id", _NAME, primary_key=True),
    sa.Column("agent", _NAME, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sa.Index("tasks_by_agent", "agent", "created_at"),
)

sa.Table(
    "approvals",
    _metadata,
    sa.Column("approval_id", _NAME, primary_key=True),
    sa.Column("tenant", _NAME, nullable=False),
    sa.Column("agent", _NAME, nullable=False),
    sa.Column("run_id", _NAME, nullable=False),
    sa.Column("status", _NAME, nullable=False),
    sa.Column("requested_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("decision", sa.Text),
    sa.Column("decided_at", sa.BigInteger),
    sa.Index("approvals_pending", "expires_at", sqlite_where=_PENDING, postgresql_where=_PENDING),
    sa.Index("approvals_by_run", "run_id"),
    sa.Index("approvals_by_agent", "agent", "requested_at"),
    sa.Index("approvals_by_tenant", "tenant", "requested_at"),
    sa.Index("approvals_by_status", "tenant", "status", "requested_at"),
)

sa.Table(
    "webhook_deliveries",
    _metadata,
    sa.Column("delivery_id", _NAME, primary_key=True),
    sa.Column("tenant", _NAME, nullable=False),
    sa.Column("source", _NAME, nullable=False),
    sa.Column("receipt", _NAME, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
    sa.Column("status", _NAME, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("agent", _NAME),
    sa.Column("run_id", _NAME),
    sa.Column("headers", sa.Text, nullable=False),
    sa.Column("whole", sa.Boolean, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("event", sa.Text),
    sa.Column("failures", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index(
        "webhook_deliveries_waiting",
        "agent",
        "received_at",
        sqlite_where=_WAITING_FOR_HEARTBEAT,
        postgresql_where=_WAITING_FOR_HEARTBEAT,
    ),
    sa.Index("webhook_deliveries_by_age", "received_at"),
    sa.Index("webhook_deliveries_by_tenant", "tenant", "received_at"),
    sa.Index("webhook_deliveries_by_source", "tenant", "source", "received_at"),
    sa.Index("webhook_deliveries_by_status", "tenant", "status", "received_at"),
)

sa.Table(
    "callbacks",
    _metadata,
    sa.Column("callback_id", _NAME, primary_key=True),
    sa.Column("tenant", _NAME, nullable=False),
    sa.Column("agent", _NAME, nullable=False),
    sa.Column("run_id", _NAME, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("status", _NAME, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("next_try_at", sa.BigInteger),
    sa.Column("tried_at", sa.BigInteger),
    sa.Column("problem", sa.Text, nullable=False),
    sa.Column("delivered_at", sa.BigInteger),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("changed_by", _NAME, nullable=False),
    sa.Column("host", _NAME, nullable=False, server_default=""),
    sa.Index("callbacks_due", "host", "next_try_at", sqlite_where=_PENDING, postgresql_where=_PENDING),
    sa.Index("callbacks_by_age", "created_at"),
    sa.Index("callbacks_by_run", "run_id"),
    sa.Index("callbacks_by_agent", "agent", "created_at"),
    sa.Index("callbacks_by_tenant", "tenant", "created_at"),
    sa.Index("callbacks_by_status", "tenant", "status", "created_at"),
)

sa.Table(
    "idempotency_keys",
    _metadata,
    sa.Column("key", _NAME, primary_key=True),
    sa.Column("body_hash", sa.Text, nullable=False),
    sa.Column("run_id", _NAME, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Index("idempotency_keys_expiry", "expires_at"),
)

sa.Table(
    "budgets",
    _metadata,
    sa.Column("account", _NAME, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("reserved", sa.BigInteger, nullable=False),
    sa.Column("alerted", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Index("budgets_expiry", "expires_at"),
)

sa.Table(
    "budget_reservations",
    _metadata,
    sa.Column("reservation_id", _NAME, primary_key=True),
    sa.Column("account", _NAME, primary_key=True),
    sa.Column("run_id", _NAME, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Index("budget_reservations_by_run", "run_id"),
)

sa.Table(
    "probes",
    _metadata,
    sa.Column("writer", _NAME, primary_key=True),
    sa.Column("written", sa.BigInteger, nullable=False),
)


def upgrade() -> None:
    """Make all tables, and the triggers that have the database refuse to change, remove or replace records of the ledger.

    These stop mistakes, whoever makes them: a person at a prompt, a script, a faulty version of this package. Who owns the
    database can drop them; what is done then is found by the hash chain.
    """
    _metadata.create_all(op.get_bind())
    if op.get_context().dialect.name == "sqlite":
        for name, body in ON_SQLITE.items():
            op.execute(f"CREATE TRIGGER {name} {body}")
        return
    op.execute(REFUSING)
    for (name, _), body in ON_POSTGRESQL.items():
        op.execute(f"CREATE TRIGGER {name} {body}")


def downgrade() -> None:
    """There is nothing before it."""
    raise NotImplementedError("the first schema cannot be taken back")
