from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from owlclaw_ray.adapters.store.opening import open_store
from owlclaw_ray.adapters.store.sql_store import SqlStore
from owlclaw_ray.testing.postgres import PostgresServer, find_binaries

_numbers = count(1)


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
        asyncio.run(_execute(server, "CREATE DATABASE template_owlclaw"))
        asyncio.run(_migrate(server.url("template_owlclaw")))
        yield server


@pytest.fixture
async def postgres_url(postgres_server) -> str:
    name = f"test_{next(_numbers)}"
    await _execute(postgres_server, f"CREATE DATABASE {name} TEMPLATE template_owlclaw")
    return postgres_server.url(name)


@pytest.fixture
def sqlite_url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/owlclaw.db"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_url(request) -> str:
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")


@pytest.fixture
async def store(store_url) -> AsyncIterator[SqlStore]:
    opened = await open_store(store_url, writer="keeper-1")
    yield opened
    await opened.close()


async def _execute(server: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.url())
    await connection.execute(statement)
    await connection.close()


async def _migrate(url: str) -> None:
    await (await open_store(url, writer="template")).close()
