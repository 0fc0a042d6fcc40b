"""The index of one agent: kept equal to MEMORY.md, thrown away and made again when it is damaged."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.errors import BudgetExhaustedError, ToolTimeoutError
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.embedding import Embedder, EmbeddingWait
from owlclaw_ray.memory.file import MemorySnapshot
from owlclaw_ray.memory.fusion import SearchHits
from owlclaw_ray.memory.lance.damage import IndexUnusableError, index_errors
from owlclaw_ray.memory.lance.table import (
    MemoryTable,
    Session,
    TableWithVectors,
    Vector,
    Version,
    fingerprint,
    plain,
    remove_tables,
    tables_with_vectors,
)
from owlclaw_ray.memory.lexical import searchable
from owlclaw_ray.memory.lock import FileLock

T = TypeVar("T")
logger = logging.getLogger(__name__)

_MAX_SYNC_EMBEDDED = 16
_ADDED_TOGETHER = {True: 64, False: 1_000}
"""Memories of one write in the background, with vectors to be computed and without."""
_WAITED_SECONDS = {EmbeddingWait.SHORT: 2.0, EmbeddingWait.LONG: 0.0}
"""How long another process that embeds the agent's memories is waited for."""
_NO_VECTORS: Mapping[MemoryId, Vector] = {}


class _Contents(Struct):
    """What the table holds, as of one version of it, and how far that agrees with MEMORY.md."""

    version: Version = ()
    rows: dict[MemoryId, int] = field(default_factory=dict)
    """Fingerprints by id."""
    bare: set[MemoryId] = field(default_factory=set)
    """Rows without a vector, though the table has vectors."""
    generation: int = -1
    agreed: int = 0
    """How many memories of that generation of MEMORY.md are in the table; nothing else is, unless generation is -1."""


