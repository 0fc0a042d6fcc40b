from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory import lexical
from owlclaw_ray.memory.dates import named_spans
from owlclaw_ray.memory.fusion import MemorySessions, SearchHits, rank
from tests.properties import examples

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def memory(name, content="", days=0, session=""):
    return Memory(MemoryId(name), content, (), NOW - timedelta(days=days), session=session)


def ranked(memories, bm25, cosine=(), query="which tea", limit=20):
    by_id = {one.memory_id: one for one in memories}
    days = named_spans(query, NOW, UTC)
    return rank(SearchHits(dict(bm25), dict(cosine)), by_id, MemorySessions(memories), query, days=days, limit=limit)


def order(memories, bm25, cosine=(), query="which tea"):
    return [one.memory.memory_id for one in ranked(memories, bm25, cosine, query)]


def test_words_and_meaning_are_blended():
    found = ranked([memory("a"), memory("b")], {"a": 4.0, "b": 2.0}, {"a": 0.78, "b": 0.84})
    assert [(one.memory.memory_id, pytest.approx(one.score)) for one in found] == [("b", 0.7), ("a", 0.6)]


def test_meaning_weighs_more_for_a_chinese_query():
    scores = {"a": 9.0, "b": 1.0}, {"a": 0.78, "b": 0.84}
    assert order([memory("a"), memory("b")], *scores, query="what does the customer like") == ["a", "b"]
    assert order([memory("a"), memory("b")], *scores, query="客户喜欢什么茶 VIP") == ["b", "a"]


def test_words_weigh_less_when_even_the_best_match_has_few_of_them():
    memories = [memory(name) for name in "abcdefgh"]
    cosine = {"a": 0.78, "b": 0.84}
    query = "harbour pilots strike notice"
    assert order(memories, {"a": 6.0}, cosine, query) == ["a", "b"]
    assert order(memories, {"a": 1.0}, cosine, query) == ["b", "a"]


def test_memories_of_nearly_the_same_meaning_are_not_pulled_apart():
    found = ranked([memory("a"), memory("b")], {"a": 1.0, "b": 1.0}, {"a": 0.861, "b": 0.858})
    assert found[0].parts.meaning - found[1].parts.meaning == pytest.approx(0.06)


def test_neighbours_of_the_same_session_are_pulled_up_and_others_are_not():
    memories = [memory("a", session="s1"), memory("b", session="s1"), memory("c", session="s2"), memory("d")]
    found = {one.memory.memory_id: one.score for one in ranked(memories, {"a": 1.0, "c": 0.5, "d": 0.5})}
    assert found == {"a": 1.0, "b": pytest.approx(0.3), "c": 0.5, "d": 0.5}


def test_memories_of_one_run_are_a_session_unless_they_have_another():
    one, other = memory("a"), memory("b")
    runs = [replace(one, run_id="r1"), replace(other, run_id="r1")]
    assert order(runs, {"a": 1.0}) == ["a", "b"]
    assert order([replace(runs[0], session="s"), runs[1]], {"a": 1.0}) == ["a"]


def test_neighbours_stand_beside_each_other_whatever_was_stored_between():
    memories = [memory("a", session="s"), memory("x"), memory("b", session="s"), memory("c", session="s")]
    assert order(memories, {"a": 1.0}) == ["a", "b"]


def test_of_two_equal_facts_the_newer_is_first_but_age_hides_nothing():
    memories = [memory("old", days=3_650), memory("new", days=1)]
    found = ranked(memories, {"old": 1.0, "new": 1.0})
    assert [(one.memory.memory_id, one.score) for one in found] == [("new", 1.0), ("old", 1.0)]


def test_age_does_not_outvote_relevance():
    memories = [memory("old", days=3_650), memory("new")]
    assert order(memories, {"old": 1.0, "new": 0.98}) == ["old", "new"]
    assert order(memories, {}, {"old": 0.86, "new": 0.859, "other": 0.7}) == ["old", "new"]


WHERE = "Where does Ines live?"


def test_a_newer_memory_that_replaces_an_older_one_is_first_although_the_older_fits_better():
    old, new = "Ines lives in Lisbon", "Ines moved from Lisbon to Coimbra and lives there now"
    found = ranked([memory("old", old, days=40), memory("new", new, days=30)], {"old": 9.0, "new": 5.4}, query=WHERE)
    assert [one.memory.memory_id for one in found] == ["new", "old"]
    assert found[0].score == pytest.approx(found[1].score)
    assert found[0].parts.newer == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("content", "bm25"),
    [
        ("Bea lives in Lisbon", 8.0),
        ("What lives in the harbour of Porto, Ines feeds with crabs", 8.0),
        ("Ines lives in Coimbra", 4.0),
    ],
    ids=["another subject", "another matter", "fits much worse"],
)
def test_a_newer_memory_that_replaces_nothing_stays_below(content, bm25):
    memories = [
        memory("old", "Ines lives in Lisbon with Rui, a cat and a parrot", days=40),
        memory("new", content, days=30),
    ]
    assert order(memories, {"old": 9.0, "new": bm25}, query=WHERE) == ["old", "new"]


def test_an_older_memory_never_replaces_a_newer_one():
    memories = [memory("old", "Ines lives in Lisbon", days=40), memory("new", "Ines lives in Coimbra", days=30)]
    assert order(memories, {"old": 8.0, "new": 9.0}, query=WHERE) == ["new", "old"]


def test_of_three_the_newest_is_first():
    memories = [memory(str(days), f"the order limit is {days} euros", days=days) for days in (30, 20, 10)]
    bm25 = {"30": 9.0, "20": 8.8, "10": 8.6}
    assert order(memories, bm25, query="what is the order limit?") == ["10", "20", "30"]


