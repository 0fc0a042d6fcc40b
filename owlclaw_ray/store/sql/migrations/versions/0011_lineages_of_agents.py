"""Which agents were started by others, and what these let them use.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import orjson
import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_runs = sa.table("runs", sa.column("seq"), sa.column("agent"), sa.column("trigger"))
_agents = sa.table("agents", sa.column("agent"), sa.column("lineage"))


def upgrade() -> None:
    """Agents that were started already have the lineage of the last run that was asked of them."""
    op.add_column("agents", sa.Column("lineage", sa.Text()))
    connection = op.get_bind()
    started = sa.select(_runs.c.agent, _runs.c.trigger).where(_runs.c.trigger.like('%"lineage":{%'))
    lineages = {}
    for agent, trigger in connection.execute(started.order_by(_runs.c.seq)):
        lineage = orjson.loads(trigger).get("lineage")
        if isinstance(lineage, dict):
            lineages[agent] = orjson.dumps(lineage).decode()
    for agent, lineage in lineages.items():
        connection.execute(_agents.update().where(_agents.c.agent == agent).values(lineage=lineage))


def downgrade() -> None:
    """Only triggers say again which runs were started by others."""
    op.drop_column("agents", "lineage")
