from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.schema import metadata
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.postgres import ORDINARY_USER, PostgresServer, find_binaries
from owlclaw_ray.testing.store_file import create_store

_TABLES = ", ".join(metadata.tables)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    binaries = find_binaries()
    if binaries is None:
        if "CI" in os.environ:  # noqa: TID251 - which machine it is decides whether a missing server fails
            pytest.fail("PostgreSQL's server binaries are missing; install the package postgresql")
        pytest.skip("PostgreSQL's server binaries are not installed")
    # pytest closes the folders above its own to other users whenever a session starts; the server is another user.
    with (
        tempfile.TemporaryDirectory(prefix="owlclaw-") as folder,
        PostgresServer(Path(folder) / "pg", binaries) as server,
    ):
        asyncio.run(_make_database(server))
        yield server


@pytest.fixture
async def postgres_url(postgres_server) -> str:
    """An empty database of a user without privileges: to empty one takes a tenth of the time that making one takes."""
    connection = await asyncpg.connect(postgres_server.url("owlclaw"))
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    await connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    await connection.execute("SET session_replication_role = replica")  # past the triggers that keep the ledger
    await connection.execute(f"TRUNCATE {_TABLES} RESTART IDENTITY")
    await connection.execute("ALTER SEQUENCE runs_seq RESTART")
    await connection.close()
    return postgres_server.url("owlclaw", ORDINARY_USER)


@pytest.fixture
async def sqlite_url(tmp_path) -> str:
    path = tmp_path / "owlclaw.db"
    await asyncio.to_thread(create_store, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_url(request) -> str:
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")


@pytest.fixture
async def store(store_url) -> AsyncIterator[SqlStore]:
    opened = await open_store(store_url, writer="keeper-1")
    yield opened
    await opened.close()


async def _make_database(server: PostgresServer) -> None:
    connection = await asyncpg.connect(server.url())
    await connection.execute(f"CREATE DATABASE owlclaw OWNER {ORDINARY_USER}")
    await connection.close()
    await (await open_store(server.url("owlclaw", ORDINARY_USER), writer="template")).close()
