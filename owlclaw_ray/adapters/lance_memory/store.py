"""The memories of all agents below one data folder."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from owlclaw_ray.adapters.lance_memory.background import BackgroundIndexing
from owlclaw_ray.adapters.lance_memory.damage import IndexUnusableError, index_errors
from owlclaw_ray.adapters.lance_memory.index import MemoryIndex
from owlclaw_ray.adapters.lance_memory.table import Hits, Session, Vector
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, Recall
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory import lexical
from owlclaw_ray.memory.archive import MemoryLimits
from owlclaw_ray.memory.file import Snapshot
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.memory.fusion import rank
from owlclaw_ray.memory.lock import FileLock
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.memory import Embedder

_OPEN_AGENTS = 64
_OPEN_MEMORIES = 50_000
"""Known to be in the indexes that are open, over all agents; one agent's index is always open."""
_CATCHING_UP_SECONDS = 2.0
"""How long one recall may go on embedding what was never embedded: entries that people wrote, all after a new model."""


class LanceMemory:
    """MemoryStore over `data_dir/agents/<agent's folder>/`: MEMORY.md is the truth, `index/` a LanceDB made from it.

    Without an embedder recall is by words only. For any number of threads and processes. LanceDB is imported at the first use
    of an index, not before; indexing goes on in a thread after `remember` has answered.
    """

    def __init__(
        self, data_dir: Path, embedder: Embedder | None, clock: Clock, limits: MemoryLimits | None = None
    ) -> None:
        self.files = MemoryFolders(data_dir, clock, limits)
        self._embedder = embedder
        self._clock = clock
        self._indexes: OrderedDict[AgentRef, MemoryIndex] = OrderedDict()
        self._guard = threading.Lock()
        self._session = Session()
        self._background = BackgroundIndexing(self)

    def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """See MemoryStore.remember. Raises OSError if MEMORY.md cannot be written, ValueError if the id cannot stand in it."""
        with self.files.file(agent) as file:
            stored = file.append(memory)
        self._background.note(agent)
        return stored

    def recall(self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = ()) -> Recall:
        """Return the memories that fit best; see MemoryStore. Raises OSError if MEMORY.md is there and unreadable."""
        with self.files.file(agent) as file:
            document = file.load()
        among = document.memories
        if tags:
            among = tuple(memory for memory in among if set(tags) <= set(memory.tags))
        if not among:
            return Recall(())
        index = self._index(agent)
        hits, problem = self._search(index, document, query, tags)
        if not problem and not index.complete:
            self._background.note(agent)
        if not hits.bm25 and not hits.cosine:
            hits = Hits(lexical.search(query, among), {})
        ranked = rank(among, hits.bm25, hits.cosine, query, self._clock.now())
        return Recall(tuple(ranked[:limit]), degraded=bool(problem), reason=problem)

    def memories(self, agent: AgentRef) -> tuple[Memory, ...]:
        """Return what MEMORY.md holds now."""
        return self.files.memories(agent)

    def reindex(self, agent: AgentRef) -> int:
        """See MemoryStore.reindex."""
        with self.files.file(agent) as file:
            document = file.load()
        number = self._index(agent).rebuild(document)
        self._background.note(agent)
        return number

    def indexed(self, agent: AgentRef) -> frozenset[MemoryId]:
        """Return the ids of the memories that the agent's index holds now."""
        return self._index(agent).held()

    def settle(self) -> None:
        """See MemoryStore.settle."""
        self._background.settle()

    def catch_up(self, agent: AgentRef, go_on: Callable[[], bool]) -> None:
        """See Indexing.catch_up."""

        def document() -> Snapshot:
            with self.files.file(agent) as file:
                return file.load()

        self._index(agent).catch_up(document, go_on)

    def tidy(self, agent: AgentRef) -> bool:
        """See Indexing.tidy."""
        return self._index(agent).tidy(is_idle=True)

    def clear(self, agent: AgentRef) -> None:
        """See Indexing.clear."""
        self._index(agent).clear()

    def _index(self, agent: AgentRef) -> MemoryIndex:
        with self._guard:
            index = self._indexes.pop(agent, None)
            if index is None:
                folder = self.files.folder(agent)
                lock = FileLock(folder / ".index.lock")
                index = MemoryIndex(folder / "index", self._embedder, lock, self._session)
            self._indexes[agent] = index
            while len(self._indexes) > 1 and self._is_too_much_open():
                self._indexes.popitem(last=False)
            return index

    def _is_too_much_open(self) -> bool:
        known = sum(index.size for index in self._indexes.values())
        return len(self._indexes) > _OPEN_AGENTS or known > _OPEN_MEMORIES

    def _search(self, index: MemoryIndex, document: Snapshot, query: str, tags: Sequence[str]) -> tuple[Hits, str]:
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
