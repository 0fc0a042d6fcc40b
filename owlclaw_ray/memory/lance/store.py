"""The memories of all agents below one data folder."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct, field
from msgspec.structs import replace
from typing_extensions import override

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.embedding import EmbeddingPurpose
from owlclaw_ray.domain.memory import Memory, MemoryLimits, Recall
from owlclaw_ray.errors import BudgetExhaustedError, OwlClawError, ToolTimeoutError
from owlclaw_ray.ids import MemoryId, RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.memory import lexical
from owlclaw_ray.memory.dates import Spans, named_spans
from owlclaw_ray.memory.documents import MemoryHome
from owlclaw_ray.memory.embedding import Embedder, Embedders
from owlclaw_ray.memory.file import MemorySnapshot
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.memory.fusion import MemorySessions, SearchHits, rank
from owlclaw_ray.memory.lance.background import BackgroundIndexing, Indexing
from owlclaw_ray.memory.lance.index import MemoryIndex
from owlclaw_ray.memory.lance.index_migration import IndexMigration
from owlclaw_ray.memory.lance.table import Session
from owlclaw_ray.memory.lock import FileLock
from owlclaw_ray.models.embedding_account import EmbeddingAccount, on_account, present_account

_OPEN_AGENTS = 64
_OPEN_MEMORIES = 50_000
"""Known to be in the indexes that are open, over all agents; one agent's index is always open."""
_CATCHING_UP_SECONDS = 2.0
"""How long one recall may go on embedding what was never embedded: entries that people wrote, all after a new model."""
_KEPT_VECTORS = 256
_KEPT_ANSWERS = 64
MAX_ANSWER_MEMORIES = 20
"""Memories of an answer: what `recall` gives at most."""
_ANSWER_SECONDS = 600.0
"""Another worker may have rebuilt the index meanwhile."""


class QueryVectors:
    """Of all agents and embedders of a process: a vector depends on the question's text alone, until a provider gives a model's
    vectors another length. For any number of threads.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[tuple[str, str], Sequence[float]] = OrderedDict()

    def of(self, query: str, embedder: Embedder | None) -> tuple[Sequence[float] | None, str]:
        """Return the query's vector, or none: because there is no embedder, or, then with the reason, because it failed."""
        if embedder is None:
            return None, ""
        key = (embedder.id, query)
        with self._guard:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
        try:
            if known is not None and len(known) == embedder.dimension:
                return known, ""
            (vector,) = embedder.embed_queries([query])
        except (ToolTimeoutError, TimeoutError, MemoryError):
            raise
        except BudgetExhaustedError as error:
            return None, f"no vector for the question, words only: {error}"
        except Exception as error:  # noqa: BLE001 - a provider, a library or its files may fail in any way
            return None, f"the embedder {embedder.id} failed, words only: {type(error).__name__}: {error}"[:300]
        with self._guard:
            self._known[key] = array("f", vector)
            if len(self._known) > _KEPT_VECTORS:
                self._known.popitem(last=False)
        return vector, ""


