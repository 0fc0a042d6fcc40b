"""One writer at a time in a folder, among processes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from owlclaw_ray.memory.durable import make_folder


class FolderLock:
    """A context manager: inside it no other process or lock object is inside one of the same folder.

    May be entered again by its holder. Belongs to one thread at a time. A process that dies lets go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        self._depth = 0

    def __enter__(self) -> Self:
        if self._depth == 0:
            self._release()
            make_folder(self._folder)
            self._descriptor = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._release()

    def _release(self) -> None:
        """Close the descriptor if there is one: also one that a deadline left behind by striking during the wait."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor != -1:
            os.close(descriptor)