def test_a_question_that_names_a_day_has_what_was_stored_then_first():
    memories = [memory("a"), memory("on the day", days=6), memory("c", days=7)]
    bm25 = {"a": 0.3, "on the day": 0.2, "c": 0.3}
    assert order(memories, bm25, query="topics on February 23rd")[0] == "on the day"
    assert order(memories, bm25, query="2月23日我们聊了什么")[0] == "on the day"
    assert order(memories, bm25, query="topics on March 23rd")[0] == "a"


def test_what_was_stored_on_the_day_is_found_although_no_word_of_it_was_asked_for():
    memories = [memory("other"), memory("on the day", days=6)]
    found = ranked(memories, {}, query="What did we talk about on 2026-02-23?")
    assert [(one.memory.memory_id, one.parts.day) for one in found] == [("on the day", 0.4)]


def test_a_memory_whose_words_answer_stays_before_what_was_stored_on_the_day():
    memories = [memory("answer", "The fair is on February 23rd", days=40), memory("on the day", days=6)]
    assert order(memories, {"answer": 9.0, "on the day": 2.0}, query="fair on February 23rd")[0] == "answer"


def test_a_memory_from_the_future_is_as_good_as_a_new_one():
    assert ranked([memory("a", days=-5)], {"a": 1.0})[0].score == 1.0


def test_a_search_that_found_nothing_leaves_the_order_to_the_other():
    assert order([memory("a"), memory("b")], {}, {"a": 0.8, "b": 0.9}) == ["b", "a"]
    assert order([memory("a"), memory("b")], {}) == []


def test_only_memories_that_may_be_returned_are():
    memories = [memory("a", session="s"), memory("b", session="s")]
    found = rank(SearchHits({"a": 1.0}, {}), {"a": memories[0]}, MemorySessions(memories), "tea", days=(), limit=5)
    assert [one.memory.memory_id for one in found] == ["a"]


def test_every_part_of_a_score_is_told():
    memories = [memory("a", days=60, session="s"), memory("b", session="s")]
    parts = ranked(memories, {"a": 9.0}, {"a": 0.8, "b": 0.9})[0].parts.as_json()
    assert parts == {
        "words": 1.0,
        "meaning": 0.0,
        "word_share": 0.6,
        "neighbours": 0.12,
        "bm25": 9.0,
        "cosine": 0.8,
        "day": 0.0,
        "newer": 0.0,
    }


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


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("What did you tell me about the harbour?", "tell harbour?"),
        ("Who are you?", "Who are you?"),
        ("客户喜欢什么 tea, 3.5 kg", "客户喜欢什么 tea, 3.5 kg"),
        ("🙂", "🙂"),
        ("", ""),
    ],
)
def test_words_that_are_in_every_question_are_not_asked_for_unless_it_has_no_others(query, asked):
    assert lexical.asked_for(query).split() == asked.split()


def test_search_without_an_index_is_not_led_astray_by_the_words_of_a_question():
    memories = [memory("a", "What did you tell me about it?"), memory("b", "The harbour is closed")]
    assert lexical.search("What did you tell me about the harbour?", memories).keys() == {"a", "b"}
    assert lexical.search("What was it about the harbour?", memories).keys() == {"b"}
    assert lexical.search("What did you say?", memories).keys() == {"a"}


def test_an_empty_memory_holds_nothing():
    assert lexical.search("tea", []) == {}


scores = st.dictionaries(st.integers(0, 9).map(str), st.floats(0.01, 30), max_size=10)
cosines = st.dictionaries(st.integers(0, 9).map(str), st.floats(-1, 1), max_size=10)
ages = st.lists(st.integers(0, 4_000), min_size=10, max_size=10)


@pytest.mark.property
@examples
@given(
    bm25=scores,
    cosine=cosines,
    ages=ages,
    query=st.sampled_from(["which tea", "客户喜欢什么茶"]),
    limit=st.integers(1, 10),
)
def test_property_07_what_is_found_is_ordered_by_relevance_then_age_and_age_hides_nothing(
    bm25, cosine, ages, query, limit
):
    memories = [memory(str(at), f"word{at}", days=days) for at, days in enumerate(ages)]

    found = ranked(memories, bm25, cosine, query)

    assert all(better.score >= worse.score - 1e-9 for better, worse in pairwise(found))
    assert {one.memory.memory_id for one in found} == bm25.keys() | cosine.keys()
    assert [each.memory for each in ranked(memories, bm25, cosine, query, limit)] == [
        each.memory for each in found[:limit]
    ]
    for better, worse in pairwise(found):
        assert better.score > worse.score or better.memory.created_at >= worse.memory.created_at
    fresh = ranked([replace(one, created_at=NOW) for one in memories], bm25, cosine, query)
    assert {one.memory.memory_id: one.score for one in fresh} == {one.memory.memory_id: one.score for one in found}


@given(bm25=scores, cosine=cosines, ages=ages, contents=st.lists(st.sampled_from(["a b", "b c", "a"]), min_size=10))
def test_a_newer_memory_of_the_same_matter_never_leaves_the_order_of_scores(bm25, cosine, ages, contents):
    memories = [memory(str(at), contents[at], days=days) for at, days in enumerate(ages)]

    found = ranked(memories, bm25, cosine, "a b")

    assert all(better.score >= worse.score - 1e-9 for better, worse in pairwise(found))
    assert {one.memory.memory_id for one in found} == bm25.keys() | cosine.keys()
