"""What was acknowledged of a file of entries in the last day, so that an older copy saved over it loses nothing.

The record stands beside the file, one JSON line for each entry, and after each write a line with what the file was then. It is
written after the file and without an fsync of its own: what the file says is on the disk already, and the record is asked only
when another program has saved the file since.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.kernel.durable_files import FileVersion
from owlclaw_ray.memory.markdown import MemoryBlock, MemoryDocument, parse, render

logger = logging.getLogger(__name__)

RESTORE_WINDOW = timedelta(days=1)
"""How long before a save an entry was acknowledged at most that the save cannot delete without having seen it."""
_STATES = 100
"""How many earlier states of one entry are known as such."""
_TAIL = 4_096
_LARGE = 256 * 1024
_EPOCH = datetime.fromtimestamp(0, UTC)
_encoder = msgspec.json.Encoder()
_Line = TypeVar("_Line")
_NOTE = re.compile(r"<!-- Put back: a copy saved at (\S+) lacked (mem_[^<>]*?)\.\n")


class AcknowledgedEntry(Struct, frozen=True, array_like=True):
    """An entry as it was acknowledged."""

    memory_id: MemoryId
    text: str
    """Empty if it was removed."""
    at: int
    """The file's time after it was written, in nanoseconds."""
    earlier: tuple[str, ...] = ()
    """The digests of what it said before."""

    @property
    def memory(self) -> Memory:
        """The memory that it is."""
        return parse(self.text.encode(), _EPOCH).memories[0]


class AcknowledgedState(Struct, frozen=True):
    """What the runtime left."""

    file: FileVersion
    kept: FileVersion | None = None
    """What the file was that it replaced last."""


class RestoreNote(Struct, frozen=True):
    """What a comment in the file says of memories that were put back."""

    line: int
    saved_at: str
    memory_ids: tuple[MemoryId, ...]


