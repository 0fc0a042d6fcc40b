"""Webhooks that came in, and what is to be told of runs' ends.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_PENDING = sa.text("status = 'pending'")


def upgrade() -> None:
    """Nothing has come in, and nobody is to be told of anything."""
    op.create_table(
        "webhook_deliveries",
        sa.Column("delivery_id", _NAME, primary_key=True, nullable=False),
        sa.Column("tenant", _NAME, nullable=False),
        sa.Column("source", _NAME, nullable=False),
        sa.Column("receipt", _NAME, nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("status", _NAME, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("agent", _NAME),
        sa.Column("run_id", _NAME),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("whole", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_index("webhook_deliveries_by_tenant", "webhook_deliveries", ["tenant", "received_at"])
    op.create_index("webhook_deliveries_by_source", "webhook_deliveries", ["tenant", "source", "received_at"])
    op.create_index("webhook_deliveries_by_status", "webhook_deliveries", ["tenant", "status", "received_at"])
    op.create_table(
        "callbacks",
        sa.Column("callback_id", _NAME, primary_key=True, nullable=False),
        sa.Column("tenant", _NAME, nullable=False),
        sa.Column("agent", _NAME, nullable=False),
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("status", _NAME, nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("next_try_at", sa.BigInteger()),
        sa.Column("tried_at", sa.BigInteger()),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("delivered_at", sa.BigInteger()),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("changed_by", _NAME, nullable=False),
    )
    op.create_index("callbacks_due", "callbacks", ["next_try_at"], sqlite_where=_PENDING, postgresql_where=_PENDING)
    op.create_index("callbacks_by_run", "callbacks", ["run_id"])
    op.create_index("callbacks_by_agent", "callbacks", ["agent", "created_at"])
    op.create_index("callbacks_by_tenant", "callbacks", ["tenant", "created_at"])
    op.create_index("callbacks_by_status", "callbacks", ["tenant", "status", "created_at"])


def downgrade() -> None:
    """What came in, and what is still to be told, is forgotten."""
    op.drop_table("callbacks")
    op.drop_table("webhook_deliveries")
