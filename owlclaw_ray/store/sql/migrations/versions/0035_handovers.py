"""Which cluster is leaving, and on which node each agent was activated.

Revision ID: 0035
Revises: 0034
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. What an older version activates has no node, or an earlier one: it may be taken over at a change of clusters."""
    op.add_column("cluster_lease", sa.Column("leaving", sa.Text, nullable=False, server_default=""))
    op.add_column("agents", sa.Column("node_id", sa.Text))
