"""The first schema: agents, runs, journal, blobs, ledger, schedules, ticks, Idempotency-Keys.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TABLES = (
    "idempotency_keys",
    "ticks",
    "schedules",
    "ledger_heads",
    "ledger",
    "blobs",
    "journal",
    "runs",
    "agents",
)


def upgrade() -> None:
    """Make all tables."""
    _agents_and_runs()
    _journal()
    _ledger()
    _schedules()
    op.create_table(
        "idempotency_keys",
        _name("key", primary_key=True),
        _required("body_hash", sa.Text()),
        _name("run_id"),
        _required("expires_at", sa.BigInteger()),
    )
    op.create_index("idempotency_keys_expiry", "idempotency_keys", ["expires_at"])


def downgrade() -> None:
    """Drop all tables."""
    for table in _TABLES:
        op.drop_table(table)
    if op.get_context().dialect.supports_sequences:
        op.execute(sa.schema.DropSequence(sa.Sequence("runs_seq")))


def _agents_and_runs() -> None:
    op.create_table(
        "agents",
        _name("agent", primary_key=True),
        _name("tenant"),
        _name("definition"),
        _required("epoch", sa.BigInteger()),
        sa.Column("activation_id", sa.Text()),
        _required("state", sa.Text()),
        _required("created_at", sa.BigInteger()),
    )
    op.create_index("agents_by_tenant", "agents", ["tenant", "agent"])
    if op.get_context().dialect.supports_sequences:
        op.execute(sa.schema.CreateSequence(sa.Sequence("runs_seq")))
    op.create_table(
        "runs",
        sa.Column("seq", _ROW_ID, primary_key=True, autoincrement=False),
        _name("run_id", unique=True),
        _name("tenant"),
        _name("agent"),
        _required("trigger", sa.Text()),
        _required("created_at", sa.BigInteger()),
        _name("status"),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger()),
        _required("cancel_requested", sa.Boolean()),
        _required("claimed_epoch", sa.BigInteger()),
        sa.Column("result", sa.Text()),
    )
    _partial_index("runs_active", "runs", ["agent", "status", "seq"], "status IN ('queued', 'running')")
    op.create_index("runs_by_agent", "runs", ["agent", "seq"])
    op.create_index("runs_by_tenant", "runs", ["tenant", "seq"])
    op.create_index("runs_by_status", "runs", ["tenant", "status", "seq"])


def _journal() -> None:
    op.create_table(
        "journal",
        _name("run_id", primary_key=True),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        _name("kind"),
        _required("at", sa.BigInteger()),
        _required("data", sa.Text()),
        sqlite_with_rowid=False,
    )
    op.create_table("blobs", _name("hash", primary_key=True), _required("content", sa.Text()))


def _ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("id", _ROW_ID, primary_key=True),
        _name("tenant"),
        _name("writer"),
        _required("position", sa.BigInteger()),
        _name("record_id"),
        _name("agent"),
        _name("run_id"),
        _name("kind"),
        _required("at", sa.BigInteger()),
        _required("data", sa.Text()),
        _name("previous_hash"),
        _name("hash"),
    )
    op.create_index("ledger_chain", "ledger", ["tenant", "writer", "position"], unique=True)
    op.create_index("ledger_by_time", "ledger", ["tenant", "at", "id"])
    op.create_index("ledger_by_agent", "ledger", ["agent", "at", "id"])
    op.create_index("ledger_by_run", "ledger", ["run_id", "record_id"], unique=True)
    op.create_index("ledger_by_kind", "ledger", ["tenant", "kind", "at", "id"])
    op.create_table(
        "ledger_heads",
        _name("tenant", primary_key=True),
        _name("writer", primary_key=True),
        _required("position", sa.BigInteger()),
        _name("hash"),
    )


def _schedules() -> None:
    op.create_table(
        "schedules",
        _name("schedule_id", primary_key=True),
        _name("agent"),
        _name("kind"),
        _required("rule", sa.Text()),
        _required("created_at", sa.BigInteger()),
        sa.Column("created_by_run", sa.Text()),
        _name("status"),
        sa.Column("next_fire_at", sa.BigInteger()),
    )
    _partial_index("schedules_due", "schedules", ["next_fire_at"], "status = 'active'")
    op.create_index("schedules_by_agent", "schedules", ["agent", "status", "created_at"])
    op.create_table(
        "ticks",
        _name("firing_id", primary_key=True),
        _name("schedule_id"),
        _required("due_at", sa.BigInteger()),
        _name("outcome"),
        _required("at", sa.BigInteger()),
        sa.Column("run_id", _NAME),
        _required("reason", sa.Text()),
        sa.Column("last_due_at", sa.BigInteger()),
        _required("count", sa.BigInteger()),
    )
    op.create_index("ticks_by_schedule", "ticks", ["schedule_id", "due_at"])
    op.create_index("ticks_by_run", "ticks", ["run_id"])


def _name(name: str, **constraints: Any) -> sa.Column[str]:
    return sa.Column(name, _NAME, nullable=False, **constraints)


def _required(name: str, type_: Any) -> sa.Column[Any]:
    return sa.Column(name, type_, nullable=False)


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
