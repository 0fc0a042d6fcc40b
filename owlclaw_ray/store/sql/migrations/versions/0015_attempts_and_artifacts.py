"""Which attempts at tool calls have begun, and artifacts, where no folder is shared.

Revision ID: 0015
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "attempts",
        sa.Column("attempt", _NAME, primary_key=True),
        sa.Column("named_at", sa.BigInteger, nullable=False),
        sa.Column("begun", sa.Boolean, nullable=False),
        sa.Index("attempts_by_age", "named_at"),
    )
    op.create_table(
        "artifacts",
        sa.Column("agent", _NAME, primary_key=True),
        sa.Column("artifact_id", _NAME, primary_key=True),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("parts", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("stored_at", sa.BigInteger, nullable=False),
        sa.Index("artifacts_by_agent", "agent", "stored_at"),
    )
    op.create_table(
        "artifact_parts",
        sa.Column("agent", _NAME, primary_key=True),
        sa.Column("artifact_id", _NAME, primary_key=True),
        sa.Column("part", sa.BigInteger, primary_key=True),
        sa.Column("stored_at", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Index("artifact_parts_by_age", "stored_at"),
    )
