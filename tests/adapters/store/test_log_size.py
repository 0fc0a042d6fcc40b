"""How large the write-ahead log of a SQLite store becomes."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest
from sqlalchemy import text

from owlclaw_ray.adapters.store.databases import SqliteDatabase
from owlclaw_ray.adapters.store.locations import locate
from owlclaw_ray.adapters.store.sqlite_files import KEPT_LOG_BYTES, MOST_LOG_BYTES

A_COMMIT = 500_000
ROWS = A_COMMIT // 1_000


@pytest.fixture
async def database(tmp_path):
    database = SqliteDatabase(locate(str(tmp_path / "some.db")).url)
    await database.write(
        lambda connection: connection.exec_driver_sql("CREATE TABLE t (id INTEGER PRIMARY KEY, x BLOB)")
    )
    yield database
    await database.close()


@pytest.fixture
def log(tmp_path):
    return tmp_path / "some.db-wal"


async def fill(database, first=0):
    """Write half a megabyte, over what is there."""
    insert = text("INSERT OR REPLACE INTO t VALUES (:id, randomblob(1000))")
    rows = [{"id": first + number} for number in range(ROWS)]
    await database.write(lambda connection: connection.execute(insert, rows))


async def test_the_log_stays_small_beside_readers_that_always_overlap(database, log):
    written = asyncio.Event()

    async def read():
        while not written.is_set():
            await database.read(lambda connection: connection.exec_driver_sql("SELECT sum(length(x)) FROM t").one())

    readers = [asyncio.create_task(read()) for _ in range(4)]
    largest = 0
    for _ in range(60):
        await fill(database)
        largest = max(largest, log.stat().st_size)
    written.set()
    await asyncio.gather(*readers)

    assert largest < MOST_LOG_BYTES + KEPT_LOG_BYTES


async def test_the_log_is_emptied_once_a_reader_that_held_it_is_through(database, log, tmp_path):
    await fill(database)
    holder = sqlite3.connect(tmp_path / "some.db", isolation_level=None)
    holder.execute("BEGIN")
    holder.execute("SELECT count(*) FROM t").fetchall()
    for _ in range(30):
        await fill(database)
    assert log.stat().st_size > MOST_LOG_BYTES, "a reader keeps what it reads"

    holder.close()
    for _ in range(2 + KEPT_LOG_BYTES // A_COMMIT):
        await fill(database)

    assert log.stat().st_size <= KEPT_LOG_BYTES + 2 * A_COMMIT


async def test_a_full_disk_has_the_log_emptied_and_the_transaction_tried_again(database, log):
    await fill(database)
    limits = []

    def grow(connection):
        """Fail as on a full disk until the log is emptied."""
        limits.append(log.stat().st_size)
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        most = pages if limits[-1] > 0 else 1_000_000
        connection.exec_driver_sql(f"PRAGMA max_page_count = {most}")
        connection.exec_driver_sql("INSERT INTO t SELECT id + 10000, randomblob(5000) FROM t")

    await database.write(grow)

    assert limits[0] > 0
    assert limits[1] == 0
