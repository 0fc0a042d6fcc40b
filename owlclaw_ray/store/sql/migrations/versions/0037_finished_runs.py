"""Runs that are over have their indexes on SQLite by when they finished: a list of statuses was built for each row that was written.

Revision ID: 0037
Revises: 0036
"""

from __future__ import annotations

from alembic import op

from owlclaw_ray.store.sql.schema import FINISHED

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_OVER = {"runs_over": "tenant", "runs_over_by_agent": "agent", "runs_over_by_definition": "definition"}


def upgrade() -> None:
    """Replace the indexes. PostgreSQL keeps its own. An older version that goes back to a file of SQLite finds the same, more slowly."""
    if op.get_bind().dialect.name != "sqlite":
        return
    for name, column in _OVER.items():
        op.drop_index(name, "runs")
        op.create_index(name, "runs", [column, "status", "kind", "seq"], sqlite_where=FINISHED)
