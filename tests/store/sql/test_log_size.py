"""How large the write-ahead log of a SQLite store becomes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest
from sqlalchemy import text

from owlclaw_ray.store.sql.databases import SqliteDatabase
from owlclaw_ray.store.sql.locations import locate
from owlclaw_ray.store.sql.sqlite_files import KEPT_LOG_BYTES, MAX_LOG_BYTES

A_COMMIT = 500_000
WRITTEN = 80_000_000
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


class Relay:
    """Two readers of which one always reads: each lets go only when the other has begun."""

    def __init__(self, path):
        self._path, self._stopped = path, False
        self._begun = [threading.Semaphore(0), threading.Semaphore(0)]
        self._threads = [threading.Thread(target=self._read, args=(number,)) for number in (0, 1)]
        for thread in self._threads:
            thread.start()

    def _read(self, number):
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=60)
        while not self._stopped:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM t").fetchall()
            self._begun[number].release()
            self._begun[1 - number].acquire()
            connection.execute("COMMIT")
        self._begun[number].release()
        connection.close()

    def stop(self):
        self._stopped = True
        for thread in self._threads:
            thread.join()


async def test_the_log_stays_small_beside_readers_that_always_overlap(database, log, tmp_path):
    relay = Relay(tmp_path / "some.db")
    largest = 0
    for _ in range(WRITTEN // A_COMMIT):
        await fill(database)
        largest = max(largest, log.stat().st_size)
    await asyncio.to_thread(relay.stop)

    assert largest < WRITTEN / 2


async def test_the_log_is_emptied_once_a_reader_that_held_it_is_through(database, log, tmp_path):
    await fill(database)
    holder = sqlite3.connect(tmp_path / "some.db", isolation_level=None)
    holder.execute("BEGIN")
    holder.execute("SELECT count(*) FROM t").fetchall()
    for _ in range(30):
        await fill(database)
    assert log.stat().st_size > MAX_LOG_BYTES, "a reader keeps what it reads"

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
