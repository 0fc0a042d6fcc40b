from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory import lexical
from owlclaw_ray.memory.fusion import rank

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def memory(name, content="", days=0, run_id=""):
    return Memory(MemoryId(name), content, (), NOW - timedelta(days=days), run_id)


def order(memories, bm25, cosine=(), query="which tea"):
    return [one.memory.memory_id for one in rank(memories, dict(bm25), dict(cosine), query, NOW)]


def test_words_and_meaning_are_blended():
    found = rank([memory("a"), memory("b")], {"a": 4.0, "b": 2.0}, {"a": 0.78, "b": 0.84}, "which tea", NOW)
    assert [(one.memory.memory_id, pytest.approx(one.score)) for one in found] == [("b", 0.7), ("a", 0.6)]


def test_meaning_weighs_more_for_a_chinese_query():
    scores = {"a": 4.0, "b": 1.0}, {"a": 0.78, "b": 0.84}
    assert order([memory("a"), memory("b")], *scores, query="what does the customer like") == ["a", "b"]
    assert order([memory("a"), memory("b")], *scores, query="客户喜欢什么茶 VIP") == ["b", "a"]


def test_memories_of_nearly_the_same_meaning_are_told_apart_by_age():
    memories = [memory("old", days=90), memory("new")]
    assert order(memories, {"old": 1.0, "new": 1.0}, {"old": 0.861, "new": 0.858}) == ["new", "old"]


def test_neighbours_of_the_same_run_are_pulled_up_and_others_are_not():
    memories = [memory("a", run_id="r1"), memory("b", run_id="r1"), memory("c", run_id="r2"), memory("d")]
    found = {one.memory.memory_id: one.score for one in rank(memories, {"a": 1.0, "c": 0.5, "d": 0.5}, {}, "tea", NOW)}
    assert found == {"a": 1.0, "b": pytest.approx(0.3), "c": 0.5, "d": 0.5}


def test_of_two_equal_facts_the_newer_is_first_but_age_hides_nothing():
    memories = [memory("old", days=3_650), memory("new", days=1)]
    found = rank(memories, {"old": 1.0, "new": 1.0}, {}, "tea", NOW)
    assert [one.memory.memory_id for one in found] == ["new", "old"]
    assert found[1].score == pytest.approx(0.85)


def test_a_memory_from_the_future_is_as_good_as_a_new_one():
    assert rank([memory("a", days=-5)], {"a": 1.0}, {}, "tea", NOW)[0].score == 1.0


def test_a_search_that_found_nothing_leaves_the_order_to_the_other():
    assert order([memory("a"), memory("b")], {}, {"a": 0.8, "b": 0.9}) == ["b", "a"]
    assert order([memory("a"), memory("b")], {}) == []


def test_words_are_folded_and_chinese_is_cut_into_pairs():
    assert lexical.words("Tea, 喜欢绿茶 X9") == ["tea", ",", "喜欢", "欢绿", "绿茶", "x9"]


@pytest.mark.parametrize(
    ("query", "best"),
    [("GREEN tea?", "a"), ("绿茶", "b"), ("茶", "b"), ("!!!", "c"), ("nothing of it", None), ("🙂", "d")],
)
def test_search_without_an_index_finds_words_characters_and_symbols(query, best):
    memories = [memory("a", "likes Green Tea"), memory("b", "客户喜欢绿茶"), memory("c", "!!!"), memory("d", "ok 🙂")]
    scores = lexical.search(query, memories)
    assert max(scores, key=scores.get, default=None) == best


def test_search_without_an_index_ranks_the_rarer_word_higher():
    memories = [memory("a", "tea for Anna"), memory("b", "tea for Bert"), memory("c", "tea for Cleo")]
    scores = lexical.search("tea Bert", memories)
    assert max(scores, key=scores.get) == "b"


def test_an_empty_memory_holds_nothing():
    assert lexical.search("tea", []) == {}


scores = st.dictionaries(st.integers(0, 9).map(str), st.floats(0.01, 30), max_size=10)
cosines = st.dictionaries(st.integers(0, 9).map(str), st.floats(-1, 1), max_size=10)
ages = st.lists(st.integers(0, 4_000), min_size=10, max_size=10)


@pytest.mark.property
@settings(max_examples=200, deadline=None)
@given(bm25=scores, cosine=cosines, ages=ages, query=st.sampled_from(["which tea", "客户喜欢什么茶"]))
def test_property_07_what_is_found_is_ordered_by_relevance_and_age_and_age_hides_nothing(bm25, cosine, ages, query):
    memories = sorted((memory(str(at), days=days) for at, days in enumerate(ages)), key=lambda one: one.created_at)

    found = rank(memories, bm25, cosine, query, NOW)

    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert {one.memory.memory_id for one in found} == bm25.keys() | cosine.keys()
    fresh = rank([replace(one, created_at=NOW) for one in memories], bm25, cosine, query, NOW)
    relevance = {one.memory.memory_id: one.score for one in fresh}
    for better, worse in pairwise(found):
        newer = better.memory.created_at >= worse.memory.created_at
        assert newer or relevance[better.memory.memory_id] >= relevance[worse.memory.memory_id]
