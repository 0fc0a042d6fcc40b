"""What keys may have, and the runs that count for them.

Revision ID: 0034
Revises: 0033
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from owlclaw_ray.store.sql.schema import OF_KEYS

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, and the index of runs that count for keys. Keys of before have no such quotas, so none of their runs counts."""
    for quota in ("open_runs", "running_runs", "model_tokens_a_minute"):
        op.add_column("access_keys", sa.Column(quota, sa.BigInteger))
    op.add_column("runs", sa.Column("counts_for", sa.Text))
    columns = ["tenant", "status", "seq"]
    op.create_index("runs_of_keys", "runs", columns, sqlite_where=OF_KEYS, postgresql_where=OF_KEYS)
