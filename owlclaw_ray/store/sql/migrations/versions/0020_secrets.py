"""Secrets of tenants.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "secrets",
        sa.Column("tenant", _NAME, primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("ciphertext", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("rotated_at", sa.BigInteger, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
    )
    op.create_index("secrets_by_age", "secrets", ["rotated_at"])
