"""Approvals: tool calls that wait for a person, and runs that wait with them.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ACTIVE_BEFORE = "status IN ('queued', 'running')"
_ACTIVE = "status IN ('queued', 'running', 'waiting')"
_PENDING = "status = 'pending'"


def upgrade() -> None:
    """No run waits yet."""
    op.drop_index("runs_active", "runs")
    _partial_index("runs_active", "runs", ["agent", "status", "rank", "seq"], _ACTIVE)
    op.create_table(
        "approvals",
        sa.Column("approval_id", _NAME, primary_key=True, nullable=False),
        sa.Column("tenant", _NAME, nullable=False),
        sa.Column("agent", _NAME, nullable=False),
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("status", _NAME, nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text()),
        sa.Column("decided_at", sa.BigInteger()),
    )
    _partial_index("approvals_pending", "approvals", ["expires_at"], _PENDING)
    op.create_index("approvals_by_run", "approvals", ["run_id"])
    op.create_index("approvals_by_agent", "approvals", ["agent", "requested_at"])
    op.create_index("approvals_by_tenant", "approvals", ["tenant", "requested_at"])
    op.create_index("approvals_by_status", "approvals", ["tenant", "status", "requested_at"])


def downgrade() -> None:
    """Runs that wait are taken up as interrupted ones."""
    op.execute("UPDATE runs SET status = 'running' WHERE status = 'waiting'")
    op.drop_table("approvals")
    op.drop_index("runs_active", "runs")
    _partial_index("runs_active", "runs", ["agent", "status", "rank", "seq"], _ACTIVE_BEFORE)


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
