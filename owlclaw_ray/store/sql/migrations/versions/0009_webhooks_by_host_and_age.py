"""Callbacks by host, deliveries that wait for heartbeats, agents by definition, webhooks by age.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

from urllib.parse import urlsplit

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_PENDING = sa.text("status = 'pending'")
_WAITING = sa.text("status = 'waiting'")
_OPEN = sa.text("SELECT callback_id, url FROM callbacks WHERE status IN ('pending', 'waiting')")
_NAME_HOST = sa.text("UPDATE callbacks SET host = :host WHERE callback_id = :callback_id")


def upgrade() -> None:
    """Callbacks that are still to be told get their hosts."""
    op.add_column("callbacks", sa.Column("host", _NAME, nullable=False, server_default=""))
    connection = op.get_bind()
    for callback_id, url in connection.execute(_OPEN).all():
        connection.execute(_NAME_HOST, {"callback_id": callback_id, "host": urlsplit(url).netloc.lower()})
    op.drop_index("callbacks_due", "callbacks")
    op.create_index(
        "callbacks_due", "callbacks", ["host", "next_try_at"], sqlite_where=_PENDING, postgresql_where=_PENDING
    )
    op.create_index("callbacks_by_age", "callbacks", ["created_at"])
    op.add_column("webhook_deliveries", sa.Column("event", sa.Text()))
    op.add_column("webhook_deliveries", sa.Column("failures", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index(
        "webhook_deliveries_waiting",
        "webhook_deliveries",
        ["agent", "received_at"],
        sqlite_where=_WAITING,
        postgresql_where=_WAITING,
    )
    op.create_index("webhook_deliveries_by_age", "webhook_deliveries", ["received_at"])
    op.create_index("agents_by_definition", "agents", ["definition", "agent"])


def downgrade() -> None:
    """What waits for a heartbeat can be mapped again."""
    op.drop_index("agents_by_definition", "agents")
    op.drop_index("webhook_deliveries_by_age", "webhook_deliveries")
    op.drop_index("webhook_deliveries_waiting", "webhook_deliveries")
    op.execute("UPDATE webhook_deliveries SET status = 'unmapped' WHERE status = 'waiting'")
    op.execute("UPDATE webhook_deliveries SET status = 'triggered' WHERE status = 'handled'")
    op.drop_column("webhook_deliveries", "failures")
    op.drop_column("webhook_deliveries", "event")
    op.drop_index("callbacks_by_age", "callbacks")
    op.drop_index("callbacks_due", "callbacks")
    op.create_index("callbacks_due", "callbacks", ["next_try_at"], sqlite_where=_PENDING, postgresql_where=_PENDING)
    op.drop_column("callbacks", "host")
