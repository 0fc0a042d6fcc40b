"""How many connections the HTTP server can keep open, and how many of them event streams may take."""

from __future__ import annotations

import resource

from msgspec import Struct

_OTHERS = 4_096
"""Connections for everything that is no stream."""
_MIN_OTHER_FILES = 512
_OTHER_FILES = 500
"""What a process has open beside connections."""
_MANY_FILES = 1_000_000


class ConnectionLimits(Struct, frozen=True):
    """What fits into the limit of open files: HAProxy has two for every connection, the client's and the replica's."""

    most: int
    streams: int
    files: int
    """The limit."""


def connections(streams: int, files: int | None = None) -> ConnectionLimits:
    """Return how many connections there may be, and how many of them may be streams: as many as asked for, if the limit of open
    files, by default this process's own, lets there be.
    """
    limit = _files_limit() if files is None else files
    possible = max((limit - _OTHER_FILES) // 2, 2 * _MIN_OTHER_FILES)
    most = min(streams + _OTHERS, possible)
    return ConnectionLimits(most, min(streams, most - _MIN_OTHER_FILES), limit)


def open_many_files(streams: int) -> None:
    """Let this process open as many files as so many streams and other requests need, if the system lets it."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(streams + _OTHERS + _OTHER_FILES, _files_limit())
    if limit != resource.RLIM_INFINITY and limit < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _files_limit() -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY_FILES if most == resource.RLIM_INFINITY else most