class MemoryIndex:
    """Opens lazily, and sees what other processes change. For any number of threads, one at a time.

    `search`, `catch_up` and `rebuild` raise IndexUnusableError when neither the index nor a new one in its place can be used.
    Inside `paying` memories are embedded.
    """

    def __init__(
        self,
        folder: Path,
        embedder: Embedder | None,
        lock: FileLock,
        session: Session | None = None,
        paying: Callable[[Sequence[Memory]], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._folder = folder
        self._embedder = embedder
        self._lock = lock
        self._turn = threading.RLock()
        self._session = session or Session()
        self._paying = paying
        self._opened_with: Any = None
        self._table: MemoryTable | None = None
        self._contents = _Contents()
        self._has_old_versions = False
        self._fingerprints: dict[MemoryId, tuple[Memory, int]] = {}

    @property
    def complete(self) -> bool:
        """Whether the table has held all memories, and each of them has its vector, as far as is known."""
        return self._contents.generation != -1 and not self._contents.bare

    @property
    def size(self) -> int:
        """How many memories this object knows to be in the index."""
        return len(self._contents.rows)

    def search(
        self,
        document: Callable[[], MemorySnapshot],
        query: str,
        vector: Vector | None,
        tags: Sequence[str],
        go_on: Callable[[], bool],
    ) -> SearchHits:
        """Return what the query finds in the document, which the index is made to hold first.

        A few memories that were never embedded are embedded before, while `go_on` says so; many are left to `catch_up`, and as
        long as most have no vector the search is by words only.
        """
        current = document()

        def agree(table: MemoryTable) -> tuple[MemoryTable, Version]:
            before = self._known(table).version
            self._agree(table, current)
            return table, before

        def find(table: MemoryTable) -> SearchHits:
            if table is not agreed:
                self._agree(table, current)
            if self._contents.version != before and table.needs_compaction(is_idle=False):
                with self._lock:
                    table.optimize()
            few = 2 * len(self._contents.bare) > len(self._contents.rows)
            return table.search(query, None if few else vector, tags)

        agreed, before = self._use(agree)
        if vector is not None and 0 < len(self._contents.bare) <= _MAX_SYNC_EMBEDDED:
            self._embed(document, go_on, EmbeddingWait.SHORT)
            current = document()
        return self._use(find)

    def catch_up(self, document: Callable[[], MemorySnapshot], go_on: Callable[[], bool]) -> bool:
        """Make the index hold the document with all its vectors, batch after batch, while `go_on` says so.

        Searches go on meanwhile. What an embedder that fails leaves without vectors is found by its words. If another
        process does the same, this one leaves the vectors to it, and returns False.
        """
        if self._embed(document, go_on, EmbeddingWait.LONG):
            return True
        self._use(partial(self._agree, document=document()))
        return False

    def rebuild(self, document: MemorySnapshot) -> int:
        """Rebuild the index, without vectors at first; return how many memories it holds.

        One with vectors of this embedder that have another length goes.
        """
        with index_errors():
            if self._embedder is not None:
                self._embedder.dimension  # noqa: B018 - a provider may have to be asked, which no lock is held for
        with index_errors(), self._turn, self._lock:
            self._discard()
            remove_tables(self._of_another_length())
            self._agree(self._opened(), document)
            return len(self._contents.rows)

    def held(self) -> frozenset[MemoryId]:
        """Return the ids of the memories that the index holds now, whatever MEMORY.md says."""
        return self._use(lambda table: frozenset(self._known(table).rows))

    def tidy(self, *, is_idle: bool) -> bool:
        """Merge small files and fold new memories into the index by words, if that is due.

        Returns whether that, now or before, left files of old versions that `clear` removes.

        Searches go on meanwhile. That it fails beside another process's write is of no consequence: the next one does it.
        """
        with self._turn:
            table = self._table
        if table is None:
            return False
        with suppress(IndexUnusableError), index_errors():
            if table.needs_compaction(is_idle=is_idle):
                with self._lock.beside():
                    table.optimize()
                self._has_old_versions = True
        return self._has_old_versions

    def clear(self) -> None:
        """Remove the files of versions that are no longer read."""
        with self._turn:
            table = self._table
        self._has_old_versions = False
        if table is not None:
            with suppress(IndexUnusableError), index_errors(), self._lock.beside():
                table.remove_old_versions()

    def _use(self, operation: Callable[[MemoryTable], T]) -> T:
        """Return what the operation gives: on the index as it is, as another process left it, or rebuilt."""
        with self._turn:
            with suppress(IndexUnusableError), index_errors():
                return operation(self._opened())
            with index_errors(), self._lock:
                self._close()
                try:
                    with index_errors():
                        return operation(self._opened())
                except IndexUnusableError as error:
                    if not error.is_damage:
                        raise
                self._discard()
                return operation(self._opened())

    def _opened(self) -> MemoryTable:
        session = self._session.current()
        if self._table is None or self._opened_with is not session:
            self._table = MemoryTable.existing(self._folder, self._embedder, session)
            self._opened_with = session
        if self._table is None:
            with self._lock:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                if self._of_another_length():
                    raise IndexUnusableError("the memory index was rebuilt with vectors of another length")
                self._table = MemoryTable.made(self._folder, self._embedder, session)
        return self._table

    def _of_another_length(self) -> Sequence[TableWithVectors]:
        """Return the tables of this embedder whose vectors do not compare with those that it has here."""
        if self._embedder is None:
            return ()
        whose, dimension = self._embedder.id, self._embedder.dimension
        return [
            table
            for table in tables_with_vectors(self._folder)
            if table.embedder_id == whose and table.dimension != dimension
        ]

    def _close(self) -> None:
        self._table = self._opened_with = None
        self._contents = _Contents()

    def _discard(self) -> None:
        self._close()
        MemoryTable.remove(self._folder, self._embedder)

    def _agree(self, table: MemoryTable, document: MemorySnapshot) -> None:
        """Make the table hold the document; new memories without vectors."""
        missing, stale = self._difference(table, document)
        if missing or stale:
            with self._lock:
                missing, stale = self._difference(table, document)
                self._write(table, stale, missing, _NO_VECTORS)
        self._agreed(document)

    def _next_batch(self, table: MemoryTable, document: MemorySnapshot) -> Sequence[Memory]:
        """Remove what the document has no more, and return some of what is still to be added or embedded."""
        missing, stale = self._difference(table, document)
        if stale:
            with self._lock:
                _, stale = self._difference(table, document)
                self._write(table, stale, (), _NO_VECTORS)
        most = _ADDED_TOGETHER[self._embedder is not None]
        if missing:
            return missing[:most]
        self._agreed(document)
        if not self._contents.bare:
            return ()
        return [memory for memory in document.memories if memory.memory_id in self._contents.bare][:most]

    def _put(
        self, table: MemoryTable, batch: Sequence[Memory], vectors: Mapping[MemoryId, Vector], document: MemorySnapshot
    ) -> None:
        """Write what the document still has as it was when it was embedded."""
        said = {memory.memory_id: memory for memory in document.memories}
        batch = [
            memory
            for memory in batch
            if (now := said.get(memory.memory_id)) is not None and fingerprint(now) == fingerprint(memory)
        ]
        with self._lock:
            contents = self._known(table)
            new = [memory for memory in batch if memory.memory_id not in contents.rows]
            self._write(table, (), new, vectors)
            bare = [
                memory
                for memory in batch
                if memory.memory_id in contents.bare and contents.rows[memory.memory_id] == self._fingerprint(memory)
            ]
            if some := [memory for memory in bare if memory.memory_id in vectors]:
                table.set_vectors([(memory, self._fingerprint(memory)) for memory in some], vectors)
                self._session.wrote()
                contents.bare -= {memory.memory_id for memory in some}
                contents.rows.update((memory.memory_id, self._fingerprint(memory)) for memory in some)
                contents.version = table.version
            if not new and not bare:
                contents.generation = -1

    def _embed(
        self, document: Callable[[], MemorySnapshot], go_on: Callable[[], bool], patience: EmbeddingWait
    ) -> bool:
        """Add and embed what is missing, batch after batch; return False, having done nothing, if another process does the same.

        No lock is held while an embedder is waited for but the one that keeps others from asking it for the same.
        """
        with self._alone(patience) as alone:
            while alone and go_on():
                batch = self._use(partial(self._next_batch, document=document()))
                if not batch:
                    break
                vectors = self._embedded(batch, go_on, patience)
                self._use(partial(self._put, batch=batch, vectors=vectors, document=document()))
                if patience is EmbeddingWait.LONG:
                    self.tidy(is_idle=False)
                if self._embedder is not None and len(vectors) < len(batch):
                    break
        return alone

    @contextmanager
    def _alone(self, patience: EmbeddingWait) -> Iterator[bool]:
        """Tell whether no other process embeds this agent's memories with this embedder until the block ends; without one, always."""
        if self._embedder is None:
            yield True
            return
        path = self._folder.parent / f".embedding-{plain(self._embedder.id)}.lock"
        with ExitStack() as stack:
            alone = False
            try:
                stack.enter_context(FileLock(path, _WAITED_SECONDS[patience]))
                alone = True
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    if patience is EmbeddingWait.LONG:
                        raise IndexUnusableError(f"nothing can be embedded: {error}") from error
                    logger.warning("nothing can be embedded: %s", error)
            yield alone

    def _embedded(
        self, memories: Sequence[Memory], go_on: Callable[[], bool], patience: EmbeddingWait
    ) -> Mapping[MemoryId, Vector]:
        """Return the vectors, fewer if the embedder fails or its time is over: that is no fault of the index."""
        vectors: dict[MemoryId, Vector] = {}
        if self._embedder is None:
            return vectors
        size = self._embedder.batch_size
        for at in range(0, len(memories), size):
            if not go_on():
                break
            some = memories[at : at + size]
            try:
                with self._paying(some):
                    found = self._embedder.embed_documents([searchable(memory) for memory in some], patience)
            except (ToolTimeoutError, TimeoutError, MemoryError):
                raise
            except BudgetExhaustedError:
                break
            except Exception as error:  # noqa: BLE001 - a provider, a library or its files may fail in any way
                logger.warning(
                    "%d memories are left without vectors: %s failed: %s", len(memories) - at, self._embedder.id, error
                )
                break
            vectors.update((memory.memory_id, vector) for memory, vector in zip(some, found, strict=True))
        return vectors

    def _known(self, table: MemoryTable) -> _Contents:
        """Return what the table holds now."""
        version = table.version
        if version != self._contents.version:
            rows, bare = table.rows()
            self._contents = _Contents(version, rows, bare)
        return self._contents

    def _difference(self, table: MemoryTable, document: MemorySnapshot) -> tuple[Sequence[Memory], Sequence[MemoryId]]:
        """Return the memories that the table lacks, and the ids that it has and should not, or not as they are."""
        contents = self._known(table)
        if contents.generation == document.generation:
            new = document.memories[contents.agreed :]
            return [memory for memory in new if contents.rows.get(memory.memory_id) != self._fingerprint(memory)], ()
        wanted = {memory.memory_id: self._fingerprint(memory) for memory in document.memories}
        self._fingerprints = {memory_id: self._fingerprints[memory_id] for memory_id in wanted}
        stale = [memory_id for memory_id, value in contents.rows.items() if wanted.get(memory_id) != value]
        missing = [one for one in document.memories if contents.rows.get(one.memory_id) != wanted[one.memory_id]]
        return missing, stale

    def _agreed(self, document: MemorySnapshot) -> None:
        self._contents.generation, self._contents.agreed = document.generation, len(document.memories)

    def _fingerprint(self, memory: Memory) -> int:
        known = self._fingerprints.get(memory.memory_id)
        if known is None or known[0] is not memory:
            known = self._fingerprints[memory.memory_id] = memory, fingerprint(memory)
        return known[1]

    def _write(
        self,
        table: MemoryTable,
        stale: Sequence[MemoryId],
        new: Sequence[Memory],
        vectors: Mapping[MemoryId, Vector],
    ) -> None:
        contents = self._contents
        if stale:
            table.delete(stale)
            for memory_id in stale:
                contents.rows.pop(memory_id, None)
                contents.bare.discard(memory_id)
        if new:
            table.add([(memory, self._fingerprint(memory)) for memory in new], vectors)
            contents.rows.update((memory.memory_id, self._fingerprint(memory)) for memory in new)
            if self._embedder is not None:
                contents.bare |= {memory.memory_id for memory in new if memory.memory_id not in vectors}
        if stale or new:
            self._session.wrote()
            contents.version = table.version
