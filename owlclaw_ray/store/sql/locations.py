"""Where a store is: what a user may write, and what the drivers want."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from owlclaw_ray.errors import ConfigurationError, Problem

FORMS = "a path, sqlite:///relative.db, sqlite:////absolute.db or postgresql://user:password@host:port/database"
_POSTGRESQL = {"postgresql", "postgres", "postgresql+asyncpg"}
_POSTGRESQL_PORT = 5432
_SQLITE = {"sqlite", "sqlite+aiosqlite"}


class Location(Struct, frozen=True):
    """A store's place. `shown` is its name in messages, without any password."""

    url: URL
    shown: str
    path: Path | None = None
    """The file, for SQLite."""

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the server; None for a file, and for a server that is not found by its host alone."""
        return (self.url.host, self.url.port or _POSTGRESQL_PORT) if self.url.host and not self.url.query else None

    def wrong(self, what: str, fix: str = "") -> ConfigurationError:
        """Return the error that says what is wrong with this place."""
        return ConfigurationError([Problem(f"store {self.shown}", what, fix)])


def locate(text: str) -> Location:
    """Return the place that `text` names; raises ConfigurationError for a form that is not in FORMS."""
    if "://" not in text:
        return _file(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError([Problem("store", f"the URL cannot be read: {error}", f"write {FORMS}")]) from error
    scheme = url.drivername
    if scheme in _SQLITE:
        return _file(url.database or "")
    if scheme not in _POSTGRESQL:
        raise ConfigurationError([Problem("store", f"unsupported URL scheme {scheme!r}", f"write {FORMS}")])
    if not url.database:
        raise ConfigurationError([Problem("store", "the URL names no database", f"write {FORMS}")])
    return Location(url.set(drivername="postgresql+asyncpg"), url.render_as_string(hide_password=True))


def prepare_file(location: Location, path: Path) -> None:
    """Make the file's folder and the file, empty, for this user only; raise ConfigurationError for what SQLite could not
    work with. SQLite gives the files that it keeps beside it the rights that this one has.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise location.wrong(f"the folder {path.parent} cannot be made: {error.strerror}") from error
    if path.is_dir():
        raise location.wrong("the path is a directory", "name a file in it, such as owlclaw.db")
    if not _allowed(path.parent, os.W_OK | os.X_OK):
        raise location.wrong(f"the folder {path.parent} is read-only", "SQLite writes its log beside the database file")
    if path.exists() and not _allowed(path, os.R_OK | os.W_OK):
        raise location.wrong("the file cannot be read and written", "make it writable for the user of this process")
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise location.wrong(f"the file cannot be made: {error.strerror}") from error


def _allowed(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _file(text: str) -> Location:
    if text in {"", ":memory:"}:
        raise ConfigurationError(
            [Problem("store", "a store must outlive its process, so it needs a file", f"write {FORMS}")]
        )
    path = Path(text).absolute()
    return Location(URL.create("sqlite", database=str(path)), str(path), path)
