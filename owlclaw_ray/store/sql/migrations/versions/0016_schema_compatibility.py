"""Which older schemas' runtimes may still work on a database of this one.

Revision ID: 0016
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table. Its row is written with each migration."""
    op.create_table(
        "schema_compatibility",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("oldest", sa.Text, nullable=False),
        sa.Column("migrated_by", sa.Text, nullable=False),
    )
