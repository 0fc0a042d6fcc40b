"""The memories of all agents below one data folder."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from owlclaw_ray.adapters.lance_memory.damage import IndexUnusableError, index_errors
from owlclaw_ray.adapters.lance_memory.index import MemoryIndex
from owlclaw_ray.adapters.lance_memory.table import Hits, Vector
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, Recall
from owlclaw_ray.memory import lexical
from owlclaw_ray.memory.archive import ArchiveLimits
from owlclaw_ray.memory.file import MemoryFile
from owlclaw_ray.memory.fusion import rank
from owlclaw_ray.memory.lock import FolderLock
from owlclaw_ray.memory.markdown import Document
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.memory import Embedder

_OPEN_AGENTS = 64
_CATCHING_UP_SECONDS = 2.0
"""How long one recall may go on embedding what was never embedded: entries that people wrote, all after a new model."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one agent's memories are."""

    file: MemoryFile
    index: MemoryIndex


class LanceMemory:
    """MemoryStore over `data_dir/agents/<agent's folder>/`: MEMORY.md is the truth, `index/` a LanceDB made from it.

    Without an embedder recall is by words only. For any number of threads, one at a time, and any number of processes.
    LanceDB is imported at the first use, not before.
    """

    def __init__(
        self, data_dir: Path, embedder: Embedder | None, clock: Clock, limits: ArchiveLimits | None = None
    ) -> None:
        self._data_dir = data_dir
        self._embedder = embedder
        self._clock = clock
        self._limits = limits or ArchiveLimits()
        self._places: OrderedDict[AgentRef, _Place] = OrderedDict()
        self._guard = threading.Lock()

    def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """Store the memory; see MemoryStore. Equal content with equal tags is stored once: the first is returned.

        Raises OSError if MEMORY.md cannot be written, ValueError if the id does not begin with `mem_`.
        """
        with self._guard:
            place = self._place(agent)
            stored = place.file.append(memory)
            with suppress(IndexUnusableError):
                place.index.add(stored, place.file.load())
            return stored

    def recall(self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = ()) -> Recall:
        """Return the memories that fit best; see MemoryStore. Raises OSError if MEMORY.md is there and unreadable."""
        with self._guard:
            place = self._place(agent)
            document = place.file.load()
            among = document.memories
            if tags:
                among = tuple(memory for memory in among if set(tags) <= set(memory.tags))
            if not among:
                return Recall(())
            hits, problem = self._search(place.index, document, query, tags)
            if not hits.bm25 and not hits.cosine:
                hits = Hits(lexical.search(query, among), {})
            ranked = rank(among, hits.bm25, hits.cosine, query, self._clock.now())
            return Recall(tuple(ranked[:limit]), degraded=bool(problem), reason=problem)

    def memories(self, agent: AgentRef) -> tuple[Memory, ...]:
        """Return what MEMORY.md holds now."""
        with self._guard:
            return self._place(agent).file.load().memories

    def _place(self, agent: AgentRef) -> _Place:
        place = self._places.pop(agent, None)
        if place is None:
            folder = self._data_dir / "agents" / agent.folder
            lock = FolderLock(folder)
            index = MemoryIndex(folder / "index", self._embedder, lock)
            place = _Place(MemoryFile(folder, lock, self._limits), index)
            if len(self._places) >= _OPEN_AGENTS:
                self._places.popitem(last=False)
        self._places[agent] = place
        return place

    def _search(self, index: MemoryIndex, document: Document, query: str, tags: Sequence[str]) -> tuple[Hits, str]:
        """Return what the index found, and what is wrong with it (nothing: empty)."""
        vector: Vector | None = None
        problem = ""
        if self._embedder is not None:
            try:
                with index_errors():
                    vector = self._embedder.embed_queries([query])[0]
            except IndexUnusableError as error:
                problem = f"the embedder {self._embedder.id} failed, words only: {error.__cause__}"
        started = self._clock.monotonic()
        try:
            hits = index.search(
                document, query, vector, tags, lambda: self._clock.monotonic() - started < _CATCHING_UP_SECONDS
            )
        except IndexUnusableError as error:
            return Hits({}, {}), str(error)
        return hits, problem
