import json

import pytest

from owlclaw_ray.domain.heartbeat import Heartbeat
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.models.tokens import EstimatedTokens
from owlclaw_ray.runs.memory_preload import MAX_QUERY_CHARACTERS, MAX_VALUES, memory_query, shown_memories


async def count(texts):
    return await EstimatedTokens().count_tokens("scripted:any", texts)


def found(*contents):
    return [{"content": content, "created_at": "2026-03-01", "tags": []} for content in contents]


def contents(shown):
    return [json.loads(text.removeprefix("<data>").removesuffix("</data>"))["content"] for text in shown]


RUN = "run_01m83kq9v8w7x6y5z4t3s2r1q0"
UUID = "550e8400-e29b-41d4-a716-446655440000"
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N4XgL0n3I9PlFUP0THsR8U"


@pytest.mark.parametrize(
    ("focus", "payload", "query"),
    [
        ("check entry", None, "check entry"),
        ("", {"message": "客户问退款", "urgent": True}, "客户问退款"),
        ("refunds", {"order": {"id": 7, "items": ["kettle", "mug"]}}, "refunds kettle mug"),
        ("", None, ""),
        ("", [], ""),
        ("  ", {"a": None}, ""),
        ("", "just text", "just text"),
        ("refunds", {"title": "refunds", "body": "refunds"}, "refunds"),
        ("12 May", {"at": "2026-05-12"}, "12 May"),
    ],
)
def test_memories_are_looked_up_by_the_focus_and_the_words_of_the_payload(focus, payload, query):
    assert memory_query(Trigger(TriggerKind.API, payload, focus=focus)) == query


@pytest.mark.parametrize(
    "value",
    [
        "A-17",
        "600519",
        "AAPL",
        "茅台",
        "ana@example.com",
        "10.0.0.7",
        "+49 30 1234",
        "DE89370400440532013000",
        "1Z999AA10123456784",
        "1HGCM82633A004352",
        "3696c44",
        "Donaudampfschifffahrtsgesellschaft",
        "COVID19 H1N1",
        "order 17 since 2026-05-04",
        "五月四号的订单",
        "12 % of 500",
    ],
)
def test_texts_and_short_codes_are_words_for_people(value):
    assert memory_query(Trigger(TriggerKind.API, {"x": value})) == value


@pytest.mark.parametrize(
    "value",
    [
        *(RUN, UUID, UUID.upper(), JWT, "d41d8cd98f00b204e9800998ecf8427e", "QUJD" * 20),
        *(17, 48213, -0.5, 1_763_888_400, "17", "-5", "129.90", "1,299.00", "5 %", "---", "👍"),
        *(
            "2026-11-23",
            "2026-11-23T09:00:00+00:00",
            "2026-11-23 09:00:00.5+00:00",
            "23:59",
            "2026/5/4",
            "2026年5月4日",
        ),
        *("Mon, 23 Nov 2026 09:00:00 +0000", "20:00 UTC"),
    ],
)
def test_ids_numbers_and_times_are_none(value):
    assert memory_query(Trigger(TriggerKind.WEBHOOK, {"x": value})) == ""
    assert memory_query(Trigger(TriggerKind.WEBHOOK, {"x": value, "text": "退款"}, focus="refunds")) == "refunds 退款"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (f"{RUN} failed at 2026-11-23T09:00:00Z with {UUID}", "failed at with"),
        (f"运行{RUN}失败", "运行 失败"),
        ("https://shop.example.com/tea?session=17&x=y#z is slow", "shop.example.com/tea is slow"),
    ],
)
def test_what_nobody_says_is_left_out_of_what_somebody_says(text, query):
    assert memory_query(Trigger(TriggerKind.API, {"text": text})) == query
    assert memory_query(Trigger(TriggerKind.WEBHOOK, focus=text)) == query


def test_of_many_addresses_the_first_counts():
    payload = {
        "self": "https://a.example/tea",
        "others": ["https://a.example/b", "https://a.example/c"],
        "title": "tea",
    }
    assert memory_query(Trigger(TriggerKind.WEBHOOK, payload)) == "a.example/tea tea"


@pytest.mark.parametrize("kind", [TriggerKind.SCHEDULE_ONCE, TriggerKind.SCHEDULE_CRON])
def test_a_schedule_asks_by_its_focus_alone(kind):
    payload = {"schedule_id": "sch_nightly", "due_at": "tomorrow"}
    assert memory_query(Trigger(kind, payload, focus="check entry", source="sch_nightly")) == "check entry"


def test_a_heartbeat_asks_by_its_focus_and_by_what_others_said():
    pending = [
        {"source": "inbox", "pending": [{"delivery_id": "one", "source": "github", "focus": "tea", "payload": ["茶"]}]},
        {"source": "queue", "pending": ["run one"]},
        {"source": "schedules", "pending": [{"schedule_id": "one", "focus": "count stock", "due_at": "now"}]},
        {"source": "database", "pending": [{"name": "kettle"}], "left_out": 3},
        {"source": "events.low_stock", "pending": "mugs"},
    ]
    trigger = Trigger(TriggerKind.HEARTBEAT, {"schedule_id": "one", "due_at": "now", "events": pending}, focus="look")
    assert memory_query(trigger) == "look tea 茶 count stock kettle mugs"
    assert memory_query(Trigger(TriggerKind.HEARTBEAT, {"schedule_id": "one", "due_at": "now"}, focus="look")) == "look"


def test_a_heartbeat_that_was_given_no_focus_asks_by_what_others_said_alone():
    events = [{"source": "events.low_stock", "pending": ["mugs"]}]
    assert memory_query(Trigger(TriggerKind.HEARTBEAT, {"events": events}, focus=Heartbeat().focus)) == "mugs"


def test_an_agent_asks_by_its_assignment():
    payload = {"assignment": "count the stock\nof tea", "from": "lead", "conversation": "long", "task_id": "one"}
    assert memory_query(Trigger(TriggerKind.AGENT, payload, focus="count the stock")) == "count the stock of tea"


def test_a_large_payload_makes_a_short_query():
    late = {"numbers": [17] * MAX_VALUES, "text": "tea"}
    assert memory_query(Trigger(TriggerKind.API, late)) == ""
    assert (
        len(memory_query(Trigger(TriggerKind.API, {"rows": [f"word {n}" for n in range(100_000)]})))
        == MAX_QUERY_CHARACTERS
    )
    assert len(memory_query(Trigger(TriggerKind.API, "文" * 1_000_000))) == MAX_QUERY_CHARACTERS


def test_what_is_said_again_and_again_leaves_room_for_the_others():
    rows = [f"packed {UUID[: -len(str(n))]}{n}" for n in range(300)]
    assert memory_query(Trigger(TriggerKind.API, {"rows": rows, "text": "tea"})) == "packed tea"


def test_a_long_text_leaves_room_for_the_others():
    payload = {"log": "y " * 5_000, "message": "the pump is loud", "trace": "z " * 5_000}
    query = memory_query(Trigger(TriggerKind.API, payload, focus="crane two"))
    assert len(query) <= MAX_QUERY_CHARACTERS
    assert query.startswith("crane two y ")
    assert " the pump is loud z " in query
    assert 470 < query.count("y") * 2 <= query.count("z") * 2 + 2


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
