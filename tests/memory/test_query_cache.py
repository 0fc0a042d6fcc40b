from datetime import UTC, datetime

import pytest

from owlclaw_ray.domain.memory import Memory, Recall, ScoredMemory, ScoreParts
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.file import MemorySnapshot
from owlclaw_ray.memory.lance.store import QueryCache
from owlclaw_ray.testing.clock import ManualClock

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PARTS = ScoreParts(1.0, 0.0, 1.0, 0.0, 1.0, 2.0, None)


def memories_of(count):
    return tuple(Memory(MemoryId(f"mem_{at}"), f"tea {at}", (), NOW, session="s") for at in range(count))


def recall_of(count):
    found = tuple(ScoredMemory(memory, PARTS) for memory in memories_of(count))
    return Recall(found)


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def cache(clock):
    cache = QueryCache(clock)
    cache.enter(MemorySnapshot(memories_of(3), 1))
    return cache


def test_a_query_is_answered_a_second_time(cache):
    cache.put("tea", ["a", "b"], recall_of(9))

    found = cache.get("tea", ["b", "a"], 5)

    assert found.memories == recall_of(9).memories[:5]


def test_another_query_other_tags_or_a_larger_limit_are_asked_anew(cache):
    cache.put("tea", [], recall_of(30))

    assert cache.get("Tea", [], 5) is None
    assert cache.get("tea", ["a"], 5) is None
    assert cache.get("tea", [], 21) is None
    assert len(cache.get("tea", [], 20).memories) == 20


@pytest.mark.parametrize(
    "after", [MemorySnapshot(memories_of(4), 1), MemorySnapshot(memories_of(3), 2), MemorySnapshot((), 2)]
)
def test_every_change_of_the_memories_ends_all_answers(cache, after):
    cache.put("tea", [], recall_of(1))
    cache.enter(after)

    assert cache.get("tea", [], 5) is None
    assert tuple(cache.by_id.values()) == after.memories


def test_the_same_memories_end_none(cache):
    cache.put("tea", [], recall_of(1))
    cache.enter(MemorySnapshot(memories_of(3), 1))

    assert cache.get("tea", [], 5) is not None


async def test_answers_end_after_ten_minutes_because_memories_age(cache, clock):
    cache.put("tea", [], recall_of(1))
    await clock.advance(599)
    assert cache.get("tea", [], 5) is not None
    await clock.advance(2)
    assert cache.get("tea", [], 5) is None


def test_only_the_last_answers_are_kept(cache):
    for number in range(100):
        cache.put(f"tea {number}", [], recall_of(1))
        cache.get("tea 0", [], 1)

    assert cache.get("tea 0", [], 1) is not None
    assert cache.get("tea 1", [], 1) is None
    assert cache.get("tea 99", [], 1) is not None


def test_what_is_added_stands_beside_what_was_there(cache):
    cache.enter(MemorySnapshot(memories_of(4), 1))

    assert cache.sessions.gains({MemoryId("mem_3"): 1.0}) == {MemoryId("mem_2"): pytest.approx(0.3)}
