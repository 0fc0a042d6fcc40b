"""What one agent remembers: MEMORY.md, the truth that every index is made from, and its archive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.memory import Memory, MemoryLimits, MemoryTextVersion
from owlclaw_ray.errors import (
    MemoryChangedError,
    MemoryTextChangedError,
    MemoryTooLargeError,
    NotFoundError,
    Problem,
    RetryableError,
    UserError,
)
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.kernel.durable_files import FileChangedError
from owlclaw_ray.memory.acknowledged_record import notes
from owlclaw_ray.memory.documents import UNDATED, AgentDocuments, EntryDocument
from owlclaw_ray.memory.duplicates import likeness
from owlclaw_ray.memory.markdown import MemoryBlock, MemoryDocument, parse, render

logger = logging.getLogger(__name__)

MERGED_IDS = 20
"""How many of the ids that were merged into a memory stay with it: more than calls that can still be repeated."""
MERGED_TEXTS = 10
"""How many texts a memory has beside its own; what is written in yet another way begins another one."""
_REPORTED = 5
_Result = TypeVar("_Result")


class MemorySnapshot(Struct, frozen=True):
    """What MEMORY.md said at one time."""

    memories: tuple[Memory, ...]
    """In the order of the file."""
    generation: int
    """Two snapshots of one generation differ by memories at the end only."""


class _DuplicateFinder:
    """What finds the memory that says the same as a new one, or that it was merged into: kept up with one file."""

    def __init__(self) -> None:
        self.generation = 0
        self.by_likeness: dict[bytes, MemoryId] = {}
        self.merged: dict[MemoryId, MemoryId] = {}
        self._seen = 0
        self._likeness: dict[MemoryId, tuple[str, bytes]] = {}

    def learn(self, document: MemoryDocument, generation: int) -> None:
        """Take in what the document says."""
        if generation != self.generation:
            before = self._likeness
            self.generation, self._seen = generation, 0
            self.by_likeness, self.merged, self._likeness = {}, {}, {}
            for memory in document.by_id.values():
                content, key = before.get(memory.memory_id, ("", b""))
                self.add(memory, key if content == memory.content else likeness(memory.content))
        elif self._seen < len(document.by_id):
            for memory in document.memories[self._seen :]:
                self.add(memory, likeness(memory.content))

    def add(self, memory: Memory, key: bytes) -> None:
        """Take in the next memory of the document."""
        self._seen += 1
        self._likeness[memory.memory_id] = (memory.content, key)
        self.by_likeness[key] = memory.memory_id
        self.merged.update(dict.fromkeys(memory.merged, memory.memory_id))

    def follow(self, merged: Memory, generation: int) -> None:
        """Be of another generation, which differs by what this memory was merged with, and not by its text."""
        self.generation = generation
        self.merged.update(dict.fromkeys(merged.merged, merged.memory_id))


class MemoryFile:
    """Stores, changes and archives the memories of one agent, durably: what a method did outlives every crash when it returns.

    Not for several threads at once; other processes, people with editors included, may use the documents meanwhile. Methods that
    write raise OSError if they cannot, and then the documents are as before; RuntimeUnavailableError if it is not known.
    """

    def __init__(
        self, documents: AgentDocuments, limits: MemoryLimits, retention: Callable[[], timedelta | None] | None = None
    ) -> None:
        """`retention`, asked for at most once a day, is in the place of that of the limits; it may raise RetryableError: then nothing is
        removed before the next memory.
        """
        self._documents = documents
        self._limits = limits
        self._retention = retention or (lambda: limits.retention)
        self._active, self._archive = documents.active, documents.archive
        self._snapshot = MemorySnapshot((), 0)
        self._warned = 0
        self._known = _DuplicateFinder()
        self._expired_on: date | None = None
        self._expiring_on: date | None = None

    @property
    def where(self) -> str:
        """Names MEMORY.md in messages."""
        return self._documents.where

    @property
    def held(self) -> int:
        """How many memories this object keeps of what it read."""
        return len(self._active.document.by_id)

    def load(self) -> MemorySnapshot:
        """Return what MEMORY.md says now; an absent file says nothing. Raises OSError if it cannot be read."""
        document = self._read(self._active)
        if (self._active.generation, len(document.by_id)) != (self._snapshot.generation, len(self._snapshot.memories)):
            self._snapshot = MemorySnapshot(document.memories, self._active.generation)
        return self._snapshot

    def append(self, memory: Memory) -> Memory:
        """Store the memory and return what is stored; as LanceMemory.remember says."""
        self._expiring_on = self._expired_on
        stored = self._write(partial(self._append, memory))
        self._expired_on = self._expiring_on
        return stored

    def edit(
        self,
        memory_id: MemoryId,
        content: str | None,
        tags: Sequence[str] | None,
        *,
        old_content: str | None = None,
        old_tags: Sequence[str] | None = None,
    ) -> Memory:
        """Change an active memory; see MemoryFolders.edit."""
        if content is not None and not content.strip():
            raise UserError("a memory needs a text: delete it instead")

        def change() -> Memory:
            memory = self._active.document.by_id.get(memory_id)
            if memory is None:
                raise NotFoundError("memory", memory_id)
            # A request may repeat: a field must be what the caller read, or already what it is to become.
            other_content = old_content is not None and memory.content not in {old_content, content}
            other_tags = old_tags is not None and set(memory.tags) not in [
                set(old_tags),
                None if tags is None else set(tags),
            ]
            if changed := [name for name, changed in (("content", other_content), ("tags", other_tags)) if changed]:
                raise MemoryChangedError(memory_id, changed)
            edited = replace(
                memory,
                content=memory.content if content is None else content,
                tags=memory.tags if tags is None else tuple(dict.fromkeys(tags)),
                also=memory.also if content in {None, memory.content} else (),
            )
            self._rewrite(self._active, partial(_replaced, memory=edited))
            return edited

        return self._write(change)

    def delete(self, memory_id: MemoryId) -> Memory:
        """Remove a memory for good; see MemoryFolders.delete."""
        removed: list[Memory] = []

        def remove() -> Memory:
            self._archive.settle()
            for file in (self._active, self._archive):
                if (memory := file.document.by_id.get(memory_id)) is not None:
                    self._rewrite(file, partial(_without, ids={memory_id}))
                    removed.append(memory)
            if not removed:
                raise NotFoundError("memory", memory_id)
            self._forget_removed()
            return removed[0]

        return self._write(remove)

    def archive(self, memory_ids: Collection[MemoryId]) -> tuple[Memory, ...]:
        """Move active memories to the archive; see MemoryFolders.archive."""

        def move() -> tuple[Memory, ...]:
            chosen = frozenset(memory_ids) & self._active.document.by_id.keys()
            return self._move(chosen) if chosen else ()

        return self._write(move)

    def archived(self) -> tuple[Memory, ...]:
        """Return the archived memories. What a crash left in both files is active."""
        active = self._read(self._active).by_id
        archived = tuple(memory for memory in self._read(self._archive).memories if memory.memory_id not in active)
        self._archive.forget()
        return archived

    def problems(self) -> tuple[Problem, ...]:
        """Return everything in the files that could not be read as it was meant."""
        found: list[Problem] = []
        for file in (self._active, self._archive):
            file.load()
            data = file.content()
            faults = parse(data, UNDATED).faults
            found += [Problem(f"{file.name}:{fault.line}", fault.what, fault.fix) for fault in faults]
            fix = (
                "delete them with `owlclaw memory delete`, or their entries and not the comment; "
                "delete the comment if all is well"
            )
            for note in notes(data.decode("utf-8", "replace")):
                what = (
                    f"a copy saved at {note.saved_at} lacked {counted(len(note.memory_ids), 'memory', 'memories')} "
                    f"stored after it was opened; put back: {', '.join(note.memory_ids)}"
                )
                found.append(Problem(f"{file.name}:{note.line}", what, fix))
            found += file.leftovers()
        self._archive.forget()
        return (*found, *self._documents.leftovers())

    def sizes(self) -> tuple[int, int]:
        """Return how many bytes MEMORY.md has, and the archive."""
        for file in (self._active, self._archive):
            file.load()
        sizes = self._active.size, self._archive.size
        self._archive.forget()
        return sizes

    def text(self) -> bytes:
        """Return MEMORY.md as it stands."""
        self._read(self._active)
        return self._active.content()

    def put(self, text: bytes, base: MemoryTextVersion | None) -> tuple[Memory, ...]:
        """Make this MEMORY.md; see MemoryFolders.put_text."""
        if len(text) > self._limits.size:
            raise MemoryTooLargeError(len(text), self._limits.size)

        def put() -> tuple[Memory, ...]:
            now = self._active.content()
            if base is None:
                return () if now == text else self._active.adopt(text)
            if not base.begins(now):
                if now.startswith(text):  # the same again, as a client does whose answer got lost
                    return ()
                raise MemoryTextChangedError
            appended = now[base.size :]
            self._active.overwrite(text + (b"\n" if appended and text and not text.endswith(b"\n") else b"") + appended)
            return ()

        return self._write(put)

    def archive_text(self) -> bytes:
        """Return the archive as it stands."""
        self._read(self._archive)
        text = self._archive.content()
        self._archive.forget()
        return text

    def put_archive(self, text: bytes) -> tuple[MemoryId, ...]:
        """Have in the archive what it lacks of this one; see MemoryFolders.put_archive_text."""

        def put() -> tuple[MemoryId, ...]:
            self._archive.settle()
            if self._archive.document.torn:
                self._rewrite(self._archive, lambda document: document.blocks)
            archive, before, given = self._archive.document, self._archive.content(), parse(text, UNDATED)
            known = archive.by_id.keys() | self._active.document.by_id.keys()
            added = tuple(each for each in given.by_id if each not in known)
            there = {block.text.strip() for block in archive.blocks}
            lacking = [
                block.text
                for block in given.blocks
                if block.of not in known and block.text.strip() and block.text.strip() not in there
            ]
            if not before:
                self._archive.overwrite(text)
            elif lacking:
                apart = b"" if before.endswith(b"\n") else b"\n"
                self._archive.overwrite(before + apart + "".join(lacking).encode("utf-8", "surrogateescape"))
            self._archive.forget()
            return added

        return self._write(put)

    def _write(self, operation: Callable[[], _Result]) -> _Result:
        """Do it alone with MEMORY.md loaded, from the start again if others change the documents at the same moment."""

        def do() -> _Result:
            self._active.settle()
            self._warn()
            return operation()

        return self._documents.change(do)

    def _read(self, file: EntryDocument) -> MemoryDocument:
        document = self._documents.read(file)
        self._warn()
        return document

    def _warn(self) -> None:
        document = self._active.document
        if self._active.generation != self._warned and document.faults:
            faults = "; ".join(f"line {fault.line}: {fault.what}" for fault in document.faults[:_REPORTED])
            logger.warning("%s has %d entries to look at: %s", self.where, len(document.faults), faults)
        self._warned = self._active.generation

    def _append(self, memory: Memory) -> Memory:
        if memory.memory_id in self._active.document.unfinished:
            self._rewrite(self._active, partial(_without, ids={memory.memory_id}))
        document = self._active.document
        self._known.learn(document, self._active.generation)
        if earlier := self._earlier(document, memory.memory_id):
            return earlier
        key = likeness(memory.content)
        alike = document.by_id.get(self._known.by_likeness.get(key, MemoryId("")))
        can_merge = alike is not None and (
            memory.content in {alike.content, *alike.also} or len(alike.also) < MERGED_TEXTS
        )
        stored = self._merge(alike, memory) if alike and can_merge else self._add(memory, key)
        # The memory is stored whether the files can be brought within their limits or not.
        try:
            if memory.created_at.date() != self._expired_on:
                self._expire(memory.created_at)
            if chosen := choose_for_archive(self._active.document, self._active.size, memory.created_at, self._limits):
                self._move(chosen)
        except (OSError, FileChangedError) as error:
            logger.warning("%s could not be brought within its limits: %s", self.where, error)
        return stored

    def _expire(self, now: datetime) -> None:
        """Remove for good what is older than it is kept: counted in whole days, so that files change once a day."""
        try:
            keep = self._retention()
        except RetryableError as error:
            logger.warning("how long %s keeps memories is not known, none are removed: %s", self.where, error)
            return
        if keep is not None:
            first = (now - keep).date()
            self._archive.settle()
            for file in (self._archive, self._active):
                expired = {each.memory_id for each in file.document.memories if each.created_at.date() < first}
                if expired:
                    self._rewrite(file, partial(_without, ids=expired))
            self._forget_removed()
        self._expiring_on = now.date()

    def _earlier(self, document: MemoryDocument, memory_id: MemoryId) -> Memory | None:
        """Return what was stored when this id was remembered before, on the disk for sure."""
        earlier = document.by_id.get(self._known.merged.get(memory_id, memory_id))
        if earlier is not None:
            self._active.acknowledge(earlier)
            return earlier
        if memory_id not in self._archive.ids():
            return None
        self._archive.settle()
        memories = self._archive.document.memories
        self._archive.forget()
        return next((each for each in memories if memory_id in {each.memory_id, *each.merged}), None)

    def _add(self, memory: Memory, key: bytes) -> Memory:
        if self._active.document.torn:
            self._rewrite(self._active, lambda document: document.blocks)
        generation = self._active.generation
        self._active.append([memory])
        if self._active.generation == generation == self._known.generation:
            self._known.add(memory, key)
        return memory

    def _merge(self, earlier: Memory, memory: Memory) -> Memory:
        merged = replace(
            earlier,
            tags=tuple(dict.fromkeys((*earlier.tags, *memory.tags))),
            created_at=max(earlier.created_at, memory.created_at),
            count=earlier.count + memory.count,
            merged=(*earlier.merged, memory.memory_id)[-MERGED_IDS:],
            also=tuple(dict.fromkeys((earlier.content, *earlier.also, memory.content)))[1:],
        )
        if self._rewrite(self._active, partial(_replaced, memory=merged)) == self._known.generation:
            self._known.follow(merged, self._active.generation)
        return merged

    def _rewrite(self, file: EntryDocument, change: Callable[[MemoryDocument], Sequence[MemoryBlock]]) -> int:
        """Write the loaded file again, changed; return the generation that it was of before."""
        generation = file.generation
        file.rewrite(change(file.document))
        return generation

    def _forget_removed(self) -> None:
        for file in (self._active, self._archive):
            file.forget_removed()
        self._archive.forget()

    def _move(self, chosen: frozenset[MemoryId]) -> tuple[Memory, ...]:
        """Put the memories into the archive, then take them out of MEMORY.md: a crash in between leaves them in both."""
        moved = tuple(memory for memory in self._active.document.memories if memory.memory_id in chosen)
        if chosen & self._archive.ids() or not self._archive.append_unread(moved):
            # The archive has some of them already, or is not as this process left it.
            self._archive.settle()
            archive = self._archive.document
            there = {each.memory_id: archive.by_id.get(each.memory_id) for each in moved}
            outdated = {each.memory_id for each in moved if there[each.memory_id] not in {None, each}}
            if archive.torn or outdated:
                self._rewrite(self._archive, partial(_without, ids=outdated))
            if missing := [each for each in moved if there[each.memory_id] != each]:
                self._archive.append(missing)
            self._archive.forget()
        self._rewrite(self._active, partial(_without, ids=chosen))
        return moved


def _without(document: MemoryDocument, ids: Collection[MemoryId]) -> list[MemoryBlock]:
    return [block for block in document.blocks if block.of not in ids]


def _replaced(document: MemoryDocument, memory: Memory) -> list[MemoryBlock]:
    """Return the blocks with the memory in the place of the one of its id, copies of which go."""
    return [
        MemoryBlock(render(memory), memory) if block.memory is not None and block.of == memory.memory_id else block
        for block in document.blocks
        if block.memory is not None or block.of != memory.memory_id
    ]


def choose_for_archive(document: MemoryDocument, size: int, now: datetime, limits: MemoryLimits) -> frozenset[MemoryId]:
    """Return the memories to archive so that both limits hold: none while they hold.

    The oldest leave first. A hundredth of a limit is freed beyond the need, so that the file is not rewritten for every
    new memory.
    """
    surplus = len(document.by_id) - limits.memories
    if size <= limits.size and surplus <= 0:
        return frozenset()
    sizes = {
        block.memory.memory_id: len(block.text.encode("utf-8", "surrogateescape"))
        for block in document.blocks
        if block.memory is not None
    }
    oldest_first = sorted(document.by_id.values(), key=lambda memory: memory.created_at)
    count = surplus + limits.memories // 100 if surplus > 0 else 0
    chosen = {memory.memory_id for memory in oldest_first[:count]}
    if size <= limits.size:
        return frozenset(chosen)
    chosen |= {memory.memory_id for memory in oldest_first if now - memory.created_at > limits.stale_after}
    remaining = size - sum(sizes[memory_id] for memory_id in chosen)
    for memory in oldest_first:
        if remaining <= limits.size - limits.size // 100:
            break
        if memory.memory_id not in chosen:
            chosen.add(memory.memory_id)
            remaining -= sizes[memory.memory_id]
    return frozenset(chosen)
