"""A PostgreSQL server for clusters to share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import asyncpg
import pytest

from owlclaw_ray.testing.postgres import ORDINARY_USER, PostgresServer, find_binaries


@pytest.fixture(scope="module")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binaries = find_binaries()
    if binaries is None:
        if "CI" in os.environ:  # noqa: TID251
            pytest.fail("CI promises PostgreSQL")
        pytest.skip("needs PostgreSQL's server binaries")
    with PostgresServer(tmp_path_factory.mktemp("postgres") / "pg", binaries) as server:
        asyncio.run(_make_database(server))
        yield server.url("owlclaw", ORDINARY_USER)


async def _make_database(server: PostgresServer) -> None:
    """Make a database whose user is bound by row-level security, as superusers are not."""
    connection = await asyncpg.connect(server.url())
    await connection.execute(f"CREATE DATABASE owlclaw OWNER {ORDINARY_USER}")
    await connection.close()
