"""What becomes of tenants that are deleted, the seal of their ledgers, and texts of prompts apart for each tenant.

Revision ID: 0026
Revises: 0025
"""

from __future__ import annotations

import json
from urllib.parse import quote

import sqlalchemy as sa
from alembic import op

from owlclaw_ray.store.sql.ledger_guard import SEALING, SEALING_ON_POSTGRESQL, SEALING_ON_SQLITE
from owlclaw_ray.store.sql.row_security import protection

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_PROMPTS = """
SELECT runs.tenant, journal.data FROM journal JOIN runs ON runs.run_id = journal.run_id
WHERE journal.kind = 'prompt_built' AND runs.tenant <> 'default'
"""
_COPY = """
INSERT INTO blobs (hash, content) SELECT :key, content FROM blobs WHERE hash = :digest ON CONFLICT DO NOTHING
"""


def upgrade() -> None:
    """Add the column, the triggers and a policy, and give every tenant but the default one its own copies of what its prompts name."""
    connection = op.get_bind()
    op.add_column("tenants", sa.Column("deletion", sa.Text))
    if connection.dialect.name == "sqlite":
        for name, body in SEALING_ON_SQLITE.items():
            op.execute(f"CREATE TRIGGER {name} {body}")
    else:
        op.execute(SEALING)
        for (name, _), body in SEALING_ON_POSTGRESQL.items():
            op.execute(f"CREATE TRIGGER {name} {body}")
        for statement in protection("blobs", "hash"):
            op.execute(statement)
    named = set()
    for tenant, data in connection.execute(sa.text(_PROMPTS)):
        prompt = json.loads(data)
        named |= {(tenant, prompt[key]) for key in ("system", "tools") if prompt.get(key)}
    for tenant, digest in sorted(named):
        connection.execute(sa.text(_COPY), {"key": f"{quote(tenant, safe='')}/{digest}", "digest": digest})
