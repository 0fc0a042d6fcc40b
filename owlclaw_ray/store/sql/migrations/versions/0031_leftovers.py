"""When texts were stored last, what schedules forgot and since when they are over, and how far removing of old things has come.

Revision ID: 0031
Revises: 0030
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from owlclaw_ray.store.sql.schema import NAME

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, the index and the table. What was there before has no times yet: the first sweep that finds it notes them."""
    op.add_column("blobs", sa.Column("used_at", sa.BigInteger))
    op.create_index("blobs_by_use", "blobs", ["hash", "used_at"])
    op.add_column("schedules", sa.Column("forgotten_until", sa.BigInteger))
    op.add_column("schedules", sa.Column("found_over_at", sa.BigInteger))
    op.create_table(
        "sweeps",
        sa.Column("what", NAME, primary_key=True),
        sa.Column("swept_at", sa.BigInteger, nullable=False),
    )
