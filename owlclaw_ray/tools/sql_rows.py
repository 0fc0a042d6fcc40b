"""Rows of other databases than the store, over SQLAlchemy: SQLite, and PostgreSQL by asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from owlclaw_ray.domain.json import JsonObject

_DRIVERS = {"postgres": "postgresql+asyncpg", "postgresql": "postgresql+asyncpg"}


def read_rows(url: str, query: str, limit: int) -> Sequence[JsonObject]:
    """Return the first rows, read in a transaction that can change nothing. Raises what SQLAlchemy and the driver raise."""
    from sqlalchemy import create_engine, make_url, text

    location = make_url(url)
    location = location.set(drivername=_DRIVERS.get(location.drivername, location.drivername))
    if location.drivername.endswith("+asyncpg"):
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(_over_asyncpg(location, query, limit))
    engine = create_engine(location)
    try:
        with engine.connect() as connection:
            if location.get_backend_name() == "sqlite":
                connection.exec_driver_sql("PRAGMA query_only = ON")
            return [dict(row._mapping) for row in connection.execute(text(query)).fetchmany(limit)]  # noqa: SLF001 - the documented way
    finally:
        engine.dispose()


async def _over_asyncpg(location: Any, query: str, limit: int) -> Sequence[JsonObject]:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(location, execution_options={"postgresql_readonly": True})
    try:
        async with engine.connect() as connection:
            rows = (await connection.execute(text(query))).fetchmany(limit)
            return [dict(row._mapping) for row in rows]  # noqa: SLF001 - the documented way
    finally:
        await engine.dispose()
