"""A file of entries on the disk, read again only as far as it changed."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.kernel import durable_files
from owlclaw_ray.kernel.durable_files import FileChangedError, FileVersion
from owlclaw_ray.memory.acknowledged_record import (
    AcknowledgedEntry,
    AcknowledgedRecord,
    AcknowledgedState,
    acknowledged,
    followed,
    lacking,
    put_back,
)
from owlclaw_ray.memory.markdown import MemoryBlock, MemoryDocument, begins_entry, parse, render

logger = logging.getLogger(__name__)

_GENERATIONS = itertools.count(1)
_ENDING = b"\n---\n"
_UNDATED = datetime.min.replace(tzinfo=UTC)
"""The time of entries without one in a file that has none."""


class EntryFile:
    """MEMORY.md or its archive. Writers hold a lock among themselves; people with editors do not.

    `document` is what the last `load`, `append` or `rewrite` saw. Entries that are appended extend it; anything else makes
    another one, of another `generation`. What was written is recorded, so that an older copy that is saved over it is
    known as one. Methods that write are for the holder of the lock; they raise FileChangedError if the file is saved by others at
    the same moment, and then the save is what the file says.
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

    @property
    def size(self) -> int:
        """In bytes; 0 for a file that is not there."""
        return self._version.size if self._version else 0

    @property
    def is_settled(self) -> bool:
        """Whether what was loaded is as the runtime left it, or says nothing, as a file does that an editor is just writing."""
        state = self._record.state()
        return not self.size or (state is not None and state.file == self._version)

    def load(self) -> MemoryDocument:
        """Return what the file says now; an absent file says nothing. Raises OSError if it cannot be read."""
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

    def settle(self) -> None:
        """Load the file; if another program has saved it, put back what was acknowledged and that copy lacks for being older."""
        self.load()
        if self.is_settled and self.document.blocks:
            return
        durable_files.complete(self.path, self.kept)
        self.load()
        if self.is_settled or self._version is None:
            return
        if missing := lacking(self._record.entries(), self.document, self._version):
            self.rewrite(put_back(self.document, missing, self._version))
            logger.warning("%s was saved from an older copy: %d memories were put back", self.path, len(missing))
        kept = self._kept_version()
        self._record.keep(followed(self._record.entries(), self.document), AcknowledgedState(self._version, kept))

    def append(self, memories: Sequence[Memory]) -> None:
        """Put the memories at the end. The file must have been loaded and must end with a whole entry.

        If it fails with OSError, the file is as before.
        """
        texts = [render(memory) for memory in memories]
        entries = "".join(texts)
        version = self._version
        if version is None:
            data = (self._header + entries).encode()
            after = durable_files.create(self.path, data)
            self._begin(parse(data, _UNDATED), data, after)
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

    def append_unread(self, memories: Sequence[Memory]) -> bool:
        """Put the memories at the end without reading what is there.

        Returns False if that does not end with a whole entry, or is not as the runtime left it.
        """
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

    def acknowledge(self, memory: Memory) -> None:
        """Return when what the file says is on the disk, no matter which process wrote it, and it is recorded that this memory is in it."""
        with os.fdopen(self._opened(), "rb") as file:
            os.fsync(file.fileno())
        if self._version is not None and memory.memory_id not in self._record.entries():
            self._record_added([memory], [render(memory)], self._version)

    def forget(self) -> None:
        """Keep nothing of what was read."""
        self._begin(MemoryDocument(), b"", None)

    def rewrite(self, blocks: Sequence[MemoryBlock]) -> None:
        """Give the loaded file these blocks; a crash or an OSError leaves it as it was or as it is to be.

        An unfinished entry at its end is set aside.
        """
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
        old, at = {id(block) for block in before.blocks}, after.modified_ns
        memories = [block.memory for block in blocks if block.memory is not None and id(block) not in old]
        removed = before.by_id.keys() - {block.memory.memory_id for block in blocks if block.memory is not None}
        entries = [acknowledged(each, render(each), at, before.by_id.get(each.memory_id)) for each in memories]
        self._record.add([*entries, *(AcknowledgedEntry(memory_id, "", at) for memory_id in removed)], after, version)

    def overwrite(self, data: bytes) -> None:
        """Give the loaded file this content, which a person wrote: what he deleted is deleted on purpose."""
        version = self._version
        after = self._replace(data)
        self._begin(parse(data, after.modified), data, after)
        self._record.keep(followed(self._record.entries(), self.document), AcknowledgedState(after, version))

    def forget_removed(self) -> None:
        """Leave nothing of what was removed beside the file: in the record, and in what it was unless that was saved since."""
        state = self._record.state()
        if state is None:
            return
        self._record.keep(self._record.entries().values(), state)
        if state.kept is not None and durable_files.version_of(self.kept) == state.kept:
            self.kept.unlink()
            durable_files.sync_folder(self.path.parent)

    def is_saved_late(self) -> bool:
        """Return whether an editor that had opened the file before it was replaced has saved it since, to what it was before."""
        there = durable_files.version_of(self.kept)
        return there is not None and self._record.state() is not None and there != self._kept_version()

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
        self.document, self.generation = document, next(_GENERATIONS)
        self._digest = blake2b(data)
        self._version = version
