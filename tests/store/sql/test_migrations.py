from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from owlclaw_ray.store.sql.schema import metadata


def differences(connection):
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return compare_metadata(context, metadata)


def partial_indexes(connection):
    if connection.dialect.name == "sqlite":
        found = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '%WHERE%'"))
        return set(found.scalars())
    indexes = [index for table in metadata.tables for index in inspect(connection).get_indexes(table)]
    return {index["name"] for index in indexes if "postgresql_where" in index["dialect_options"]}


async def test_the_migrations_lead_to_the_schema(store):
    assert await store._database.read(differences) == []
    assert await store._database.read(partial_indexes) == {
        "agents_with_open_breakers",
        "approvals_pending",
        "callbacks_due",
        "runs_active",
        "runs_awaiting",
        "runs_mergeable",
        "runs_of_keys",
        "runs_over",
        "runs_over_by_agent",
        "runs_over_by_definition",
        "schedules_due",
        "schedules_open",
        "webhook_deliveries_waiting",
    }
