"""Which attempts at tool calls have begun.

Revision ID: 0015
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0012"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "attempts",
        sa.Column("attempt", _NAME, primary_key=True),
        sa.Column("named_at", sa.BigInteger, nullable=False),
        sa.Column("begun", sa.Boolean, nullable=False),
        sa.Index("attempts_by_age", "named_at"),
    )
