"""Schedules that are paused, and schedules listed in pages.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_OPEN = sa.text("status IN ('active', 'paused')")


def upgrade() -> None:
    """No schedule was ever paused."""
    op.add_column("schedules", sa.Column("paused_until", sa.BigInteger()))
    op.drop_index("schedules_by_agent", "schedules")
    op.create_index("schedules_by_agent", "schedules", ["agent", "created_at", "schedule_id"])
    op.create_index("schedules_open", "schedules", ["agent"], sqlite_where=_OPEN, postgresql_where=_OPEN)


def downgrade() -> None:
    """Paused schedules are cancelled rather than set going, and those that older versions cannot read are no more."""
    op.execute("UPDATE schedules SET status = 'cancelled', next_fire_at = NULL WHERE status = 'paused'")
    op.execute("DELETE FROM schedules WHERE kind IN ('interval', 'heartbeat')")
    op.drop_index("schedules_open", "schedules")
    op.drop_index("schedules_by_agent", "schedules")
    op.create_index("schedules_by_agent", "schedules", ["agent", "status", "created_at"])
    op.drop_column("schedules", "paused_until")
