"""The memories of all agents below one data folder."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct, field
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.embedding import EmbeddingPurpose
from owlclaw_ray.domain.memory import Memory, MemoryLimits, Recall
from owlclaw_ray.errors import BudgetExhaustedError, OwlClawError, ToolTimeoutError
from owlclaw_ray.ids import MemoryId, RunId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.memory import lexical
from owlclaw_ray.memory.dates import Spans, named_spans
from owlclaw_ray.memory.embedding import Embedder, Embedders
from owlclaw_ray.memory.file import MemorySnapshot
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.memory.fusion import SearchHits, rank
from owlclaw_ray.memory.lance.background import BackgroundIndexing
from owlclaw_ray.memory.lance.index import MemoryIndex
from owlclaw_ray.memory.lance.index_migration import IndexMigration
from owlclaw_ray.memory.lance.query_vectors import QueryVectors
from owlclaw_ray.memory.lance.table import Session
from owlclaw_ray.memory.lock import FileLock
from owlclaw_ray.memory.query_cache import MAX_ANSWER_MEMORIES, QueryCache
from owlclaw_ray.models.embedding_account import EmbeddingAccount, on_account, present_account

_OPEN_AGENTS = 64
_OPEN_MEMORIES = 50_000
"""Known to be in the indexes that are open, over all agents; one agent's index is always open."""
_CATCHING_UP_SECONDS = 2.0
"""How long one recall may go on embedding what was never embedded: entries that people wrote, all after a new model."""


class _Place(Struct, frozen=True):
    """What this process keeps for one agent."""

    document: Callable[[], MemorySnapshot]
    """What MEMORY.md says now."""
    index_migration: IndexMigration
    cache: QueryCache
    turn: threading.Lock = field(default_factory=threading.Lock)
    """One recall at a time."""


class _Search(Struct, frozen=True):
    """What an index found, and what is wrong with it (nothing: empty)."""

    hits: SearchHits
    problem: str


