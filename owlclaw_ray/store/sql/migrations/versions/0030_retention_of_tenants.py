"""For how long what a tenant has is kept.

Revision ID: 0030
Revises: 0028
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Without anything of its own a tenant's things are kept as the settings say."""
    op.add_column("tenants", sa.Column("retention", sa.Text, nullable=False, server_default="{}"))
