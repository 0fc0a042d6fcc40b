import json

import pytest

from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.engine.preloading import LONGEST_QUERY, memory_query, shown_memories
from owlclaw_ray.engine.tokens import EstimatedTokens


async def count(texts):
    return await EstimatedTokens().count_tokens("scripted:any", texts)


def found(*contents):
    return [{"content": content, "created_at": "2026-03-01", "tags": []} for content in contents]


def contents(shown):
    return [json.loads(text.removeprefix("<data>").removesuffix("</data>"))["content"] for text in shown]


@pytest.mark.parametrize(
    ("focus", "payload", "query"),
    [
        ("check entry", None, "check entry"),
        ("", {"message": "客户问退款", "urgent": True}, "message 客户问退款"),
        ("refunds", {"order": {"id": 7, "items": ["kettle", "mug"]}}, "refunds id 7 kettle mug"),
        ("", None, ""),
        ("", [], ""),
        ("  ", {"a": None}, ""),
        ("", "just text", "just text"),
    ],
)
def test_memories_are_looked_up_by_the_focus_and_the_words_of_the_payload(focus, payload, query):
    assert memory_query(Trigger(TriggerKind.API, payload, focus=focus)) == query


def test_a_large_payload_makes_a_short_query():
    assert len(memory_query(Trigger(TriggerKind.API, {"rows": ["word"] * 1_000_000}))) <= LONGEST_QUERY
    assert len(memory_query(Trigger(TriggerKind.API, "文" * 1_000_000))) == LONGEST_QUERY


async def test_the_best_memories_that_fit_are_shown_whole():
    shown = await shown_memories(found("best " * 20, "long " * 500, "short"), 200, count)

    assert contents(shown) == ["best " * 20, "short"]


async def test_if_none_fits_the_best_is_cut():
    shown = await shown_memories(found("文" * 2_000, "word " * 900), 200, count)

    (content,) = contents(shown)
    assert content.startswith("文")
    assert "characters cut" in content
    assert 150 < (await count(shown))[0] <= 200


async def test_no_tokens_and_no_memories_show_nothing():
    assert await shown_memories(found("a"), 0, count) == []
    assert await shown_memories([], 100, count) == []
