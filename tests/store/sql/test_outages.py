from __future__ import annotations

import asyncio
import resource
import sqlite3
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.store.commands import RunAccepted
from owlclaw_ray.store.queries import JournalOfRun, RunFilter
from owlclaw_ray.store.sql import sql_store
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import AGENT, one, submission


@pytest.fixture
async def sqlite_store(sqlite_url):
    store = await open_store(sqlite_url, writer="keeper")
    yield store
    await store.close()


async def execute(store, statement):
    await store._database.write(lambda connection: connection.execute(text(statement)))


@contextmanager
def no_growth_of(sqlite_url):
    """Let no file of this process become longer than the store's write-ahead log is now, as on a full disk."""
    journal = Path(sqlite_url.removeprefix("sqlite:///") + "-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size if journal.exists() else 0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_commits_nothing_and_passes(sqlite_store):
    [pages] = await sqlite_store._database.read(lambda connection: connection.execute(text("PRAGMA page_count")).one())
    await execute(sqlite_store, f"PRAGMA max_page_count = {pages + 2}")
    batch = [submission("run_1"), submission("run_2", payload="x" * 100_000)]

    with pytest.raises(StoreUnavailableError, match="full"):
        await sqlite_store.apply(batch)

    assert await sqlite_store.read(RunFilter(AGENT.tenant)) == []
    await execute(sqlite_store, "PRAGMA max_page_count = 1000000")
    assert all(isinstance(each, RunAccepted) for each in await sqlite_store.apply(batch))


async def test_a_read_only_database_commits_nothing_and_is_still_read(sqlite_store):
    await one(sqlite_store, submission("run_1"))
    await execute(sqlite_store, "PRAGMA query_only = ON")

    with pytest.raises(StoreUnavailableError, match="readonly"):
        await one(sqlite_store, submission("run_2"))

    assert [run.run_id for run in await sqlite_store.read(RunFilter(AGENT.tenant))] == ["run_1"]


async def test_a_store_that_cannot_be_written_says_so(sqlite_store):
    await execute(sqlite_store, "PRAGMA query_only = ON")

    with pytest.raises(StoreUnavailableError, match=r"cannot be written: .*readonly"):
        await sqlite_store.check_writable()


@pytest.mark.parametrize("probes", [0, 1])
async def test_a_file_that_may_not_grow_is_noticed_and_so_is_its_end(sqlite_store, sqlite_url, monkeypatch, probes):
    monkeypatch.setattr(sql_store, "_WRITABLE_SECONDS", 0)
    for _ in range(probes):
        await sqlite_store.check_writable()
    with no_growth_of(sqlite_url), pytest.raises(StoreUnavailableError, match="cannot be written"):
        await sqlite_store.check_writable()

    await sqlite_store.check_writable()
    assert isinstance(await one(sqlite_store, submission("run_1")), RunAccepted)


async def test_many_who_ask_at_once_cost_one_commit_and_so_does_who_asks_after_a_commit(sqlite_store):
    await asyncio.gather(*(sqlite_store.check_writable() for _ in range(20)))
    await one(sqlite_store, submission("run_1"))
    await sqlite_store.check_writable()

    [written] = await sqlite_store._database.read(
        lambda connection: connection.execute(text("SELECT written FROM probes")).one()
    )
    assert written == 1


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
        await sqlite_store.read(JournalOfRun(AGENT.tenant, "run_1"))


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
    with pytest.raises(StoreUnavailableError, match=r"cannot be written: .*read-only"):
        await store.check_writable()

    await store.close()


async def test_a_cancelled_caller_leaves_the_store_usable(store):
    waiting = asyncio.ensure_future(one(store, submission("run_1")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert isinstance(await one(store, submission("run_1")), RunAccepted)
