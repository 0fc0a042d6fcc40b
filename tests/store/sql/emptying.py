"""Emptying a database between two examples, past the triggers that keep its ledger."""

from __future__ import annotations

from sqlalchemy import text

from owlclaw_ray.store.sql.schema import metadata


def emptied(connection):
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL session_replication_role = replica"))
    else:
        for trigger in (
            connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
        ):
            connection.execute(text(f"DROP TRIGGER {trigger}"))
    for table in metadata.sorted_tables:
        connection.execute(table.delete())
