"""MEMORY.md of one agent on the disk: the truth that every index is made from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.memory import durable
from owlclaw_ray.memory.archive import ArchiveLimits, choose_for_archive
from owlclaw_ray.memory.lock import FolderLock
from owlclaw_ray.memory.markdown import HEADER, Block, Document, parse, render

ARCHIVE_HEADER = "# Archived memories\n\n<!-- Moved out of MEMORY.md, oldest first. Nothing reads this file. -->\n"


@dataclass(frozen=True, slots=True)
class _Version:
    """What changes when somebody changes the file."""

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Version:
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)


class MemoryFile:
    """Reads and appends `MEMORY.md`; moves the oldest entries to `MEMORY.archive.md` when there are too many.

    Not for several threads at once; other processes, people with editors included, may use the folder meanwhile.
    """

    def __init__(self, folder: Path, lock: FolderLock, limits: ArchiveLimits) -> None:
        self.path = folder / "MEMORY.md"
        self._lock = lock
        self._limits = limits
        self._version: _Version | None = None
        self._document = Document()

    def load(self) -> Document:
        """Return what the file says now; an absent file says nothing. Raises OSError if it cannot be read."""
        try:
            with self.path.open("rb") as file:
                version = _Version.of(os.fstat(file.fileno()))
                if version != self._version:
                    undated = datetime.fromtimestamp(version.modified_ns // 1_000_000_000, UTC)
                    self._document, self._version = parse(file.read(), undated), version
        except FileNotFoundError:
            self._document, self._version = Document(), None
        return self._document

    def append(self, memory: Memory) -> Memory:
        """Store the memory, on the disk when this returns, and return what is stored.

        That is the earlier one if its id, or a memory with equal content and tags, is there already. Raises OSError if
        it could not be stored; then the file is as before.
        """
        with self._lock:
            document = self.load()
            earlier = document.by_id.get(memory.memory_id) or next(
                (one for one in document.memories if (one.content, one.tags) == (memory.content, memory.tags)), None
            )
            if earlier is not None:
                return earlier
            entry = render(memory)
            document = self._write(document, entry)
            self._keep(Document((*document.blocks, Block(entry, memory))))
            self._archive(memory.created_at)
            return memory

    def _write(self, document: Document, entry: str) -> Document:
        """Put the entry after the document and return the document as it stands before the entry."""
        if self._version is None:
            durable.replace(self.path, (HEADER + entry).encode())
            return Document((Block(HEADER, None),))
        if document.torn:
            self._set_aside(document.torn, self._version.size)
        blocks = document.blocks
        if blocks and not blocks[-1].text.endswith("\n"):
            blocks = (*blocks[:-1], Block(blocks[-1].text + "\n", blocks[-1].memory))
            entry = "\n" + entry
        durable.append(self.path, entry.encode())
        return Document(blocks)

    def _keep(self, document: Document) -> None:
        self._document, self._version = document, _Version.of(self.path.stat())

    def _set_aside(self, torn: str, size: int) -> None:
        """Move an unfinished entry out of the way, for people to look at."""
        data = torn.encode("utf-8", "surrogateescape")
        _append_or_create(self.path.with_name("MEMORY.torn.md"), data + b"\n", b"")
        durable.truncate(self.path, size - len(data))

    def _archive(self, now: datetime) -> None:
        """Bring the file within its limits. A crash in between leaves entries in both files, and none in neither."""
        size = self._version.size if self._version else 0
        chosen = choose_for_archive(self._document.blocks, size, now, self._limits)
        if not chosen:
            return
        moved = "".join(_ended(block.text) for number, block in enumerate(self._document.blocks) if number in chosen)
        kept = tuple(block for number, block in enumerate(self._document.blocks) if number not in chosen)
        archive = self.path.with_name("MEMORY.archive.md")
        _append_or_create(archive, _encoded(moved), ARCHIVE_HEADER.encode())
        durable.replace(self.path, _encoded("".join(_ended(block.text) for block in kept)))
        self._keep(Document(kept))


def _append_or_create(path: Path, data: bytes, header: bytes) -> None:
    if path.exists():
        durable.append(path, data)
    else:
        durable.replace(path, header + data)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
