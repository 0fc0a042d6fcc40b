"""A migration beside a cluster of an older version, which it would exclude: it runs, it is gone, or it comes back."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from sqlalchemy import text

from owlclaw_ray.errors import ConfigurationError, StoreUnavailableError
from owlclaw_ray.placement.node_row import NodeRow
from owlclaw_ray.store.commands import HoldLease, HoldNode, JoinNode, LeaseHeld, NodeExcluded, NodeHeld, NodeLost
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS
from owlclaw_ray.store.sql import cluster_nodes, migrator
from owlclaw_ray.store.sql.codec import dump
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.ledger_guard import SEALING_ON_POSTGRESQL, SEALING_ON_SQLITE
from owlclaw_ray.store.sql.migrations import HEAD, OLDEST_RELEASE
from owlclaw_ray.store.sql.migrator import revision_of
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.store_commands import one

OLD = "0015"
SAYS = {"version": "0.0.9", "schema": OLD, "since": "2026-11-20T10:00:00+00:00"}
JOIN = JoinNode("n1", "east", "alpha", SAYS)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request, tmp_path):
    """A database of its own, for its schema is changed."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/owlclaw.db"
        return
    server = request.getfixturevalue("postgres_server")
    asyncio.run(administer(server, "CREATE DATABASE older"))
    yield server.url("older")
    asyncio.run(administer(server, "DROP DATABASE older"))


async def administer(server, statement):
    connection = await asyncpg.connect(server.url())
    await connection.execute(statement)
    await connection.close()


@pytest.fixture
async def old(url, monkeypatch):
    """The store of a cluster of an older version, beside which a version begins that takes its own schema only."""
    store = await open_store(url, writer="keeper-east", cluster="east")
    await store._database.write(back_to, OLD)
    monkeypatch.setattr(migrator, "OLDEST", HEAD)
    yield store
    await store.close()


def back_to(connection, revision):
    connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    if connection.dialect.name == "sqlite":
        for name in SEALING_ON_SQLITE:
            connection.execute(text(f"DROP TRIGGER {name}"))
    else:
        for name, table in SEALING_ON_POSTGRESQL:
            connection.execute(text(f"DROP TRIGGER {name} ON {table}"))
    gone = ("schema_compatibility", "export_positions", "access_keys", "tenants", "secrets", "focus_terms", "sweeps")
    for table in (
        *gone,
        "usage_of_tenants",
        "usage_of_agents",
        "usage_of_tools",
        "queue_minutes",
        "concurrency_limits",
    ):
        connection.execute(text(f"DROP TABLE {table}"))
    connection.execute(text("ALTER TABLE approvals DROP COLUMN allowed_by"))
    of_runs = ("runs_over", "runs_over_by_agent", "runs_over_by_definition", "runs_by_definition", "runs_of_keys")
    for index in (*of_runs, "blobs_by_use", "agents_with_open_breakers"):
        connection.execute(text(f"DROP INDEX {index}"))
    columns = {
        "runs": ("kind", "definition", "counts_for"),
        "blobs": ("used_at",),
        "schedules": ("forgotten_until", "found_over_at"),
        "cluster_lease": ("directory", "term", "leaving"),
        "agents": ("node_id", "has_open_breaker"),
    }
    for table, added in columns.items():
        for column in added:
            connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))


async def no_hosts():
    """Return when no host is left: there never was one."""


async def join_as_older_version(store, join=JOIN):
    """Join as a version does that does not look whether the database takes it."""
    values = (join.node_id, join.cluster, join.machine, dump(join.details))

    def insert(connection):
        columns = "node_id, cluster, machine, details, generation, beats, state"
        connection.execute(
            text(f"INSERT INTO cluster_nodes ({columns}) VALUES (:a, :b, :c, :d, 1, 0, 'active')"),
            dict(zip("abcd", values, strict=True)),
        )

    await store._database.write(insert)


async def hold_as_older_version(store, cluster):
    """Renew the lease, or take it from whoever has it, as a version does that knows of no Directories."""

    def hold(connection):
        connection.execute(
            text(
                "INSERT INTO cluster_lease (id, cluster, generation, beats) VALUES (1, '', 0, 0) ON CONFLICT DO NOTHING"
            )
        )
        held = "UPDATE cluster_lease SET beats = beats + 1 WHERE cluster = :cluster"
        taken = "UPDATE cluster_lease SET cluster = :cluster, generation = generation + 1, beats = 0"
        for statement in (taken + " WHERE cluster <> :cluster", held):
            connection.execute(text(statement), {"cluster": cluster})

    await store._database.write(hold)


