"""What tenants may have and start, and what keys may start.

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("tenants", sa.Column("quotas", sa.Text, nullable=False, server_default="{}"))
    op.add_column("access_keys", sa.Column("starts_a_minute", sa.BigInteger))
