"""Who allowed a call that several people must allow.

Revision ID: 0022
Revises: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("approvals", sa.Column("allowed_by", sa.Text))
