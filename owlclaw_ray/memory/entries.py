"""A file of entries on the disk, read again only as far as it changed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from owlclaw_ray.memory import durable
from owlclaw_ray.memory.markdown import Block, Document, begins_entry, parse

_GENERATIONS = itertools.count(1)
_ENDING = b"\n---\n"
_UNDATED = datetime.min.replace(tzinfo=UTC)
"""The time of entries without one in a file that has none."""


class FileChangedError(Exception):
    """Somebody changed the file after it was loaded; what was to be written does not fit it."""


class _Version(Struct, frozen=True):
    """What changes when somebody changes the file."""

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Version:
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)

    @property
    def modified(self) -> datetime:
        return datetime.fromtimestamp(self.modified_ns // 1_000_000_000, UTC)


class EntryFile:
    """MEMORY.md or its archive. Writers hold a lock among themselves; people with editors do not.

    `document` is what the last `load`, `append` or `rewrite` saw. Entries that are appended extend it; anything else makes
    another one, of another `generation`.
    """

    def __init__(self, path: Path, header: str) -> None:
        self.path = path
        self.document = Document()
        self.generation = 0
        self._header = header
        self._version: _Version | None = None
        self._digest = blake2b()

    @property
    def size(self) -> int:
        """In bytes; 0 for a file that is not there."""
        return self._version.size if self._version else 0

    def load(self) -> Document:
        """Return what the file says now; an absent file says nothing. Raises OSError if it cannot be read."""
        try:
            with self.path.open("rb") as file:
                version = _Version.of(os.fstat(file.fileno()))
                if version != self._version:
                    self._read(file.read(), version)
        except FileNotFoundError:
            if self._version is not None or self.document.blocks:
                self._begin(Document(), b"", None)
        return self.document

    def append(self, entry: str) -> None:
        """Put the entry, a rendered one, at the end. The file must have been loaded and must end with a whole entry.

        If it fails with OSError, the file is as before.
        """
        version = self._version
        if version is None:
            text = self._header + entry
            durable.replace(self.path, text.encode())
            self._begin(parse(text.encode(), _UNDATED), text.encode(), self.path.stat())
            return
        last = self.document.blocks[-1].text if self.document.blocks else ""
        data = (entry if not last or last.endswith("\n") else "\n" + entry).encode()
        self._version = None
        status = durable.append(self.path, data)
        is_all_that_changed = (status.st_ino, status.st_size) == (version.inode, version.size + len(data))
        if is_all_that_changed and not self.document.is_undated:
            self.document.extend(data, version.modified)
            self._digest.update(data)
            self._version = _Version.of(status)

    def append_unread(self, entries: str) -> bool:
        """Put the entries at the end without reading what is there; return False if that does not end with a whole entry."""
        try:
            with self.path.open("rb") as file:
                file.seek(-min(len(_ENDING), file.seek(0, os.SEEK_END)), os.SEEK_END)
                if file.read() != _ENDING:
                    return False
        except FileNotFoundError:
            durable.replace(self.path, (self._header + entries).encode())
        else:
            durable.append(self.path, entries.encode())
        return True

    def forget(self) -> None:
        """Keep nothing of what was read."""
        self._begin(Document(), b"", None)

    def rewrite(self, blocks: Sequence[Block]) -> None:
        """Give the loaded file these blocks; a crash or an OSError leaves it as it was or as it is to be.

        Raises FileChangedError if it is not as loaded any more.
        """
        if self._version is None and not blocks:
            return
        if self._version is None or self._now() != self._version:
            self._version = None
            raise FileChangedError
        modified = self._version.modified
        ended = [block if block.text.endswith("\n") else Block(block.text + "\n", block.memory) for block in blocks]
        data = "".join(block.text for block in ended).encode("utf-8", "surrogateescape")
        self._version = None
        durable.replace(self.path, data)
        document = parse(data, modified) if self.document.is_relative else Document.of(ended)
        self._begin(document, data, self.path.stat())

    def synchronize(self) -> None:
        """Return when what the file says is on the disk, whoever wrote it."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def _now(self) -> _Version | None:
        try:
            return _Version.of(self.path.stat())
        except FileNotFoundError:
            return None

    def _read(self, data: bytes, version: _Version) -> None:
        before, self._version = self._version, None
        if before is not None and self._grew(before, data):
            added = data[before.size :]
            self.document.extend(added, before.modified)
            self._digest.update(added)
            self._version = version
        else:
            self._begin(parse(data, version.modified), data, version)

    def _grew(self, before: _Version, data: bytes) -> bool:
        """Return whether the data is what was known, and entries of ours after it."""
        return (
            len(data) > before.size
            and not self.document.torn
            and not self.document.is_undated
            and begins_entry(data[before.size : before.size + 4_096])
            and blake2b(data[: before.size]).digest() == self._digest.digest()
        )

    def _begin(self, document: Document, data: bytes, version: _Version | os.stat_result | None) -> None:
        self._version = None
        self.document, self.generation = document, next(_GENERATIONS)
        self._digest = blake2b(data)
        self._version = _Version.of(version) if isinstance(version, os.stat_result) else version
