"""Opening a store: the only ways to get a SqlStore."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

from owlclaw_ray.errors import OwlClawError, StoreUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.ledger.redaction import TenantRedactors
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS
from owlclaw_ray.store.sql.databases import Database, PostgresqlDatabase, SqliteDatabase
from owlclaw_ray.store.sql.failures import FAILURES, explain
from owlclaw_ray.store.sql.locations import Location, locate, prepare_file
from owlclaw_ray.store.sql.migrations import FIRST, HEAD
from owlclaw_ray.store.sql.migrator import NewerSchemaError, OldSchemaError, check_newer, migrate, revision_of
from owlclaw_ray.store.sql.older_clusters import OlderClusterError, have_moved
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.store.sql.sqlite_files import GONE

_LOOK_SECONDS = 1.0
"""Between two looks at whether a cluster of an older version renews its rows, as it does each second."""
_REFUSED = {
    "28P01": "the user or the password is wrong",
    "28000": "the server does not let this user in",
    "3D000": "the database does not exist; make it with createdb",
    "42501": "this user may not create tables there",
}


async def open_store(
    url: str,
    *,
    writer: str,
    redactors: TenantRedactors | None = None,
    must_exist: bool = False,
    cluster: str = "",
    clock: Clock | None = None,
) -> SqlStore:
    """Return the store at that place, made if it is new and migrated to this version's schema.

    `writer` names the ledger chains that this store writes: one name for each process that writes at the same time, the
    same name again after a restart. `redactors` take secrets out of ledger records before they are written; None: such as know
    the usual forms of secrets. With a `cluster` agents are claimed only while it holds the lease, see HoldLease. With `must_exist` no
    file is made: one that is not there is unavailable. Raises ConfigurationError
    for what has to be put right by hand (a read-only or impossible path, a file that is no database, a wrong password, a missing
    database, a database of a newer version or of a development version, one that a cluster of a version uses which the migration
    would exclude, an unsupported URL) and StoreUnavailableError for what may pass (a server that does not answer). Whether such a
    cluster runs is seen within EXPIRE_SECONDS of the clock, which is the system's by default.
    """
    clock, location = clock or SystemClock(), locate(url)
    if location.path is not None:
        if must_exist and not location.path.exists():
            raise StoreUnavailableError(f"store {location.shown}: {GONE}")
        prepare_file(location, location.path)
        database: Database = SqliteDatabase(location.url)
    else:
        database = PostgresqlDatabase(location.url)
    try:
        restored = await _migrate(database, clock)
    except (*FAILURES, NewerSchemaError, OldSchemaError, OlderClusterError) as error:
        await database.close()
        raise _opening_error(location, error) from error
    except BaseException:
        await database.close()
        raise
    return SqlStore(database, writer, redactors, tuple(restored), cluster, clock=clock)


async def _migrate(database: Database, clock: Clock) -> list[str]:
    """Migrate; where clusters of an older version may be running, once their rows have stood still for as long as a lease lasts."""
    try:
        return await database.write(migrate)
    except OlderClusterError as error:
        beats = error.beats
    end = clock.monotonic() + EXPIRE_SECONDS
    while clock.monotonic() < end and not await database.read(have_moved, beats):
        await clock.sleep(_LOOK_SECONDS)
    return await database.write(migrate, beats)


async def open_existing(url: str) -> SqlStore:
    """Return the store at that place as it is, for reading: nothing is made, migrated or written.

    Raises ConfigurationError if there is none, or one of another version's schema, and else as open_store.
    """
    location = locate(url)
    if location.path is None:
        database: Database = PostgresqlDatabase(location.url)
    elif location.path.is_file():
        database = SqliteDatabase(location.url)
    else:
        raise location.wrong("there is no store yet", "start the runtime, which makes it, with: owlclaw up")
    try:
        revision = await database.read(revision_of)
    except FAILURES as error:
        await database.close()
        raise _opening_error(location, error) from error
    if revision is not None and revision < FIRST:
        await database.close()
        raise _old_schema(location, revision)
    if revision is not None and revision > HEAD:
        try:
            await database.read(check_newer, revision)
        except NewerSchemaError as error:
            await database.close()
            raise _opening_error(location, error) from error
    elif revision != HEAD:
        await database.close()
        raise location.wrong(
            f"its schema is {revision or 'not there'}, and this version of owlclaw-ray reads {HEAD}",
            "start the runtime once, which migrates it, or use the version that made it",
        )
    return SqlStore(database, "reader")


def _old_schema(location: Location, revision: str) -> OwlClawError:
    return location.wrong(
        f"a development version of owlclaw-ray made the database (schema {revision}; this version begins with {FIRST})",
        "keep it for that version and name another file or database, or start it once with the last version that migrates"
        f" to schema {FIRST}",
    )


def _opening_error(location: Location, error: BaseException) -> OwlClawError:
    if isinstance(error, OldSchemaError):
        return _old_schema(location, str(error))
    if isinstance(error, NewerSchemaError):
        return location.wrong(str(error), "install that version, or name another database")
    if isinstance(error, OlderClusterError):
        return location.wrong(str(error), error.fix)
    original = error.orig if isinstance(error, DBAPIError) else error
    if location.path is not None:
        return _file_error(location, explain(error))
    state = getattr(original, "sqlstate", None)
    if state in _REFUSED:
        return location.wrong(_REFUSED[state], explain(error))
    return StoreUnavailableError(f"store {location.shown}: the server does not answer: {explain(error)}")


def _file_error(location: Location, said: str) -> OwlClawError:
    if "not a database" in said:
        return location.wrong("the file is not a SQLite database", "name another file, or move this one away")
    if "readonly" in said or "unable to open" in said:
        return location.wrong(f"the file cannot be written: {said}")
    return StoreUnavailableError(f"store {location.shown}: {said}")
