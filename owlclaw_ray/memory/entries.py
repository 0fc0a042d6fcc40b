"""A file of entries on the disk, read again only as far as it changed."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from pathlib import Path

from typing_extensions import override

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.kernel import durable_files
from owlclaw_ray.kernel.durable_files import FileChangedError, FileVersion
from owlclaw_ray.memory.acknowledged_record import (
    AcknowledgedRecord,
    AcknowledgedState,
    acknowledged,
    changed,
    followed,
    lacking,
    put_back,
)
from owlclaw_ray.memory.documents import GENERATIONS, UNDATED, EntryDocument, ids_in
from owlclaw_ray.memory.markdown import MemoryBlock, MemoryDocument, begins_entry, parse, render

logger = logging.getLogger(__name__)

_ENDING = b"\n---\n"


class EntryFile(EntryDocument):
    """A document in a file. Writers hold a lock among themselves; people with editors do not.

    What was written is recorded, so that an older copy that is saved over it is known as one. Methods that write are for the holder
    of the lock; they raise FileChangedError if the file is saved by others at the same moment, and then the save is what the file
    says.
    """

    def __init__(self, path: Path, header: str) -> None:
        self.path = path
        self.kept = path.with_name(f"{path.stem}.previous.md")
        self.torn = path.with_name("MEMORY.torn.md")
        self.document = MemoryDocument()
        self.generation = 0
        self._header = header
        self._record = AcknowledgedRecord(path.with_name(f".{path.name}.acknowledged"))
        self._version: FileVersion | None = None
        self._digest = blake2b()
        self._archived = _IdsOfFile(path)

    @property
    @override
    def name(self) -> str:
        return self.path.name

    @property
    @override
    def size(self) -> int:
        return self._version.size if self._version else 0

    @property
    def is_settled(self) -> bool:
        """Whether what was loaded is as the runtime left it, or says nothing, as a file does that an editor is just writing."""
        state = self._record.state()
        return not self.size or (state is not None and state.file == self._version)

    @override
    def load(self) -> MemoryDocument:
        try:
            descriptor = self._opened()
            try:
                version = FileVersion.of(os.fstat(descriptor))
                if version != self._version:
                    with os.fdopen(descriptor, "rb", closefd=False) as file:
                        self._read(file.read(), version)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            if self._version is not None or self.document.blocks:
                self._begin(MemoryDocument(), b"", None)
        return self.document

    @override
    def settle(self) -> None:
        """Load the file; if another program has saved it, put back what was acknowledged and that copy lacks for being older."""
        self.load()
        if self.is_settled and self.document.blocks:
            return
        durable_files.complete(self.path, self.kept)
        self.load()
        if self.is_settled or self._version is None:
            return
        self._put_back_what_is_lacking(self._version)

    def _put_back_what_is_lacking(self, saved: FileVersion) -> tuple[Memory, ...]:
        """Put back what the present file, a copy that others saved, lacks for being older; return what that was."""
        missing = lacking(self._record.entries(), self.document, saved.modified_ns)
        if missing:
            self.rewrite(put_back(self.document, missing, saved.modified))
            logger.warning("%s was saved from an older copy: %d memories were put back", self.path, len(missing))
        assert self._version is not None
        state = AcknowledgedState(self._version, self._kept_version())
        self._record.keep(followed(self._record.entries(), self.document), state)
        return missing

    @override
    def append(self, memories: Sequence[Memory]) -> None:
        texts = [render(memory) for memory in memories]
        entries = "".join(texts)
        version = self._version
        if version is None:
            data = (self._header + entries).encode()
            after = durable_files.create(self.path, data)
            self._begin(parse(data, UNDATED), data, after)
        else:
            last = self.document.blocks[-1].text if self.document.blocks else ""
            data = (entries if not last or last.endswith("\n") else "\n" + entries).encode()
            self._version = None
            ending = last.encode("utf-8", "surrogateescape")
            after = durable_files.append(self.path, data, version, ending)
            if after.size == version.size + len(data) and not self.document.is_undated:
                self.document.extend(data, version.modified)
                self._digest.update(data)
                self._version = after
        self._record_added(memories, texts, after)

    @override
    def append_unread(self, memories: Sequence[Memory]) -> bool:
        state = self._record.state()
        version = durable_files.version_of(self.path)
        if version is None:
            return False
        with os.fdopen(self._opened(), "rb") as file:
            file.seek(-min(len(_ENDING), file.seek(0, os.SEEK_END)), os.SEEK_END)
            if state is None or state.file != version or file.read() != _ENDING:
                return False
        texts = [render(memory) for memory in memories]
        after = durable_files.append(self.path, "".join(texts).encode(), version)
        self._record_added(memories, texts, after)
        return True

    @override
    def acknowledge(self, memory: Memory) -> None:
        with os.fdopen(self._opened(), "rb") as file:
            os.fsync(file.fileno())
        if self._version is not None and memory.memory_id not in self._record.entries():
            self._record_added([memory], [render(memory)], self._version)

    @override
    def forget(self) -> None:
        self._begin(MemoryDocument(), b"", None)

    @override
    def rewrite(self, blocks: Sequence[MemoryBlock]) -> None:
        before, version = self.document, self._version
        if version is None and not blocks:
            return
        if before.torn:
            torn = before.torn.encode("utf-8", "surrogateescape") + b"\n"
            (durable_files.append if self.torn.exists() else durable_files.create)(self.torn, torn)
        ended = [
            block if block.text.endswith("\n") else MemoryBlock(block.text + "\n", block.memory) for block in blocks
        ]
        data = "".join(block.text for block in ended).encode("utf-8", "surrogateescape")
        after = self._replace(data)
        assert version is not None
        document = (
            parse(data, version.modified) if before.is_relative or before.unfinished else MemoryDocument.of(ended)
        )
        self._begin(document, data, after)
        self._record.add(changed(before, blocks, after.modified_ns), after, version)

    @override
    def overwrite(self, data: bytes) -> None:
        version = self._version
        after = self._save(data)
        self._record.keep(followed(self._record.entries(), self.document), AcknowledgedState(after, version))

    @override
    def adopt(self, data: bytes) -> tuple[Memory, ...]:
        return self._put_back_what_is_lacking(self._save(data))

    def _save(self, data: bytes) -> FileVersion:
        """Give the loaded file this content, or make it; what it was is kept."""
        after = durable_files.create(self.path, data) if self._version is None else self._replace(data)
        self._begin(parse(data, after.modified), data, after)
        return after

    @override
    def forget_removed(self) -> None:
        state = self._record.state()
        if state is None:
            return
        self._record.keep(self._record.entries().values(), state)
        there = durable_files.version_of(self.kept)
        if there is not None and (there == state.kept or there.inode not in _by_inode(state)):
            self.kept.unlink()
            durable_files.sync_folder(self.path.parent)

    @override
    def ids(self) -> AbstractSet[MemoryId]:
        return self._archived.now()

    @override
    def leftovers(self) -> Sequence[Problem]:
        late = [self.kept] if self.is_saved_late() else []
        what = f"holds what somebody saved whose editor had opened {self.path.name} before it was replaced"
        fix = "take what you need and delete it"
        saved = sorted(self.path.parent.glob(f"{self.path.stem}.saved*.md"))
        return [Problem(path.name, what, fix) for path in (*late, *saved)]

    def is_saved_late(self) -> bool:
        """Return whether an editor that had opened the file before it was replaced has saved it since, to what it was before.

        It has written to that very file. Another one of that name is what a crash left of a replacement that did not come to be.
        """
        there, state = durable_files.version_of(self.kept), self._record.state()
        if there is None or state is None:
            return False
        known = _by_inode(state)
        return there.inode in known and there != known[there.inode]

    def _kept_version(self) -> FileVersion | None:
        """Return what `kept` is to be: a crash may have come between the replacement and its record."""
        state = self._record.state()
        if state is None:
            return durable_files.version_of(self.kept)
        return state.file if durable_files.version_of(self.kept) == state.file else state.kept

    def _replace(self, data: bytes) -> FileVersion:
        version, self._version = self._version, None
        if version is None:
            raise FileChangedError
        if self.is_saved_late():
            names = (f"{self.path.stem}.saved{number}.md" for number in itertools.chain([""], itertools.count(2)))
            self.kept.rename(next(path for name in names if not (path := self.path.with_name(name)).exists()))
            durable_files.sync_folder(self.path.parent)
        return durable_files.exchange(self.path, data, version, self.kept)

    def _record_added(self, memories: Sequence[Memory], texts: Sequence[str], after: FileVersion) -> None:
        at = after.modified_ns
        self._record.add([acknowledged(each, text, at) for each, text in zip(memories, texts, strict=True)], after)

    def _opened(self) -> int:
        flags = os.O_RDONLY | os.O_CLOEXEC
        try:
            return os.open(self.path, flags)
        except FileNotFoundError:
            # while it is replaced where files cannot be swapped
            return os.open(durable_files.instead(self.path, self.kept) or self.path, flags)

    def _read(self, data: bytes, version: FileVersion) -> None:
        before, self._version = self._version, None
        is_longer = (
            before is not None
            and len(data) > before.size
            and not self.document.torn
            and not self.document.is_undated
            and begins_entry(data[before.size : before.size + 4_096])
            and blake2b(data[: before.size]).digest() == self._digest.digest()
        )
        if before is not None and is_longer:
            added = data[before.size :]
            self.document.extend(added, before.modified)
            self._digest.update(added)
            self._version = version
        else:
            self._begin(parse(data, version.modified), data, version)

    def _begin(self, document: MemoryDocument, data: bytes, version: FileVersion | None) -> None:
        self._version = None
        self.document, self.generation = document, next(GENERATIONS)
        self._digest = blake2b(data)
        self._version = version


def _by_inode(state: AcknowledgedState) -> dict[int, FileVersion]:
    return {each.inode: each for each in (state.kept, state.file) if each is not None}


class _IdsOfFile:
    """The ids in a file, merged ones included, without what they say: an archive grows without end, and few ask for an entry."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = self._size = self._modified = 0
        self._ids: set[MemoryId] = set()

    def now(self) -> AbstractSet[MemoryId]:
        """Return the ids, reading what was added since the last time."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._inode, self._size, self._ids = 0, 0, set()
            return self._ids
        if (status.st_ino, status.st_size, status.st_mtime_ns) != (self._inode, self._size, self._modified):
            if status.st_ino != self._inode or status.st_size <= self._size:
                self._size, self._ids = 0, set()
            with self._path.open("rb") as file:
                file.seek(self._size)
                added = file.read()
            self._ids |= ids_in(added)
            self._inode, self._size, self._modified = status.st_ino, self._size + len(added), status.st_mtime_ns
        return self._ids