class QueryCache:
    """For one state of MEMORY.md at a time: every change of the memories ends all answers. Not for several threads at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._generation = -1
        self._seen = 0
        self._answers: OrderedDict[tuple[str, frozenset[str], Spans], tuple[Recall, float]] = OrderedDict()
        self.by_id: dict[MemoryId, Memory] = {}
        self.sessions = MemorySessions()

    def enter(self, snapshot: MemorySnapshot) -> None:
        """Be about this state from now on. What was only added to the one before costs no more than itself."""
        memories = snapshot.memories
        if snapshot.generation != self._generation or len(memories) < self._seen:
            self._generation, self._seen = snapshot.generation, 0
            self.by_id, self.sessions = {}, MemorySessions()
            self._answers.clear()
        if len(memories) > self._seen:
            new = memories[self._seen :]
            self._seen = len(memories)
            self.by_id.update((memory.memory_id, memory) for memory in new)
            self.sessions.extend(new)
            self._answers.clear()

    def get(self, query: str, tags: Iterable[str], limit: int, days: Spans = ()) -> Recall | None:
        """Return what the query found, if it was asked in this state and named these days; it costs nothing a second time."""
        key = (query, frozenset(tags), days)
        answer, at = self._answers.get(key, (None, 0.0))
        if answer is None or limit > MAX_ANSWER_MEMORIES or self._clock.monotonic() - at > _ANSWER_SECONDS:
            return None
        self._answers.move_to_end(key)
        return replace(answer, memories=answer.memories[:limit])

    def put(self, query: str, tags: Iterable[str], recall: Recall, days: Spans = ()) -> None:
        """Keep an answer with at least the best MAX_ANSWER_MEMORIES memories, or all that there are."""
        kept = replace(recall, memories=recall.memories[:MAX_ANSWER_MEMORIES])
        self._answers[query, frozenset(tags), days] = (kept, self._clock.monotonic())
        if len(self._answers) > _KEPT_ANSWERS:
            self._answers.popitem(last=False)


class _Place(Struct, frozen=True):
    """What this process keeps for one agent."""

    document: Callable[[], MemorySnapshot]
    """What MEMORY.md says now."""
    index_migration: IndexMigration
    cache: QueryCache
    turn: threading.Lock = field(default_factory=threading.Lock)
    """One recall at a time."""


class LanceMemory(Indexing):
    """What agents remember: MEMORY.md is the truth, in `home` or without one in files below `data_dir`.

    `data_dir/agents/<agent's folder>/index/` is a LanceDB made from it, which every node has for itself. All errors of the index stay
    inside: it is made again from MEMORY.md. Without a target among the embedders recall is by words only. For any number of threads
    and processes. LanceDB is imported at the first use of an index, not before; indexing goes on in a thread after `remember` has
    answered. Whatever asks an embedder is on an account of the agent: a recall on its caller's, if that has one, indexing on one of
    its own.
    """

    def __init__(
        self,
        data_dir: Path,
        embedders: Embedders,
        clock: Clock,
        limits: MemoryLimits | None = None,
        home: MemoryHome | None = None,
        *,
        retention: Callable[[TenantId], timedelta | None] | None = None,
    ) -> None:
        """`retention`: see MemoryFolders."""
        self.files = MemoryFolders(data_dir, clock, limits, home=home, retention=retention)
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
            place = self._place(agent)
            with place.turn:
                place.cache.enter(document)
                days = named_spans(query, self._clock.now(), ZoneInfo(timezone))
                recall = place.cache.get(query, tags, limit, days)
                if recall is None:
                    found = self._found(place, query, limit, tags, days)
                    if not place.index_migration.migration_target.index.complete:
                        self._background.note(agent)
                    elif not found.degraded:
                        place.cache.put(query, tags, found, days)
                    recall = replace(found, memories=found.memories[:limit])
        made = tuple(account.calls[before:])
        return replace(recall, embeddings=made) if made else recall

    def _found(self, place: _Place, query: str, limit: int, tags: Sequence[str], days: Spans) -> Recall:
        among: Mapping[MemoryId, Memory] = place.cache.by_id
        if tags:
            among = {key: memory for key, memory in among.items() if set(tags) <= set(memory.tags)}
            if not among:
                return Recall(())
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
            hits, problem = SearchHits({}, {}), str(error)
        if not hits.bm25 and not hits.cosine:
            hits = SearchHits(lexical.search(query, tuple(among.values())), {})
        ranked = rank(hits, among, place.cache.sessions, query, days=days, limit=max(limit, MAX_ANSWER_MEMORIES))
        return Recall(tuple(ranked), bool(problem), problem)

    def reindex(self, agent: AgentRef) -> int:
        """Rebuild the agent's index from MEMORY.md, and return how many memories it holds.

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

    def indexed(self, agent: AgentRef) -> frozenset[MemoryId]:
        """Return the ids of the memories that the agent's index holds now."""
        return self._index(agent).held()

    def settle(self) -> None:
        """Return when the index holds all that was remembered through this object, or cannot."""
        self._background.settle()

    @override
    def catch_up(self, agent: AgentRef, go_on: Callable[[], bool]) -> bool:
        place = self._place(agent)
        with on_account(EmbeddingAccount(agent, EmbeddingPurpose.INDEX)):
            try:
                return place.index_migration.migration_target.index.catch_up(place.document, go_on)
            except BudgetExhaustedError:
                return True

    @override
    def tidy(self, agent: AgentRef) -> bool:
        return self._index(agent).tidy(is_idle=True)

    @override
    def clear(self, agent: AgentRef) -> None:
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
            while len(self._places) > 1:
                known = sum(each.index_migration.size for each in self._places.values())
                if len(self._places) <= _OPEN_AGENTS and known <= _OPEN_MEMORIES:
                    break
                self._places.popitem(last=False)
            return place

    def _new_index(self, agent: AgentRef, folder: Path, embedder: Embedder | None) -> MemoryIndex:
        def paying(memories: Sequence[Memory]) -> AbstractContextManager[EmbeddingAccount]:
            """Have the vectors be on the agent's account: as indexing of a run, if all memories are of that one."""
            runs = {memory.run_id for memory in memories}
            run_id = RunId(runs.pop() if len(runs) == 1 else "")
            return on_account(EmbeddingAccount(agent, EmbeddingPurpose.INDEX, run_id))

        return MemoryIndex(folder, embedder, FileLock(folder.parent / ".index.lock"), self._session, paying)
