"""One writer at a time, among processes."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from owlclaw_ray.kernel.durable_files import make_folder

_LOCK_POLL_SECONDS = 0.02


class FileLock:
    """A context manager: inside it no other process or lock object is inside one of the same path.

    May be entered again by its holder. Belongs to one thread at a time. A process that dies releases it, and so does an object that
    is no longer referenced: a deadline may strike after the lock was taken and before the block was entered. The folder of the path is
    made if it is missing. Raises OSError if the file of that path can neither be opened nor made, or if another holder is inside
    for all of `patience`, in seconds; None: it is waited for.
    """

    def __init__(self, path: Path, patience: float | None = None) -> None:
        self._path, self._wait_limit = path, patience
        self._descriptor = -1
        self._depth = 0

    def beside(self) -> FileLock:
        """Return another lock on the same path, for another thread."""
        return FileLock(self._path, self._wait_limit)

    def __enter__(self) -> Self:
        if self._depth == 0:
            self._release()
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            try:
                self._descriptor = os.open(self._path, flags, 0o600)
            except FileNotFoundError:
                make_folder(self._path.parent)
                self._descriptor = os.open(self._path, flags, 0o600)
            self._wait()
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._release()

    def __del__(self) -> None:
        self._release()

    def _wait(self) -> None:
        if self._wait_limit is None:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            return
        until = time.monotonic() + self._wait_limit
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    self._release()
                    what = f"another process has locked it for {self._wait_limit:g} s"
                    raise OSError(errno.EAGAIN, what, str(self._path)) from None
                time.sleep(_LOCK_POLL_SECONDS)
            else:
                return

    def _release(self) -> None:
        """Close the descriptor if there is one: also one that a deadline left behind by striking during the wait."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor != -1:
            os.close(descriptor)
