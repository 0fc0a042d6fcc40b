"""Bringing a database's schema up to date."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from owlclaw_ray.store.sql.ledger_guard import restore_guards
from owlclaw_ray.store.sql.migrations import FIRST, HEAD, OLDEST
from owlclaw_ray.store.sql.older_clusters import Beats, require_no_older_cluster

_TABLE = "schema_compatibility"
_LOCK = 0x6F776C636C6177
"""The advisory lock under which PostgreSQL databases are migrated."""
_WAIT_SECONDS = 50
"""How long another migration is waited for, and how long this one may think between two statements: to import and to build revisions
takes longer than the sessions' limits of other transactions, see databases.py."""


class NewerSchemaError(Exception):
    """The database has a revision that this version of the package does not know, and may not work on. The message says which."""


class OldSchemaError(Exception):
    """The database has a revision from before the first schema that is migrated. The message is the revision."""


def migrate(connection: Connection, still: Beats | None = None) -> list[str]:
    """Migrate to HEAD inside the connection's transaction, and put back the ledger's guards; return those that were missing.

    A newer revision is left as it is if its migrations say that this version may work on it. Raises NewerSchemaError, OldSchemaError,
    and OlderClusterError before it excludes a cluster that is not known to be gone: one whose rows are as in `still`.

    Whoever comes at the same time waits and finds the work done: on SQLite the transaction holds the write lock, on
    PostgreSQL it takes an advisory lock. Alembic is imported only if there is something to do.
    """
    if connection.dialect.name == "postgresql":
        _lock(connection)
    revision = revision_of(connection)
    if revision is not None and revision < FIRST:
        raise OldSchemaError(revision)
    if revision is not None and revision > HEAD:
        check_newer(connection, revision)
    elif revision != HEAD:
        if revision is not None:
            window = _window(connection)
            require_no_older_cluster(connection, OLDEST, revision if window is None else window[0], still or {})
        _upgrade(connection)
        _note_oldest(connection)
    return restore_guards(connection)


def _lock(connection: Connection) -> None:
    """Wait until no other session migrates; for tables as briefly as ever: a change of a table that waits stops everybody."""
    connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{_WAIT_SECONDS}s'")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT_SECONDS}s'")
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")


def revision_of(connection: Connection) -> str | None:
    """Return the revision of a database, None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def check_newer(connection: Connection, revision: str) -> None:
    """Raise NewerSchemaError unless the database says that runtimes of this version may work on its newer revision."""
    oldest, migrated_by = _window(connection) or (None, "a newer version")
    if oldest is None or oldest > HEAD:
        window = f", which takes runtimes of schema {oldest} or newer" if oldest else ""
        raise NewerSchemaError(
            f"owlclaw-ray {migrated_by} migrated the database to schema {revision}{window}; this version has schema {HEAD}"
        )


def _window(connection: Connection) -> tuple[str, str] | None:
    """Return the oldest schema whose runtimes the database takes, and the version that said so; None if none did."""
    if not inspect(connection).has_table(_TABLE):
        return None
    row = connection.execute(text(f"SELECT oldest, migrated_by FROM {_TABLE} WHERE id = 1")).one_or_none()  # noqa: S608
    return None if row is None else (row.oldest, row.migrated_by)


def _note_oldest(connection: Connection) -> None:
    connection.execute(text(f"DELETE FROM {_TABLE}"))  # noqa: S608
    connection.execute(
        text(f"INSERT INTO {_TABLE} (id, oldest, migrated_by) VALUES (1, :oldest, :version)"),  # noqa: S608
        {"oldest": OLDEST, "version": version("owlclaw-ray")},
    )


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
