"""The payload of a run beside its trigger, at the end of the row: listings read over it.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Runs that are there keep their payload within the trigger, where it is still read."""
    op.add_column("runs", sa.Column("payload", sa.Text()))


def downgrade() -> None:
    """Payloads return into their triggers."""
    op.execute(
        "UPDATE runs SET trigger = '{\"payload\":' || payload || ',' || substr(trigger, 2) WHERE payload IS NOT NULL"
    )
    op.drop_column("runs", "payload")
