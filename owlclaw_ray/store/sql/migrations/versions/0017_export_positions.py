"""Up to where traces are exported.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "export_positions",
        sa.Column("tenant", _NAME, primary_key=True),
        sa.Column("writer", _NAME, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
    )
