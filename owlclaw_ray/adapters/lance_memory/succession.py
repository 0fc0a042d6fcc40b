"""Which index answers while the configured embedder's is being made: the one before it, until then."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from owlclaw_ray.adapters.lance_memory.checksums import Checksums
from owlclaw_ray.adapters.lance_memory.index import MemoryIndex
from owlclaw_ray.adapters.lance_memory.naming import decode
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ports.embedding import Embedder, Embedders

_TABLE = ".lance"
_Table: TypeAlias = tuple[Path, str, int]
"""Where it is, whose vectors it has, and how long they are."""


@dataclass(frozen=True, slots=True)
class Serving:
    """An index, and the embedder whose vectors it takes."""

    index: MemoryIndex
    embedder: Embedder | None


class Succession:
    """The indexes of one agent in one folder. Not for several threads at once.

    An index of another embedder is an heir's predecessor as long as its embedder can be asked and the heir lacks vectors; then
    it is removed. An index by words only has none: it is made at once.
    """

    def __init__(
        self, folder: Path, embedders: Embedders, make: Callable[[Path, Embedder | None], MemoryIndex]
    ) -> None:
        self._folder, self._embedders, self._make = folder, embedders, make
        embedder = self._known(embedders.target)
        self.heir = Serving(make(folder, embedder), embedder)
        self._before = self._predecessor()

    @property
    def size(self) -> int:
        """How many memories the indexes are known to hold, each index for itself."""
        return self.heir.index.size + (self._before.index.size if self._before is not None else 0)

    def serving(self) -> Serving:
        """Return the index that answers now."""
        if self._before is not None and self._is_over(self._before):
            self._before = None
        return self._before or self.heir

    def _is_over(self, before: Serving) -> bool:
        """Return whether the heir takes over: it is complete, or it is in another process, which removed the one before."""
        if self.heir.index.complete:
            self._remove_others()
            return True
        return all(before.embedder is None or embedder_id != before.embedder.id for _, embedder_id, _ in self._tables())

    def restart(self) -> MemoryIndex:
        """Part with all indexes but the heir's, which is to be made anew, and return that.

        If the embedder has vectors of another length than when its table was made, that is another heir.
        """
        self._before = None
        self._remove_others()
        target, known = self._embedders.target, self.heir.embedder
        with suppress(OwlClawError):
            if target is not None and known is not None and target.dimension != known.dimension:
                self._remove(self._tables())
                self.heir = Serving(self._make(self._folder, target), target)
        return self.heir.index

    def _known(self, target: Embedder | None) -> Embedder | None:
        """Return the target with the dimension that its table has: its provider need not be asked for it."""
        if target is None:
            return None
        for _, embedder_id, dimension in self._tables():
            if embedder_id == target.id:
                return self._embedders.named(embedder_id, dimension) or target
        return target

    def _predecessor(self) -> Serving | None:
        """Return the index that was used last, of those of other embedders that can still be asked."""
        if self.heir.embedder is None:
            return None
        newest_first = sorted(self._tables(), key=lambda table: table[0].stat().st_mtime_ns, reverse=True)
        for _, embedder_id, dimension in newest_first:
            embedder = self._embedders.named(embedder_id, dimension)
            if embedder is not None and embedder_id != self.heir.embedder.id:
                return Serving(self._make(self._folder, embedder), embedder)
        return None

    def _remove_others(self) -> None:
        heir = self.heir.embedder
        self._remove(each for each in self._tables() if heir is None or each[1] != heir.id)

    def _remove(self, tables: Iterable[_Table]) -> None:
        for path, _, _ in tables:
            shutil.rmtree(path, ignore_errors=True)
            Checksums(path).remove()

    def _tables(self) -> Iterator[_Table]:
        for path in self._folder.glob(f"memories-*{_TABLE}"):
            decoded = decode(path.name.removesuffix(_TABLE))
            if decoded is not None:
                yield path, *decoded
