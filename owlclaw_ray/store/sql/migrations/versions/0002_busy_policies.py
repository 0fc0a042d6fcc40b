"""Busy policies: the queue's order, deadlines, merging and interrupting; a table to try writing on.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_ACTIVE = "status IN ('queued', 'running')"
_MERGEABLE = "status = 'queued' AND merge_key IS NOT NULL"


def upgrade() -> None:
    """Runs that are there already keep their order: they all have rank 0."""
    op.add_column("runs", sa.Column("rank", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("deadline", sa.BigInteger()))
    op.add_column("runs", sa.Column("merge_key", _NAME))
    op.add_column("runs", sa.Column("interrupted_by", _NAME))
    op.drop_index("runs_active", "runs")
    _partial_index("runs_active", ["agent", "status", "rank", "seq"], _ACTIVE)
    _partial_index("runs_mergeable", ["agent", "merge_key"], _MERGEABLE)
    op.create_table(
        "probes",
        sa.Column("writer", _NAME, primary_key=True, nullable=False),
        sa.Column("written", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    """Runs that wait are executed in the order of their acceptance again."""
    op.drop_table("probes")
    op.drop_index("runs_mergeable", "runs")
    op.drop_index("runs_active", "runs")
    _partial_index("runs_active", ["agent", "status", "seq"], _ACTIVE)
    for name in ("interrupted_by", "merge_key", "deadline", "rank"):
        op.drop_column("runs", name)


def _partial_index(name: str, columns: list[str], where: str) -> None:
    op.create_index(name, "runs", columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
