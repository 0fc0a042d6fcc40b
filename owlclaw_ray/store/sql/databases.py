"""Connections and transactions: how work on a synchronous Connection is run without holding up the event loop.

All work of a transaction is one function. On SQLite it runs in a thread of its own, where its statements follow one
another without a switch between threads for each (with a driver that is asynchronous statement by statement, as
aiosqlite, those switches cost more than the statements). On PostgreSQL it runs over asyncpg.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar, TypeVarTuple

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import Dialect as EngineDialect
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.sql.dialects import POSTGRESQL, SQLITE, Dialect
from owlclaw_ray.store.sql.row_security import narrowing
from owlclaw_ray.store.sql.sqlite_files import CHECKPOINT_PAGES, KEPT_LOG_BYTES, SqliteFiles

_READERS = 2
_POSTGRESQL_READERS, _POSTGRESQL_WRITERS = 10, 5
_BUSY_MILLISECONDS = 10_000
_CONNECT_SECONDS = 10
_COMMAND_SECONDS = 60
_POSTGRESQL_SETTINGS = {
    "jit": "off",
    "application_name": "owlclaw",
    "lock_timeout": "1000",
    "idle_in_transaction_session_timeout": "4000",
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "5000",
}
"""A node that vanishes inside a transaction says nothing to the server, which would keep its locks for hours: within seconds the
server ends a session that is idle in a transaction or does not acknowledge, and meanwhile nobody waits for its rows for long."""
_SOCKET_OPTIONS = {
    "SO_KEEPALIVE": (socket.SOL_SOCKET, 1),
    "TCP_KEEPIDLE": (socket.IPPROTO_TCP, 2),
    "TCP_KEEPINTVL": (socket.IPPROTO_TCP, 1),
    "TCP_KEEPCNT": (socket.IPPROTO_TCP, 3),
    "TCP_USER_TIMEOUT": (socket.IPPROTO_TCP, 5_000),
}
"""The same from our end, as far as the system has them: a node that is cut off knows it as soon as the server does, and when it reaches
the server again it makes a new connection instead of waiting for TCP to send once more what was lost on the old one."""
_WRITING = "owlclaw_writing"
_PRAGMAS = (
    f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -32768",
    f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}",
    f"PRAGMA journal_size_limit = {KEPT_LOG_BYTES}",
)
_Args = TypeVarTuple("_Args")
_T = TypeVar("_T")


class Database(Protocol):
    """Runs functions of a connection in transactions."""

    dialect: Dialect
    engine_dialect: EngineDialect

    async def write(self, work: Callable[[Connection, *_Args], _T], *args: *_Args) -> _T:
        """Return what the work returns, committed; rolled back if it raises.

        On SQLite, work whose caller is cancelled meanwhile still runs to its end.
        """
        ...

    async def read(self, work: Callable[[Connection, *_Args], _T], *args: *_Args, tenant: TenantId | None = None) -> _T:
        """Return what the work returns; all its statements see one moment of the store.

        With a tenant they see no other tenant's rows on a database that can keep them apart by itself, see row_security.
        """
        ...

    async def close(self) -> None:
        """Close all connections, after the work that is under way."""
        ...


class SqliteDatabase:
    """One file, in WAL mode: a thread that writes, and a few that read meanwhile.

    Once it has written, every transaction looks at whether the file is still at its place; none is answered as committed that
    went into a file that is not: it raises StoreFileLostError.
    """

    def __init__(self, url: URL) -> None:
        self.dialect: Dialect = SQLITE
        self._path = Path(url.database or "")
        self._files: SqliteFiles | None = None
        self._engine = create_engine(url, connect_args={"isolation_level": None})
        self._writing_engine = self._engine.execution_options(**{_WRITING: True})
        self.engine_dialect: EngineDialect = self._engine.dialect
        self._writer = ThreadPoolExecutor(1, "owlclaw-store-writer")
        self._readers = ThreadPoolExecutor(_READERS, "owlclaw-store-reader")
        event.listen(self._engine, "connect", _set_pragmas)
        event.listen(self._engine, "begin", _begin)

    async def write(self, work: Callable[[Connection, *_Args], _T], *args: *_Args) -> _T:
        """As Database.write."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._write, work, args)

    async def read(self, work: Callable[[Connection, *_Args], _T], *args: *_Args, tenant: TenantId | None = None) -> _T:
        """As Database.read; SQLite cannot keep tenants apart."""
        del tenant
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work, args)

    async def close(self) -> None:
        """As Database.close."""
        await asyncio.to_thread(self._close)

    def _read(self, work: Callable[..., _T], args: tuple[Any, ...]) -> _T:
        if self._files is not None:
            self._files.check()
        return _transact(self._engine, work, args)

    def _write(self, work: Callable[..., _T], args: tuple[Any, ...]) -> _T:
        if self._files is None:
            answer = _transact(self._writing_engine, work, args)
            self._files = SqliteFiles(self._path)
            return answer
        log_size = self._files.check()
        try:
            answer = _transact(self._writing_engine, work, args)
        except OperationalError as error:
            if not (_code(error.orig) == sqlite3.SQLITE_FULL and log_size > 0 and self._files.empty_log()):
                raise
            answer = _transact(self._writing_engine, work, args)
        self._files.bound_log(self._files.check())
        return answer

    def _close(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        if self._files is not None:
            self._files.close()
        self._engine.dispose()


class PostgresqlDatabase:
    """A database on a server, shared with the stores of other nodes. What writes never waits for a connection that reads."""

    def __init__(self, url: URL) -> None:
        from owlclaw_ray.store.sql.tenant_connection import TenantConnection

        arguments = {
            "connection_class": TenantConnection,
            "timeout": _CONNECT_SECONDS,
            "command_timeout": _COMMAND_SECONDS,
            "server_settings": _POSTGRESQL_SETTINGS,
        }
        self.dialect: Dialect = POSTGRESQL
        self._writing = create_async_engine(url, connect_args=arguments, pool_size=_POSTGRESQL_WRITERS, max_overflow=0)
        self._reading = create_async_engine(
            url,
            connect_args=arguments,
            pool_size=_POSTGRESQL_READERS,
            max_overflow=0,
            isolation_level="REPEATABLE READ",
            execution_options={"postgresql_readonly": True},
        )
        for engine in (self._writing, self._reading):
            event.listen(engine.sync_engine, "connect", _set_socket_options)
        self.engine_dialect: EngineDialect = self._writing.dialect

    async def write(self, work: Callable[[Connection, *_Args], _T], *args: *_Args) -> _T:
        """As Database.write."""
        async with self._writing.begin() as connection:
            return await connection.run_sync(work, *args)

    async def read(self, work: Callable[[Connection, *_Args], _T], *args: *_Args, tenant: TenantId | None = None) -> _T:
        """As Database.read."""
        async with self._reading.connect() as connection:
            return await connection.run_sync(_read_for, tenant, work, args)

    async def close(self) -> None:
        """As Database.close."""
        await self._writing.dispose()
        await self._reading.dispose()


def _read_for(connection: Connection, tenant: TenantId | None, work: Callable[..., _T], args: tuple[Any, ...]) -> _T:
    """Do the work in a transaction of the tenant: the connection may have had another one before."""
    connection.connection.driver_connection.narrowing = "" if tenant is None else narrowing(tenant)  # type: ignore[union-attr]
    return work(connection, *args)


def _set_socket_options(connection: Any, _record: Any) -> None:
    line = connection.driver_connection._transport.get_extra_info("socket")  # noqa: SLF001 - asyncpg has no public name
    if line.family == socket.AF_UNIX:
        return
    for name, (level, value) in _SOCKET_OPTIONS.items():
        if hasattr(socket, name):
            line.setsockopt(level, getattr(socket, name), value)


def _transact(engine: Engine, work: Callable[..., _T], args: tuple[Any, ...]) -> _T:
    with engine.begin() as connection:
        return work(connection, *args)


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get(_WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _set_pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    for attempt in _until_not_busy():
        with attempt:
            cursor.execute("PRAGMA journal_mode = WAL")
    cursor.close()


def _until_not_busy() -> Retrying:
    # SQLite answers "busy" at once, without asking its busy handler, where a wait could be a deadlock: when two connections
    # change a new file to WAL, or one opens it while the last other one closes (https://sqlite.org/c3ref/busy_handler.html).
    return Retrying(
        retry=retry_if_exception(_is_busy),
        wait=wait_random(0.001, 0.02),
        stop=stop_after_delay(_BUSY_MILLISECONDS / 1000),
        reraise=True,
    )


def _is_busy(error: BaseException) -> bool:
    return _code(error) == sqlite3.SQLITE_BUSY


def _code(error: BaseException | None) -> int | None:
    """Return SQLite's primary result code, if the error is one of SQLite's."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
