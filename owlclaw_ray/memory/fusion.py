"""The order of recalled memories: words and meaning blended, context of the same run added, age taken off.

The weights were measured on labelled dialogue retrieval, English and Chinese. Reciprocal rank fusion did worse than
words alone; raw cosines of the embedder lie too close together to be compared with anything, hence the min-max scaling.
Age changes the order only: a memory never disappears for being old.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from owlclaw_ray.domain.memory import Memory, ScoredMemory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.lexical import is_mostly_cjk

WORD_SHARE = 0.6
WORD_SHARE_CJK = 0.35
NEIGHBOUR_SHARE = 0.3
LASTING_SHARE = 0.85
HALF_LIFE = timedelta(days=60)
LEAST_SPREAD = 0.05
"""Cosines nearer together than this are alike: two memories of one fact are not pulled apart to 0 and 1."""


def rank(
    memories: Sequence[Memory],
    bm25: Mapping[MemoryId, float],
    cosine: Mapping[MemoryId, float],
    query: str,
    now: datetime,
) -> list[ScoredMemory]:
    """Return the memories that either search found, best first; of equal ones the newer first.

    `memories` are those that may be returned, oldest first; neighbours are counted among them. An empty `bm25` or
    `cosine` leaves the whole weight to the other.
    """
    relevance = _blend(bm25, cosine, WORD_SHARE_CJK if is_mostly_cjk(query) else WORD_SHARE)
    near = _neighbours(memories, relevance)
    scored = [
        ScoredMemory(
            memory, (relevance.get(memory.memory_id, 0.0) + near.get(memory.memory_id, 0.0)) * _decay(memory, now)
        )
        for memory in memories
        if memory.memory_id in relevance or memory.memory_id in near
    ]
    return sorted(scored, key=lambda one: (-one.score, -one.memory.created_at.timestamp(), one.memory.memory_id))


def _blend(bm25: Mapping[MemoryId, float], cosine: Mapping[MemoryId, float], share: float) -> dict[MemoryId, float]:
    word_scores, meaning_scores = _by_maximum(bm25), _by_range(cosine)
    if not cosine:
        return word_scores
    if not bm25:
        return meaning_scores
    return {
        memory_id: share * word_scores.get(memory_id, 0.0) + (1 - share) * meaning_scores.get(memory_id, 0.0)
        for memory_id in word_scores.keys() | meaning_scores.keys()
    }


def _by_maximum(scores: Mapping[MemoryId, float]) -> dict[MemoryId, float]:
    top = max(scores.values(), default=0.0)
    return {memory_id: score / top for memory_id, score in scores.items()} if top > 0 else dict.fromkeys(scores, 0.0)


def _by_range(scores: Mapping[MemoryId, float]) -> dict[MemoryId, float]:
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    spread = max(high - low, LEAST_SPREAD)
    return {memory_id: 1.0 - (high - score) / spread for memory_id, score in scores.items()}


def _neighbours(memories: Sequence[Memory], relevance: Mapping[MemoryId, float]) -> dict[MemoryId, float]:
    """Return what each memory gains from those stored just before and after it in the same run."""
    runs: dict[str, list[MemoryId]] = defaultdict(list)
    for memory in memories:
        if memory.run_id:
            runs[memory.run_id].append(memory.memory_id)
    gains: dict[MemoryId, float] = defaultdict(float)
    for ids in runs.values():
        for before, after in pairwise(ids):
            if before in relevance:
                gains[after] += NEIGHBOUR_SHARE * relevance[before]
            if after in relevance:
                gains[before] += NEIGHBOUR_SHARE * relevance[after]
    return {memory_id: gain for memory_id, gain in gains.items() if gain > 0}


def _decay(memory: Memory, now: datetime) -> float:
    age = max(now - memory.created_at, timedelta(0))
    return LASTING_SHARE + (1 - LASTING_SHARE) * math.pow(0.5, age / HALF_LIFE)
