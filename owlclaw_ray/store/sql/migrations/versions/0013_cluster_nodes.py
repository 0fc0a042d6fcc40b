"""The nodes of the clusters that use a database, and what each may do.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "cluster_nodes",
        sa.Column("node_id", _NAME, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("beats", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
    )
