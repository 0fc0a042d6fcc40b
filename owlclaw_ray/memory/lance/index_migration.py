"""Which index answers while the configured embedder's is being made: the one before it, until then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from owlclaw_ray.errors import ToolTimeoutError
from owlclaw_ray.memory.embedding import Embedder, Embedders
from owlclaw_ray.memory.file import MemorySnapshot
from owlclaw_ray.memory.lance.damage import index_errors
from owlclaw_ray.memory.lance.index import MemoryIndex
from owlclaw_ray.memory.lance.table import TableWithVectors, remove_tables, tables_with_vectors


class ServedIndex(Struct, frozen=True):
    """An index, and the embedder whose vectors it takes."""

    index: MemoryIndex
    embedder: Embedder | None


class IndexMigration:
    """The indexes of one agent in one folder. `migration_target` and `size` are for any number of threads, the rest for one at a time.

    The newest index of another embedder answers as long as that embedder can be asked and the target lacks vectors; then it is
    removed. Where the target is an index by words only, that one answers at once.
    """

    def __init__(
        self, folder: Path, embedders: Embedders, make: Callable[[Path, Embedder | None], MemoryIndex]
    ) -> None:
        self._folder, self._embedders, self._make = folder, embedders, make
        self._turn = threading.Lock()
        target = embedders.target
        if target is not None and (own := self._tables_of(target)):
            # with the dimension that its newest table has: the provider need not be asked for it
            remove_tables(own[1:])
            target = embedders.named(target.id, own[0].dimension) or target
        self._migration_target = self._made(target)
        self._before: ServedIndex | None = None
        if target is not None:
            others = [table for table in tables_with_vectors(folder) if table.embedder_id != target.id]
            known = (embedders.named(table.embedder_id, table.dimension) for table in others)
            self._before = next((self._made(embedder) for embedder in known if embedder is not None), None)

    @property
    def migration_target(self) -> ServedIndex:
        """The index of the configured embedder; another one after another process rebuilt it with vectors of another length."""
        with self._turn:
            present = self._migration_target.embedder
            own = [] if present is None else self._tables_of(present)
            if own and _length(present) not in {table.dimension for table in own}:
                embedder = self._embedders.named(own[0].embedder_id, own[0].dimension)
                if _length(embedder) == own[0].dimension:
                    self._migration_target = self._made(embedder)
            return self._migration_target

    @property
    def size(self) -> int:
        """How many memories the indexes are known to hold, each index for itself."""
        return self._migration_target.index.size + (self._before.index.size if self._before is not None else 0)

    def serving(self) -> ServedIndex:
        """Return the index that answers now."""
        migration_target = self.migration_target
        if self._before is not None:
            if migration_target.index.complete:
                self._remove_others(migration_target)
                self._before = None
            elif self._before.embedder is not None and not self._tables_of(self._before.embedder):
                self._before = None  # another process completed the new index and removed this one
        return self._before or migration_target

    def restart(self, document: MemorySnapshot) -> int:
        """Rebuild the target's index and remove all others; return how many memories it holds.

        If the embedder has vectors of another length than before, the target is another one. Nothing is removed before the
        embedder has given the length: if anything is raised until then, the old index stays in use.
        """
        target, migration_target = self._embedders.renewed(), self.migration_target
        with index_errors():
            if target is not None and target.dimension != _length(migration_target.embedder):
                migration_target = self._made(target)
        number = migration_target.index.rebuild(document)
        with self._turn:
            self._migration_target, self._before = migration_target, None
        self._remove_others(migration_target)
        return number

    def _made(self, embedder: Embedder | None) -> ServedIndex:
        return ServedIndex(self._make(self._folder, embedder), embedder)

    def _tables_of(self, embedder: Embedder) -> list[TableWithVectors]:
        return [table for table in tables_with_vectors(self._folder) if table.embedder_id == embedder.id]

    def _remove_others(self, migration_target: ServedIndex) -> None:
        whose = None if migration_target.embedder is None else migration_target.embedder.id
        remove_tables(table for table in tables_with_vectors(self._folder) if table.embedder_id != whose)


def _length(embedder: Embedder | None) -> int:
    """Return how long the vectors are, 0 if there are none or it cannot be had now."""
    try:
        return 0 if embedder is None else embedder.dimension
    except (ToolTimeoutError, TimeoutError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - a provider may fail in any way, and has told nothing then
        return 0
