"""What can be known of a SQLite file's health before it is used, without a change to it or to its write-ahead log."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from owlclaw_ray.store.sql.locations import Location

_MAGIC = b"SQLite format 3\x00"
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY_SECONDS = 10.0
_INTERRUPT_SECONDS = 0.05
"""An interruption stops only a statement that runs by then."""


class Inspection(Struct, frozen=True):
    """What was found."""

    damage: str = ""
    """What is wrong; empty: nothing was found."""
    complete: bool = True
    """Whether everything was looked at within the time."""


def inspect(path: Path, seconds: float) -> Inspection:
    """Look at the file's header, at its schema and for at most so many seconds at its pages, through its write-ahead log.

    A file that is empty or not there is a new store, unless it has a log. A file that cannot be read at all is no damage: who
    opens it is told why.
    """
    log = path.with_name(path.name + "-wal")
    try:
        with path.open("rb") as file:
            header = file.read(len(_MAGIC))
    except FileNotFoundError:
        header = b""
    except OSError:
        return Inspection()
    if not header:
        lost = log.is_file() and log.stat().st_size > 0
        return Inspection(f"it is missing or empty, but its write-ahead log {log} is there" if lost else "")
    if header != _MAGIC:
        return Inspection("it is not a SQLite database, or its header was overwritten")
    return _check_pages(path, seconds)


def require_sound(location: Location, path: Path, seconds: float) -> Inspection:
    """As `inspect`; raises ConfigurationError, which says how to restore the store, if the file is damaged."""
    found = inspect(path, seconds)
    if found.damage:
        raise location.wrong(
            f"the file is damaged: {found.damage}",
            "nothing was changed. Put a backup in its place (remove its -wal and -shm files then), or save what can be read: "
            f"sqlite3 {path.name} .recover | sqlite3 recovered.db. Moving it and its -wal file away starts with an empty store: "
            "all runs that were accepted are lost",
        )
    return found


def _check_pages(path: Path, seconds: float) -> Inspection:
    expired, done = threading.Event(), threading.Event()
    with closing(_connect(path)) as connection:

        def interrupt() -> None:
            if done.wait(seconds):
                return
            expired.set()
            connection.interrupt()
            while not done.wait(_INTERRUPT_SECONDS):
                connection.interrupt()

        timer = threading.Thread(target=interrupt)
        timer.start()
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            [said] = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
            return Inspection(str(error) if damaged else "", complete=not expired.is_set())
        finally:
            done.set()
            timer.join()
    if expired.is_set():
        return Inspection(complete=False)
    return Inspection("" if said == "ok" else " ".join(said.split()))


def _connect(path: Path) -> sqlite3.Connection:
    """Return a connection that changes nothing: whoever may only read never moves a log into its database, but leaves an empty
    log behind where there was none.
    """
    mode = "ro" if path.with_name(path.name + "-wal").exists() else "rw"
    connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=_BUSY_SECONDS)
    connection.execute("PRAGMA query_only = ON")
    return connection