async def start(url, clock, renew=None):
    """Open the store as the new version, while its clock goes on and `renew` is called each second; return it, or raise."""
    opening = asyncio.create_task(open_store(url, writer="keeper-west", cluster="west", clock=clock))
    for _ in range(int(EXPIRE_SECONDS) + 2):
        sleeping = asyncio.create_task(clock.wait_for_sleepers())
        await asyncio.wait([opening, sleeping], return_when=asyncio.FIRST_COMPLETED)
        sleeping.cancel()
        if opening.done():
            break
        if renew is not None:
            await renew()
        await clock.advance(1.0)
    return await opening


async def test_a_version_does_not_migrate_beside_a_node_of_a_version_that_it_would_exclude(url, old):
    await join_as_older_version(old)

    with pytest.raises(ConfigurationError) as refused:
        await start(url, ManualClock(), lambda: one(old, HoldNode("n1", 1)))

    said = str(refused.value)
    assert "cluster east (owlclaw-ray 0.0.9, schema 0015; on alpha; since 2026-11-20T10:00:00+00:00)" in said
    assert f"migration to schema {HEAD} would exclude" in said
    assert f"owlclaw down there) and start again; or have it upgraded to owlclaw-ray {OLDEST_RELEASE} first" in said
    assert await old._database.read(revision_of) == OLD


async def test_a_version_does_not_migrate_beside_the_holder_of_the_lease_that_it_would_exclude(url, old):
    """It may be of a version whose nodes have no rows, and which does not name its schema."""
    await hold_as_older_version(old, "east")

    with pytest.raises(
        ConfigurationError, match=r"east \(a version that does not name its schema; it runs the agents\)"
    ):
        await start(url, ManualClock(), lambda: hold_as_older_version(old, "east"))

    assert await old._database.read(revision_of) == OLD


async def test_a_cluster_that_begins_while_the_other_is_watched_is_not_excluded_either(url, old):
    await join_as_older_version(old)
    clock = ManualClock()
    north = JoinNode("n2", "north", "beta", SAYS)

    async def begin():
        if clock.monotonic() == EXPIRE_SECONDS - 1:
            await join_as_older_version(old, north)

    with pytest.raises(ConfigurationError, match="cluster north"):
        await start(url, clock, begin)

    assert await old._database.read(revision_of) == OLD


async def test_a_cluster_whose_rows_stand_still_is_gone_and_its_lease_is_free(url, old):
    await join_as_older_version(old)
    await hold_as_older_version(old, "east")
    clock = ManualClock()

    new = await start(url, clock)

    assert clock.monotonic() >= EXPIRE_SECONDS
    assert await new._database.read(revision_of) == HEAD
    assert isinstance(await one(new, HoldLease("west", "dir-west", 1)), LeaseHeld)
    await new.close()


async def test_a_cluster_within_the_window_is_no_reason_to_wait(url, old, monkeypatch):
    await join_as_older_version(old)
    await hold_as_older_version(old, "east")
    monkeypatch.setattr(migrator, "OLDEST", OLD)
    clock = ManualClock()

    await (await start(url, clock)).close()

    assert clock.monotonic() == 0
    assert isinstance(await one(old, HoldNode("n1", 1)), NodeHeld)


async def test_a_node_that_comes_back_after_the_migration_that_excludes_it_does_not_join(url, old, monkeypatch):
    row = NodeRow(old, JOIN, ManualClock(), joined=old.serve_node, lost=no_hosts)
    await join_as_older_version(old)
    await (await start(url, ManualClock())).close()
    monkeypatch.setattr(cluster_nodes, "HEAD", OLD)

    assert await one(old, HoldNode("n1", 1)) == NodeLost()
    assert await one(old, JOIN) == NodeExcluded(HEAD)
    with pytest.raises(StoreUnavailableError, match=f"takes runtimes of schema {HEAD} or newer: stop this cluster"):
        await row.join()
