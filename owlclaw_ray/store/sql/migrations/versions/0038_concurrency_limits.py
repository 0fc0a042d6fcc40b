"""What model gateways learned of their providers.

Revision ID: 0038
Revises: 0037
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from owlclaw_ray.store.sql.schema import NAME

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "concurrency_limits",
        sa.Column("asked", NAME, primary_key=True),
        sa.Column("node_id", NAME, primary_key=True),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("threshold", sa.BigInteger),
        sa.Column("noted_at", sa.BigInteger, nullable=False),
    )
