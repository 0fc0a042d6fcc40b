"""What is known of one agent's memories beside their text: how they are found by id, what stands beside what, what was asked lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.memory import Memory, Recall
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.memory.dates import Spans
from owlclaw_ray.memory.file import MemorySnapshot
from owlclaw_ray.memory.fusion import MemorySessions

MAX_ANSWER_MEMORIES = 20
"""Memories of an answer: what `recall` gives at most."""
_ANSWERS = 64
_LASTS = timedelta(minutes=10).total_seconds()
"""Another worker may have made the index anew meanwhile."""


class _Answer(Struct, frozen=True):
    recall: Recall
    at: float


class QueryCache:
    """For one state of MEMORY.md at a time: every change of the memories ends all answers. Not for several threads at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._generation = -1
        self._seen = 0
        self._answers: OrderedDict[tuple[str, frozenset[str], Spans], _Answer] = OrderedDict()
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
        answer = self._answers.get(key)
        if answer is None or limit > MAX_ANSWER_MEMORIES or self._clock.monotonic() - answer.at > _LASTS:
            return None
        self._answers.move_to_end(key)
        return replace(answer.recall, memories=answer.recall.memories[:limit])

    def put(self, query: str, tags: Iterable[str], recall: Recall, days: Spans = ()) -> None:
        """Keep an answer with at least the best MAX_ANSWER_MEMORIES memories, or all that there are."""
        kept = replace(recall, memories=recall.memories[:MAX_ANSWER_MEMORIES])
        self._answers[query, frozenset(tags), days] = _Answer(kept, self._clock.monotonic())
        if len(self._answers) > _ANSWERS:
            self._answers.popitem(last=False)
