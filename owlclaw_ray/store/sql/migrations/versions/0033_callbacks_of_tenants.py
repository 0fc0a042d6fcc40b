"""Callbacks by tenant: which are due, and where they may go.

Revision ID: 0033
Revises: 0032
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from owlclaw_ray.store.sql.schema import PENDING

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and put the tenant before the host in the index. Without networks of its own a tenant has those of the settings."""
    op.add_column("tenants", sa.Column("callback_networks", sa.Text))
    op.drop_index("callbacks_due", "callbacks")
    columns = ["tenant", "host", "next_try_at"]
    op.create_index("callbacks_due", "callbacks", columns, sqlite_where=PENDING, postgresql_where=PENDING)
