"""Bringing a database's schema up to date."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from owlclaw_ray.store.sql.ledger_guard import restore_guards
from owlclaw_ray.store.sql.migrations import FIRST, HEAD

_LOCK = 0x6F776C636C6177
"""The advisory lock under which PostgreSQL databases are migrated."""


class NewerSchemaError(Exception):
    """The database has a revision that this version of the package does not know."""


class OldSchemaError(Exception):
    """The database has a revision from before the first schema that is migrated. The message is the revision."""


def migrate(connection: Connection) -> list[str]:
    """Migrate to HEAD inside the connection's transaction, and put back the ledger's guards; return those that were missing.

    Raises NewerSchemaError and OldSchemaError.

    Whoever comes at the same time waits and finds the work done: on SQLite the transaction holds the write lock, on
    PostgreSQL it takes an advisory lock. Alembic is imported only if there is something to do.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    revision = revision_of(connection)
    if revision is not None and revision < FIRST:
        raise OldSchemaError(revision)
    if revision != HEAD:
        _upgrade(connection)
    return restore_guards(connection)


def revision_of(connection: Connection) -> str | None:
    """Return the revision of a database, None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        if "Can't locate revision" in str(error):
            raise NewerSchemaError(str(error)) from error
        raise
