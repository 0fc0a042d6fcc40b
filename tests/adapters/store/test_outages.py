from __future__ import annotations

import asyncio
import sqlite3

import pytest
from sqlalchemy import text

from owlclaw_ray.adapters.store.opening import open_store
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ports.store import RunAccepted, RunFilter
from owlclaw_ray.testing.store_contract import AGENT, one, submission


@pytest.fixture
async def sqlite_store(sqlite_url):
    store = await open_store(sqlite_url, writer="keeper")
    yield store
    await store.close()


async def execute(store, statement):
    await store._database.write(lambda connection: connection.execute(text(statement)))


async def test_a_full_disk_commits_nothing_and_passes(sqlite_store):
    [pages] = await sqlite_store._database.read(lambda connection: connection.execute(text("PRAGMA page_count")).one())
    await execute(sqlite_store, f"PRAGMA max_page_count = {pages + 2}")
    batch = [submission("run_1"), submission("run_2", payload="x" * 100_000)]

    with pytest.raises(StoreUnavailableError, match="full"):
        await sqlite_store.apply(batch)

    assert await sqlite_store.runs(RunFilter(AGENT.tenant)) == []
    await execute(sqlite_store, "PRAGMA max_page_count = 1000000")
    assert all(isinstance(each, RunAccepted) for each in await sqlite_store.apply(batch))


async def test_a_read_only_database_commits_nothing_and_is_still_read(sqlite_store):
    await one(sqlite_store, submission("run_1"))
    await execute(sqlite_store, "PRAGMA query_only = ON")

    with pytest.raises(StoreUnavailableError, match="readonly"):
        await one(sqlite_store, submission("run_2"))

    assert [run.run_id for run in await sqlite_store.runs(RunFilter(AGENT.tenant))] == ["run_1"]


async def test_a_database_locked_for_long_is_unavailable(sqlite_store, sqlite_url):
    await execute(sqlite_store, "PRAGMA busy_timeout = 1")
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailableError, match="locked"):
        await one(sqlite_store, submission("run_1"))

    other.close()
    assert isinstance(await one(sqlite_store, submission("run_1")), RunAccepted)


async def test_damaged_tables_are_no_fault_of_the_command(sqlite_store):
    await execute(sqlite_store, "DROP TABLE journal")

    with pytest.raises(StoreUnavailableError, match="no such table"):
        await one(sqlite_store, submission("run_1"))
    with pytest.raises(StoreUnavailableError, match="no such table"):
        await sqlite_store.journal(AGENT.tenant, "run_1")


@pytest.mark.postgres
async def test_lost_connections_are_made_again(postgres_url):
    store, other = [await open_store(postgres_url, writer=f"keeper-{at}") for at in range(2)]
    await one(store, submission("run_1"))
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    await execute(other, kill)

    with pytest.raises(StoreUnavailableError):
        await one(store, submission("run_2"))

    assert isinstance(await one(store, submission("run_2")), RunAccepted)
    await store.close()
    await other.close()


@pytest.mark.postgres
async def test_a_server_that_takes_no_writes_makes_the_store_unavailable(postgres_url):
    store = await open_store(postgres_url, writer="keeper")
    await execute(store, "SET default_transaction_read_only = on")

    with pytest.raises(StoreUnavailableError, match="read-only"):
        await one(store, submission("run_1"))

    await store.close()


async def test_a_cancelled_caller_leaves_the_store_usable(store):
    waiting = asyncio.ensure_future(one(store, submission("run_1")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert isinstance(await one(store, submission("run_1")), RunAccepted)
