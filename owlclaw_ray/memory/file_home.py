"""Memories in files: MEMORY.md and its archive in the folder of each agent."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import Problem
from owlclaw_ray.kernel.durable_files import FileChangedError
from owlclaw_ray.memory.documents import ACTIVE, ARCHIVE, ARCHIVE_HEADER, AgentDocuments, EntryDocument, MemoryHome
from owlclaw_ray.memory.entries import EntryFile
from owlclaw_ray.memory.lock import FileLock
from owlclaw_ray.memory.markdown import HEADER, MemoryDocument

_TRIES = 5
_R = TypeVar("_R")


class FileHome(MemoryHome):
    """`data_dir/agents/<agent's folder>/`. Who has a lock is waited for as long as `patience`, in seconds; None: however long."""

    def __init__(self, data_dir: Path, patience: float | None = None) -> None:
        self._data_dir, self._patience = data_dir, patience

    @override
    def documents(self, agent: AgentRef) -> AgentDocuments:
        return AgentFiles(self._data_dir / "agents" / agent.folder, self._patience)


class AgentFiles(AgentDocuments):
    """The files of one folder. Writers of all processes hold its lock; people with editors hold none."""

    active: EntryFile
    archive: EntryFile

    def __init__(self, folder: Path, patience: float | None = None) -> None:
        self.active = EntryFile(folder / ACTIVE, HEADER)
        self.archive = EntryFile(folder / ARCHIVE, ARCHIVE_HEADER)
        self.where = str(self.active.path)
        self._lock = FileLock(folder / ".lock", patience)
        self._lock_if_free = FileLock(folder / ".lock", 0.0)

    @override
    def read(self, document: EntryDocument) -> MemoryDocument:
        """Return what the file says, after what an older copy lacks was put back, unless another writer holds the lock."""
        assert isinstance(document, EntryFile)
        document.load()
        if not document.is_settled:
            with suppress(OSError, FileChangedError), self._lock_if_free:
                document.settle()
            document.load()
        return document.document

    @override
    def change(self, operation: Callable[[], _R]) -> _R:
        with self._lock:
            for _ in range(_TRIES):
                with suppress(FileChangedError):
                    return operation()
        raise OSError(errno.EBUSY, "another program saves it at every try", self.where)

    @override
    def leftovers(self) -> Sequence[Problem]:
        if not self.active.torn.exists():
            return ()
        what = "holds what crashes left of entries that were not written to their end"
        return (Problem(self.active.torn.name, what, "take what you need and delete it"),)
