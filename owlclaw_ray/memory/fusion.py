"""The order of recalled memories: words and meaning blended, context of the same run and the day that was asked for added.

The weights were measured on labelled dialogue retrieval, English and Chinese (`python -m benchmarks retrieval`), and are on a
plateau: values a third smaller or larger, and other ways to scale cosines (by their standard deviation, by their distance from the
mean or the median) change one set for the better and another for the worse. Reciprocal rank fusion did worse than a blend; raw
cosines of the embedder lie too close together to be compared with anything, hence the min-max scaling. Age as a factor, however
small, was no gain on any set and a loss on the largest: it breaks ties, and a newer memory goes before an older one that it replaces.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from heapq import nlargest, nsmallest

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.memory import Memory, ScoredMemory, ScoreParts
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.dates import Spans, named_spans
from owlclaw_ray.memory.lexical import is_mostly_cjk, search, significant_words
from owlclaw_ray.memory.replacement import replaces, text_fingerprint

WORD_SHARE = 0.6
WORD_SHARE_CJK = 0.35
NEIGHBOUR_SHARE = 0.3
NAMED_DAY = 0.4
"""What a memory gains that was stored on a day that the query names: less than one gains whose words name that day."""
FULL_MATCH = 0.5
"""The share of the highest BM25 score a query could have from which the best match by words counts in full; below it, less."""
MIN_SPREAD = 0.05
"""Cosines nearer together than this are alike: two memories of one fact are not pulled apart to 0 and 1."""
AS_RELEVANT = 0.5
"""How near a memory must come to the score of an older one that it replaces, to go before it."""
_EQUAL = 1e-9


class SearchHits(Struct, frozen=True):
    """What a search found: scores by words, and cosines by meaning. An empty one leaves the whole weight to the other."""

    bm25: Mapping[MemoryId, float]
    cosine: Mapping[MemoryId, float]


class MemorySessions:
    """Which memories were stored just before and just after which, in the same session: a conversation, or a run."""

    def __init__(self, memories: Sequence[Memory] = ()) -> None:
        self._before: dict[MemoryId, MemoryId] = {}
        self._after: dict[MemoryId, MemoryId] = {}
        self._last: dict[str, MemoryId] = {}
        self.extend(memories)

    def extend(self, memories: Sequence[Memory]) -> None:
        """Take in what was stored after the others."""
        for memory in memories:
            if session := memory.session or memory.run_id:
                memory_id = memory.memory_id
                if (before := self._last.get(session)) is not None:
                    self._before[memory_id], self._after[before] = before, memory_id
                self._last[session] = memory_id

    def gains(self, relevance: Mapping[MemoryId, float]) -> dict[MemoryId, float]:
        """Return what memories gain from the relevance of their neighbours."""
        gains: dict[MemoryId, float] = defaultdict(float)
        for beside in (self._before, self._after):
            if beside:
                for memory_id, value in relevance.items():
                    if value > 0 and (neighbour := beside.get(memory_id)) is not None:
                        gains[neighbour] += NEIGHBOUR_SHARE * value
        return gains


def rank(
    hits: SearchHits,
    memories: Mapping[MemoryId, Memory],
    sessions: MemorySessions,
    query: str,
    *,
    days: Spans,
    limit: int,
) -> list[ScoredMemory]:
    """Return the best `limit` of the memories that either search found, that stand beside such a one in its session, or that were
    stored on one of the days, which the query names.

    `memories` are those that may be returned. The best is first, of equal ones the newer.
    """
    share = WORD_SHARE_CJK if is_mostly_cjk(query) else WORD_SHARE
    if not hits.bm25 or not hits.cosine:
        share = 0.0 if hits.cosine else 1.0
    # the BM25 score of a full match: of a memory with enough of the query's words, each of them rare
    full = FULL_MATCH * len(significant_words(query)) * math.log(1 + len(memories))
    top = max(full, *hits.bm25.values()) if hits.bm25 else full
    words = {memory_id: score / top if top > 0 else 0.0 for memory_id, score in hits.bm25.items()}
    low, high = min(hits.cosine.values(), default=0.0), max(hits.cosine.values(), default=0.0)
    spread = max(high - low, MIN_SPREAD)
    meaning = {memory_id: 1.0 - (high - score) / spread for memory_id, score in hits.cosine.items()}
    relevance = {
        memory_id: share * words.get(memory_id, 0.0) + (1 - share) * meaning.get(memory_id, 0.0)
        for memory_id in words.keys() | meaning.keys()
    }
    near = sessions.gains(relevance)
    dated = {
        key: NAMED_DAY for begin, end in days for key, memory in memories.items() if begin <= memory.created_at < end
    }
    scores = {
        memory_id: relevance.get(memory_id, 0.0) + near.get(memory_id, 0.0) + dated.get(memory_id, 0.0)
        for memory_id in relevance.keys() | near.keys() | dated.keys()
        if memory_id in memories
    }
    least = min(nlargest(limit, scores.values()), default=0.0) - _EQUAL
    near_best = [memory_id for memory_id, score in scores.items() if score >= least]
    best = nsmallest(limit, near_best, key=lambda memory_id: _place(scores[memory_id], memories[memory_id]))
    found = [
        ScoredMemory(
            memories[memory_id],
            ScoreParts(
                words=words.get(memory_id, 0.0),
                meaning=meaning.get(memory_id, 0.0),
                word_share=share,
                neighbours=near.get(memory_id, 0.0),
                bm25=hits.bm25.get(memory_id),
                cosine=hits.cosine.get(memory_id),
                day=dated.get(memory_id, 0.0),
            ),
        )
        for memory_id in best
    ]
    return _newer_first(found, query)


def _newer_first(ranked: list[ScoredMemory], query: str) -> list[ScoredMemory]:
    """Return them with a newer one before each older one that it replaces: its score is raised to the older one's."""
    asked = text_fingerprint(query)
    gists = [text_fingerprint(each.memory.content) for each in ranked]
    raised: dict[int, float] = {}
    for at, older in enumerate(ranked):
        top = raised.get(at, older.score)
        for below in range(at + 1, len(ranked)):
            newer = ranked[below]
            if newer.score < AS_RELEVANT * older.score:
                break
            if newer.memory.created_at > older.memory.created_at and replaces(gists[below], gists[at], asked):
                raised[below] = max(top, raised.get(below, 0.0))
    if not raised:
        return ranked
    lifted = [
        replace(each, parts=replace(each.parts, newer=raised[at] - each.score)) if at in raised else each
        for at, each in enumerate(ranked)
    ]
    return sorted(lifted, key=lambda each: _place(each.score, each.memory))


def rank_by_words(
    query: str, memories: Sequence[Memory], now: datetime, limit: int, zone: tzinfo = UTC
) -> list[ScoredMemory]:
    """Return the best `limit` of the memories as `rank` does, by the words that they share with the query, without any index."""
    by_id = {memory.memory_id: memory for memory in memories}
    days = named_spans(query, now, zone)
    return rank(SearchHits(search(query, memories), {}), by_id, MemorySessions(memories), query, days=days, limit=limit)


def _place(score: float, memory: Memory) -> tuple[float, float, MemoryId]:
    return -round(score, 9), -memory.created_at.timestamp(), memory.memory_id
