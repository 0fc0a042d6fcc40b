"""The files of an open SQLite database: that they are still those at its path, and that its log stays small.

A file that is deleted or moved away goes on being written by who has it open, and every commit into it succeeds: what was
accepted would be gone at the next start. SQLite itself looks for that in other journal modes only. The write-ahead log is
emptied by SQLite when no reader needs it, and is never made shorter; where readers always overlap, it grows for ever.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CHECKPOINT_PAGES = 1_000
"""After so many pages in its log SQLite writes them into the database."""
KEPT_LOG_BYTES = 4 * 1_024 * 1_024
"""How long SQLite leaves the log's file when it begins again at its start."""
MAX_LOG_BYTES = 2 * KEPT_LOG_BYTES
"""From this size on the log is emptied as soon as its readers are through."""
_WAIT_MILLISECONDS = 100
"""How long a writer waits for them, at most; then it tries again when the log has grown by KEPT_LOG_BYTES."""

_REMEDY = (
    "Move the same file back and work goes on; otherwise stop the runtime (owlclaw down), "
    "put a backup there, and start it again"
)
_LOG_REMEDY = "Stop the runtime (owlclaw down), which saves what it still holds, and start it again"
GONE = f"the file was deleted or moved away since the runtime was started. {_REMEDY}"


class StoreFileLostError(Exception):
    """A file of the database is not at its place any more: what is written now would be lost at the next start."""


class SqliteFiles:
    """The database's file and the two that SQLite keeps beside it. Not for two threads at once."""

    def __init__(self, path: Path) -> None:
        """Hold them: the database is open by now, and in WAL mode. Until `close`, SQLite removes none of them by itself."""
        self._path, self._log = str(path), f"{path}-wal"
        self._anchor = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._anchor.execute(f"PRAGMA busy_timeout = {_WAIT_MILLISECONDS}")
        self._anchor.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        self._tried_at = 0
        self._known: Mapping[str, tuple[int, int]] = {
            name: _identity(os.stat(name))  # noqa: PTH116 - every transaction looks at each of them
            for name in (self._path, self._log, f"{path}-shm")
        }

    def check(self) -> int:
        """Return the size of the log; raises StoreFileLostError if a file was deleted, moved or replaced, and says what to do."""
        size = 0
        for name, known in self._known.items():
            try:
                status = os.stat(name)  # noqa: PTH116 - as above
            except (FileNotFoundError, NotADirectoryError):
                raise self._lost(name, "deleted or moved away") from None
            if _identity(status) != known:
                raise self._lost(name, "replaced by another file")
            if name == self._log:
                size = status.st_size
        return size

    def bound_log(self, size: int) -> None:
        """Empty the log if it has become too large; for the thread that writes, after a commit."""
        if size < max(MAX_LOG_BYTES, self._tried_at):
            return
        self._tried_at = 0 if self.empty_log() else size + KEPT_LOG_BYTES

    def empty_log(self) -> bool:
        """Move what the log has into the database and cut it to nothing; return False if a reader or the disk prevents that."""
        with suppress(sqlite3.OperationalError):
            [(busy, *_)] = self._anchor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return not busy
        return False

    def close(self) -> None:
        """Let go of them."""
        self._anchor.close()

    def _lost(self, name: str, what: str) -> StoreFileLostError:
        cure = _REMEDY if name == self._path else _LOG_REMEDY
        return StoreFileLostError(
            f"{name} was {what} while the runtime uses it, so what is accepted now would be lost. {cure}"
        )


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