class LanceMemory:
    """What agents remember in `data_dir/agents/<agent's folder>/`: MEMORY.md is the truth, `index/` a LanceDB made from it.

    All errors of the index stay inside: it is made again from MEMORY.md.
    Without a target among the embedders recall is by words only. For any number of threads and processes. LanceDB is imported
    at the first use of an index, not before; indexing goes on in a thread after `remember` has answered. Whatever asks an
    embedder is on an account of the agent: a recall on its caller's, if that has one, indexing on one of its own.
    """

    def __init__(
        self,
        data_dir: Path,
        embedders: Embedders,
        clock: Clock,
        limits: MemoryLimits | None = None,
    ) -> None:
        self.files = MemoryFolders(data_dir, clock, limits)
        self._embedders = embedders
        self._clock = clock
        self._vectors = QueryVectors()
        self._places: OrderedDict[AgentRef, _Place] = OrderedDict()
        self._guard = threading.Lock()
        self._session = Session()
        self._background = BackgroundIndexing(self)

    def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """Store the memory in MEMORY.md and return what is stored, fsynced; the index follows in its own time.

        A memory whose id is already there, in the archive too, is not stored again: the first is returned. One that is
        equal to an active memory but for its form is merged into it: tags united, the newer time, `count` raised, once for each
        id, and its text kept in `also`. Raises OSError if MEMORY.md cannot be written, ValueError if the id cannot
        stand in it.
        """
        with self.files.file(agent) as file:
            stored = file.append(memory)
        self._background.note(agent)
        return stored

    def recall(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), timezone: str = "UTC"
    ) -> Recall:
        """Return up to `limit` memories, best first, that carry all of `tags`, everything remembered before included.

        Days that the query names, such as "yesterday", are those of the IANA zone.
        An unusable index is no error: MEMORY.md is searched word by word and the recall is `degraded`. An agent without
        memories gives an empty recall. Raises OSError if MEMORY.md is there and unreadable.
        """
        document = self._document(agent)
        if not document.memories:
            return Recall(())
        account = present_account() or EmbeddingAccount(agent, EmbeddingPurpose.RECALL)
        before = len(account.calls)
        with on_account(account):
            recall = self._recalled(agent, document, query, limit, tags, timezone=timezone)
        made = tuple(account.calls[before:])
        return replace(recall, embeddings=made) if made else recall

    def _recalled(
        self, agent: AgentRef, document: MemorySnapshot, query: str, limit: int, tags: Sequence[str], *, timezone: str
    ) -> Recall:
        place = self._place(agent)
        with place.turn:
            place.cache.enter(document)
            days = named_spans(query, self._clock.now(), ZoneInfo(timezone))
            known = place.cache.get(query, tags, limit, days)
            if known is not None:
                return known
            recall = self._found(place, query, limit, tags, days)
            if not place.index_migration.migration_target.index.complete:
                self._background.note(agent)
            elif not recall.degraded:
                place.cache.put(query, tags, recall, days)
            return replace(recall, memories=recall.memories[:limit])

    def _found(self, place: _Place, query: str, limit: int, tags: Sequence[str], days: Spans) -> Recall:
        among: Mapping[MemoryId, Memory] = place.cache.by_id
        if tags:
            among = {key: memory for key, memory in among.items() if set(tags) <= set(memory.tags)}
            if not among:
                return Recall(())
        search = self._search(place, query, tags)
        hits = search.hits
        if not hits.bm25 and not hits.cosine:
            hits = SearchHits(lexical.search(query, tuple(among.values())), {})
        ranked = rank(hits, among, place.cache.sessions, query, days=days, limit=max(limit, MAX_ANSWER_MEMORIES))
        return Recall(tuple(ranked), bool(search.problem), search.problem)

    def reindex(self, agent: AgentRef) -> int:
        """Throw the agent's index away, make it anew from MEMORY.md, and return how many memories it holds.

        Raises OwlClawError if that is not possible.
        """
        document = self._document(agent)
        place = self._place(agent)
        with place.turn, on_account(EmbeddingAccount(agent, EmbeddingPurpose.INDEX)):
            number = place.index_migration.restart(document)
        self._background.note(agent)
        return number

    def refresh(self, agent: AgentRef) -> None:
        """Have the index follow soon what others than this object changed in MEMORY.md: what is gone there leaves it."""
        self._background.note(agent)

    def search_archive(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), timezone: str = "UTC"
    ) -> Recall:
        """Return the archived memories that fit best, as `MemoryFolders.search_archive` does."""
        return self.files.search_archive(agent, query, limit, tags, timezone)

    def indexed(self, agent: AgentRef) -> frozenset[MemoryId]:
        """Return the ids of the memories that the agent's index holds now."""
        return self._index(agent).held()

    def settle(self) -> None:
        """Return when the index holds all that was remembered through this object, or cannot."""
        self._background.settle()

    def catch_up(self, agent: AgentRef, go_on: Callable[[], bool]) -> bool:
        """See Indexing.catch_up."""
        place = self._place(agent)
        with on_account(EmbeddingAccount(agent, EmbeddingPurpose.INDEX)):
            try:
                return place.index_migration.migration_target.index.catch_up(place.document, go_on)
            except BudgetExhaustedError:
                return True

    def tidy(self, agent: AgentRef) -> bool:
        """See Indexing.tidy."""
        return self._index(agent).tidy(is_idle=True)

    def clear(self, agent: AgentRef) -> None:
        """See Indexing.clear."""
        self._index(agent).clear()

    def _index(self, agent: AgentRef) -> MemoryIndex:
        with on_account(EmbeddingAccount(agent, EmbeddingPurpose.INDEX)):
            return self._place(agent).index_migration.migration_target.index

    def _document(self, agent: AgentRef) -> MemorySnapshot:
        with self.files.file(agent) as file:
            return file.load()

    def _place(self, agent: AgentRef) -> _Place:
        with self._guard:
            place = self._places.pop(agent, None)
            if place is None:
                index_migration = IndexMigration(
                    self.files.folder(agent) / "index", self._embedders, partial(self._new_index, agent)
                )
                place = _Place(partial(self._document, agent), index_migration, QueryCache(self._clock))
            self._places[agent] = place
            while len(self._places) > 1 and self._exceeds_cache():
                self._places.popitem(last=False)
            return place

    def _exceeds_cache(self) -> bool:
        known = sum(place.index_migration.size for place in self._places.values())
        return len(self._places) > _OPEN_AGENTS or known > _OPEN_MEMORIES

    def _new_index(self, agent: AgentRef, folder: Path, embedder: Embedder | None) -> MemoryIndex:
        lock = FileLock(folder.parent / ".index.lock")
        return MemoryIndex(folder, embedder, lock, self._session, partial(_indexing, agent))

    def _search(self, place: _Place, query: str, tags: Sequence[str]) -> _Search:
        serving = place.index_migration.serving()
        vector, problem = self._vectors.of(query, serving.embedder)
        started = self._clock.monotonic()
        try:
            hits = serving.index.search(
                place.document, query, vector, tags, lambda: self._clock.monotonic() - started < _CATCHING_UP_SECONDS
            )
        except ToolTimeoutError:
            raise
        except OwlClawError as error:
            return _Search(SearchHits({}, {}), str(error))
        return _Search(hits, problem)


def _indexing(agent: AgentRef, memories: Sequence[Memory]) -> AbstractContextManager[EmbeddingAccount]:
    """Have vectors of memories be on the agent's account: as indexing of a run, if all of them are of that one."""
    runs = {memory.run_id for memory in memories}
    run_id = RunId(runs.pop() if len(runs) == 1 else "")
    return on_account(EmbeddingAccount(agent, EmbeddingPurpose.INDEX, run_id))