class AcknowledgedRecord:
    """The record of one file. Whoever writes it holds the lock of the file's writers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = (0, 0)
        self._state: AcknowledgedState | None = None
        self._is_whole = True
        self._large = _LARGE

    def state(self) -> AcknowledgedState | None:
        """Return what the file was after the last write that is recorded; None if there is none."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._seen, self._state, self._is_whole = (0, 0), None, True
            return None
        if (status.st_ino, status.st_size) != self._seen:
            data = self._read(max(status.st_size - _TAIL, 0))
            states = [line for line in data.split(b"\n") if line.startswith(b"{")]
            self._state = next(
                (state for line in reversed(states) if (state := _decoded(line, AcknowledgedState))), None
            )
            self._is_whole = data.endswith(b"\n")
            self._seen = (status.st_ino, status.st_size)
        return self._state

    def entries(self) -> dict[MemoryId, AcknowledgedEntry]:
        """Return what was acknowledged and not removed, in the order in which it came to say what it says.

        What was put back keeps its place: copies that were opened before have it.
        """
        try:
            return entries_of(self._read(0))
        except FileNotFoundError:
            return {}

    def add(self, entries: Iterable[AcknowledgedEntry], file: FileVersion, replaced: FileVersion | None = None) -> None:
        """Record what a write added, changed and removed, what the file is now, and what it was if it was replaced.

        `state` was asked for since the lock was taken.
        """
        state = AcknowledgedState(file, replaced or (self._state.kept if self._state else None))
        data = lines_of(entries) + _line(state)
        if not self._is_whole:
            data = b"\n" + data
        inode, size = self._seen
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                written = os.write(descriptor, data)
                inode = inode or os.fstat(descriptor).st_ino
            finally:
                os.close(descriptor)
        except OSError as error:
            self._warn(error)
            return
        self._seen, self._state, self._is_whole = (inode, size + written), state, written == len(data)
        if size > self._large:
            self.keep(self.entries().values(), state)
            self._large = max(_LARGE, 2 * self._seen[1])

    def keep(self, entries: Iterable[AcknowledgedEntry], state: AcknowledgedState) -> None:
        """Record these entries, those of the last day, and nothing else."""
        draft = self._path.with_name(self._path.name + ".new")
        try:
            draft.touch(0o600)
            draft.write_bytes(lines_of(recent(entries, state.file.modified_ns)) + _line(state))
            draft.rename(self._path)
            status = self._path.stat()
        except OSError as error:
            self._warn(error)
            return
        self._seen, self._state, self._is_whole = (status.st_ino, status.st_size), state, True

    def _read(self, begin: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(begin)
            return file.read()

    def _warn(self, error: OSError) -> None:
        logger.warning("%s cannot be written, older copies of the file are not recognised: %s", self._path, error)


def entries_of(record: bytes) -> dict[MemoryId, AcknowledgedEntry]:
    """Return what the lines of a record say: see AcknowledgedRecord.entries."""
    found: dict[MemoryId, AcknowledgedEntry] = {}
    for line in record.split(b"\n"):
        entry = _decoded(line, AcknowledgedEntry) if line.startswith(b"[") else None
        if entry is not None:
            before = found.get(entry.memory_id)
            if before is None or before.text != entry.text:
                found.pop(entry.memory_id, None)
            if entry.text and before is not None:
                own = _digest(entry.text)
                states = dict.fromkeys((*before.earlier, _digest(before.text), *entry.earlier))
                entry = replace(entry, earlier=tuple(each for each in states if each != own)[-_STATES:])
            if entry.text:
                found[entry.memory_id] = entry
    return found


def lines_of(entries: Iterable[AcknowledgedEntry]) -> bytes:
    """Return the entries as lines of a record."""
    return b"".join(map(_line, entries))


def recent(entries: Iterable[AcknowledgedEntry], now: int) -> list[AcknowledgedEntry]:
    """Return those entries of the last day before a time, in nanoseconds, which a record has to keep."""
    oldest = now - _nanoseconds(RESTORE_WINDOW)
    return [each for each in entries if each.at >= oldest]


def changed(before: MemoryDocument, blocks: Sequence[MemoryBlock], at: int) -> Iterator[AcknowledgedEntry]:
    """Yield what a rewrite of the document to these blocks, at a time in nanoseconds, adds to the record."""
    old = {id(block) for block in before.blocks}
    there = [block.memory for block in blocks if block.memory is not None]
    for block in blocks:
        if block.memory is not None and id(block) not in old:
            yield acknowledged(block.memory, render(block.memory), at, before.by_id.get(block.memory.memory_id))
    for memory_id in before.by_id.keys() - {each.memory_id for each in there}:
        yield AcknowledgedEntry(memory_id, "", at)


def lacking(entries: Mapping[MemoryId, AcknowledgedEntry], document: MemoryDocument, saved: int) -> tuple[Memory, ...]:
    """Return the acknowledged memories that a copy saved at a time, in nanoseconds, lacks, or has as they were, because it is older.

    Copies are older by the end: from the newest acknowledged entry back, as far as none is in the copy. What it lacks beyond
    was deleted on purpose; so was what a note in the copy names, for then the copy is newer than the note.
    """
    noted = {each for note in notes("".join(block.text for block in document.blocks)) for each in note.memory_ids}
    oldest = saved - _nanoseconds(RESTORE_WINDOW)
    contents = {memory.content for memory in document.memories}
    found: list[Memory] = []
    for entry in reversed(list(entries.values())):
        memory, there = entry.memory, document.by_id.get(entry.memory_id)
        if there is None:
            is_older = memory.content not in contents
        elif entry.memory_id in document.unfinished:
            is_older = memory.content.startswith(there.content)
        else:
            text = render(there)
            if text == entry.text or not entry.earlier:
                break
            is_older = _digest(text) in entry.earlier
        if is_older and entry.at >= oldest and entry.memory_id not in noted:
            found.append(memory)
    return tuple(reversed(found))


def put_back(document: MemoryDocument, memories: Sequence[Memory], saved: datetime) -> list[MemoryBlock]:
    """Return the blocks with the memories in their places, or at the end, and a note that says so."""
    by_id = {memory.memory_id: memory for memory in memories}
    blocks = [
        MemoryBlock(render(by_id[block.memory.memory_id]), by_id[block.memory.memory_id])
        if block.memory is not None and block.memory.memory_id in by_id
        else block
        for block in document.blocks
        if not any(block.text == _comment(note.saved_at, note.memory_ids) for note in notes(block.text))
    ]
    blocks += [MemoryBlock(render(memory), memory) for memory in memories if memory.memory_id not in document.by_id]
    if not blocks[-1].text.rstrip().endswith("\n---"):
        blocks.append(MemoryBlock("\n---\n", None))
    return [*blocks, MemoryBlock(_comment(saved.isoformat(), by_id), None)]


def followed(entries: Mapping[MemoryId, AcknowledgedEntry], document: MemoryDocument) -> list[AcknowledgedEntry]:
    """Return the entries without those that the document has no more, and with the texts that it has."""
    there = ((entry, document.by_id.get(entry.memory_id)) for entry in entries.values())
    return [replace(entry, text=render(memory)) for entry, memory in there if memory is not None]


def acknowledged(memory: Memory, text: str, at: int, before: Memory | None = None) -> AcknowledgedEntry:
    """Return the entry of a memory that was stored as this text, or changed from what it was before."""
    return AcknowledgedEntry(memory.memory_id, text, at, () if before is None else (_digest(render(before)),))


def notes(text: str) -> list[RestoreNote]:
    """Return what the text of a file says of memories that were put back."""
    return [
        RestoreNote(text.count("\n", 0, found.start()) + 1, found[1], tuple(map(MemoryId, found[2].split(", "))))
        for found in (_NOTE.finditer(text) if "<!-- Put back: " in text else ())
    ]


def _comment(saved_at: str, memory_ids: Iterable[MemoryId]) -> str:
    return (
        f"\n<!-- Put back: a copy saved at {saved_at} lacked {', '.join(memory_ids)}.\n"
        "To delete one of them for good, delete its entry and leave this comment, or run `owlclaw memory delete`.\n"
        "Delete this comment alone if all is well. -->\n\n---\n"
    )


def _line(what: AcknowledgedEntry | AcknowledgedState) -> bytes:
    return _encoder.encode(what) + b"\n"


def _decoded(line: bytes, kind: type[_Line]) -> _Line | None:
    """Return what a line says; None for one that a crash cut."""
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError:
        return None


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _nanoseconds(span: timedelta) -> int:
    return int(span.total_seconds()) * 1_000_000_000
