"""What runs and tool calls came to, by time.

Revision ID: 0028
Revises: 0027
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from owlclaw_ray.store.sql.row_security import protection

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_OF_RUNS = (
    "completed",
    "failed",
    "timeout",
    "terminated",
    "cancelled",
    "skipped",
    "cost",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "queued_ms",
    "running_ms",
)
_OF_CALLS = (
    "calls",
    "failures",
    "running_ms",
    "longest_ms",
    "within_100ms",
    "within_1s",
    "within_10s",
    "within_60s",
    "longer",
)


def _counts(names: tuple[str, ...]) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "usage_of_tenants",
        sa.Column("tenant", _NAME, primary_key=True),
        sa.Column("seconds", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("begins_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("writer", _NAME, primary_key=True),
        *_counts(_OF_RUNS),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_of_tenants_by_age", "usage_of_tenants", ["seconds", "begins_at"])
    op.create_table(
        "usage_of_agents",
        sa.Column("tenant", _NAME, primary_key=True),
        sa.Column("begins_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("agent", _NAME, primary_key=True),
        sa.Column("definition", _NAME, nullable=False),
        *_counts(_OF_RUNS),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_of_agents_by_age", "usage_of_agents", ["begins_at"])
    op.create_table(
        "usage_of_tools",
        sa.Column("tenant", _NAME, primary_key=True),
        sa.Column("begins_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tool", _NAME, primary_key=True),
        sa.Column("writer", _NAME, primary_key=True),
        *_counts(_OF_CALLS),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_of_tools_by_age", "usage_of_tools", ["begins_at"])
    if op.get_bind().dialect.name == "postgresql":
        for table in ("usage_of_tenants", "usage_of_agents", "usage_of_tools"):
            for statement in protection(table, "tenant"):
                op.execute(statement)
