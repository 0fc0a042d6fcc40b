"""The ledger is append-only: the database itself refuses to change, remove or replace records, and to turn heads back.

Triggers stop mistakes, whoever makes them: a person at a prompt, a script, a faulty version of this package. Who owns the
database can drop them; what is done then is found by the hash chain.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

from owlclaw_ray.store.sql.ledger_guard import ON_POSTGRESQL, ON_SQLITE, REFUSING

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Records that are there stay as they are."""
    if op.get_context().dialect.name == "sqlite":
        for name, body in ON_SQLITE.items():
            op.execute(f"CREATE TRIGGER {name} {body}")
        return
    op.execute(REFUSING)
    for (name, _), body in ON_POSTGRESQL.items():
        op.execute(f"CREATE TRIGGER {name} {body}")


def downgrade() -> None:
    """Records can be changed and removed again."""
    if op.get_context().dialect.name == "sqlite":
        for name in ON_SQLITE:
            op.execute(f"DROP TRIGGER {name}")
        return
    for name, table in ON_POSTGRESQL:
        op.execute(f"DROP TRIGGER {name} ON {table}")
    op.execute("DROP FUNCTION owlclaw_refuse_ledger_change()")
