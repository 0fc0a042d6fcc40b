"""What agents remember, where it is kept in the database.

Revision ID: 0014
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "memories",
        sa.Column("agent", _NAME, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("change_id", sa.Text, nullable=False),
        sa.Column("documents", sa.Text, nullable=False),
    )
    op.create_table(
        "memory_parts",
        sa.Column("agent", _NAME, primary_key=True),
        sa.Column("document", _NAME, primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
