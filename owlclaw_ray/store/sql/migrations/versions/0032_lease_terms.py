"""Which process of a Directory holds the lease, and under which term.

Revision ID: 0032
Revises: 0031
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. A lease that an older version holds has no Directory and no term: the first one of its cluster takes it over."""
    op.add_column("cluster_lease", sa.Column("directory", sa.Text, nullable=False, server_default=""))
    op.add_column("cluster_lease", sa.Column("term", sa.BigInteger, nullable=False, server_default="0"))
