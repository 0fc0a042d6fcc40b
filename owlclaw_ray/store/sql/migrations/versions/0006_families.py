"""Runs that wait for others, and tasks that agents share.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_AWAITING = sa.text("awaits IS NOT NULL")


def upgrade() -> None:
    """No run waits for another yet."""
    op.add_column("runs", sa.Column("awaits", sa.Text()))
    op.create_index("runs_awaiting", "runs", ["seq"], sqlite_where=_AWAITING, postgresql_where=_AWAITING)
    op.create_table(
        "tasks",
        sa.Column("task_id", _NAME, primary_key=True, nullable=False),
        sa.Column("agent", _NAME, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
    )
    op.create_index("tasks_by_agent", "tasks", ["agent", "created_at"])


def downgrade() -> None:
    """Runs that wait for others are taken up as interrupted ones."""
    op.execute("UPDATE runs SET status = 'running' WHERE awaits IS NOT NULL")
    op.drop_table("tasks")
    op.drop_index("runs_awaiting", "runs")
    op.drop_column("runs", "awaits")
