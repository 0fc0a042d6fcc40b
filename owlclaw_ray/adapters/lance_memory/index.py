"""The index of one agent: kept equal to MEMORY.md, thrown away and made again when it is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from owlclaw_ray.adapters.lance_memory.damage import IndexUnusableError, index_errors
from owlclaw_ray.adapters.lance_memory.table import Hits, MemoryTable, Vector, fingerprint, new_session
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.lexical import searchable
from owlclaw_ray.memory.lock import FolderLock
from owlclaw_ray.memory.markdown import Document
from owlclaw_ray.ports.memory import Embedder

T = TypeVar("T")

_EMBEDDED_TOGETHER = 8
_WRITES_BEFORE_REOPENING = 500
"""LanceDB keeps some memory for each write until its session is closed."""
_NO_VECTORS: Mapping[MemoryId, Vector] = {}


class MemoryIndex:
    """Opens lazily, and sees what other processes change. Not for several threads at once.

    Its methods raise IndexUnusableError when neither the index nor a new one in its place can be used.
    """

    def __init__(self, folder: Path, embedder: Embedder | None, lock: FolderLock) -> None:
        self._folder = folder
        self._embedder = embedder
        self._lock = lock
        self._session: Any = None
        self._table: MemoryTable | None = None
        self._version = self._embedded_version = -1
        self._writes = 0
        self._rows: dict[MemoryId, str] = {}
        self._memories: Sequence[Memory] = ()
        self._fingerprints: dict[MemoryId, tuple[Memory, str]] = {}

    def add(self, memory: Memory, document: Document) -> None:
        """Make the index hold the document, of which this memory is the newest part."""
        vectors = self._embedded([memory])
        self._use(lambda table: self._reconcile(table, document.memories, vectors))

    def search(
        self, document: Document, query: str, vector: Vector | None, tags: Sequence[str], go_on: Callable[[], bool]
    ) -> Hits:
        """Return what the query finds in the document, which the index is made to hold first.

        With a vector, memories that were never embedded are embedded before, while `go_on` says so.
        """

        def catch_up_and_search(table: MemoryTable) -> Hits:
            self._reconcile(table, document.memories, _NO_VECTORS)
            if vector is not None:
                self._embed_missing(table, document.by_id, go_on)
            return table.search(query, vector, tags)

        return self._use(catch_up_and_search)

    def _use(self, operation: Callable[[MemoryTable], T]) -> T:
        """Return what the operation gives: on the index as it is, as another process left it, or made anew."""
        with suppress(IndexUnusableError), index_errors():
            return operation(self._opened())
        with index_errors(), self._lock:
            self._close()
            with suppress(IndexUnusableError), index_errors():
                return operation(self._opened())
            self._close()
            shutil.rmtree(self._folder)
            return operation(self._opened())

    def _opened(self) -> MemoryTable:
        if self._table is None:
            with self._lock:
                self._folder.mkdir(exist_ok=True)
                self._session = self._session or new_session()
                self._table = MemoryTable(self._folder, self._embedder, self._session)
        return self._table

    def _close(self) -> None:
        self._session = self._table = None
        self._version = self._embedded_version = -1
        self._writes, self._rows = 0, {}

    def _reconcile(self, table: MemoryTable, memories: Sequence[Memory], vectors: Mapping[MemoryId, Vector]) -> None:
        version = table.version
        if version == self._version and memories is self._memories:
            return
        wanted = self._wanted(memories)
        if version != self._version:
            self._rows = table.rows()
        if wanted != self._rows:
            with self._lock:
                self._apply(table, memories, wanted, vectors, version)
                version = table.version
            self._rows = wanted
        self._version, self._memories = version, memories
        if self._writes >= _WRITES_BEFORE_REOPENING:
            self._close()

    def _embed_missing(
        self, table: MemoryTable, memories: Mapping[MemoryId, Memory], go_on: Callable[[], bool]
    ) -> None:
        """Embed what has no vector, a few at a time; each few are kept whatever happens next."""
        version = table.version
        if self._embedder is None or version == self._embedded_version:
            return
        while ids := table.without_vector(_EMBEDDED_TOGETHER):
            batch = [memories[memory_id] for memory_id in ids if memory_id in memories]
            vectors = self._embedded(batch) if batch and go_on() else {}
            if not vectors:
                return
            with self._lock:
                table.set_vectors(batch, vectors)
            self._after_write(table)
            version = table.version
        self._embedded_version = version

    def _embedded(self, memories: Sequence[Memory]) -> Mapping[MemoryId, Vector]:
        """Return the vectors, none if the embedder fails: that is no fault of the index."""
        with suppress(IndexUnusableError), index_errors():
            if self._embedder is not None:
                found = self._embedder.embed_documents([searchable(memory) for memory in memories])
                return {memory.memory_id: vector for memory, vector in zip(memories, found, strict=True)}
        return {}

    def _wanted(self, memories: Sequence[Memory]) -> dict[MemoryId, str]:
        """Return the fingerprints of all memories, computing only those of new objects."""
        known = self._fingerprints
        self._fingerprints = {
            memory.memory_id: (
                memory,
                before[1] if (before := known.get(memory.memory_id)) and before[0] is memory else fingerprint(memory),
            )
            for memory in memories
        }
        return {memory_id: value for memory_id, (_, value) in self._fingerprints.items()}

    def _apply(
        self,
        table: MemoryTable,
        memories: Sequence[Memory],
        wanted: Mapping[MemoryId, str],
        vectors: Mapping[MemoryId, Vector],
        version: int,
    ) -> None:
        """Carry out the difference; `version` is the one that the known rows are of."""
        rows = self._rows if table.version == version else table.rows()
        if stale := [memory_id for memory_id, value in rows.items() if wanted.get(memory_id) != value]:
            table.delete(stale)
        if missing := [one for one in memories if rows.get(one.memory_id) != wanted[one.memory_id]]:
            table.add(missing, vectors)
        self._after_write(table)

    def _after_write(self, table: MemoryTable) -> None:
        """Tidy up. That this fails beside another process's write is of no consequence: the next one does it."""
        self._writes += 1
        with suppress(IndexUnusableError), index_errors():
            table.optimize_if_due()
