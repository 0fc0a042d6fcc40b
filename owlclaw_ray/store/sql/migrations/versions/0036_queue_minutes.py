"""How long queues were in each minute, and which agents have a circuit breaker that is not closed.

Revision ID: 0036
Revises: 0035
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from owlclaw_ray.store.sql.schema import EXTRACTS, NAME, OPEN_BREAKER

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, the column, which the database keeps up by itself, and its index."""
    op.create_table(
        "queue_minutes",
        sa.Column("begins_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("queue", NAME, primary_key=True),
        sa.Column("least", sa.BigInteger, nullable=False),
        sa.Column("most", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    dialect = op.get_bind().dialect.name
    kept = "VIRTUAL" if dialect == "sqlite" else "STORED"
    open_breaker = EXTRACTS[dialect]["has_open_breaker"]
    op.execute(f"ALTER TABLE agents ADD COLUMN has_open_breaker BOOLEAN GENERATED ALWAYS AS ({open_breaker}) {kept}")
    name, columns = "agents_with_open_breakers", ["tenant", "agent"]
    op.create_index(name, "agents", columns, sqlite_where=OPEN_BREAKER, postgresql_where=OPEN_BREAKER)
