"""A model that calls tools wrongly gets an error that it can act on each time, and its run ends as its limits say."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Annotated

import pytest
from msgspec.structs import replace
from pydantic import Field

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.model import MessageRole
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, ToolCallId
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, says

NAMES = (
    "shop__pays",
    "shop.pay",
    "shop__hidden",
    "SHOP__PAY",
    "",
    " shop__pay",
    "shop__pay\x00",
    "multi_tool_use.parallel",
    "支付",
    "\ud800",
    "__",
    "x" * 10_000,
    "'; DROP TABLE runs; --",
    "../../etc/passwd",
)
ARGUMENTS = (
    '{"amount": ',
    "[1, 2]",
    "null",
    "NaN",
    "pay 5 please",
    '{"amount": "five", "to": "Anna"}',
    '{"to": "Anna"}',
    "",
    '{"amount": 5, "to": "Anna", "too": 1}',
    '{"amount": 1e999, "to": "Anna"}',
    '{"amount": 123456789012345678901234567890, "to": "Anna"}',
    '{"amount": 5, "to": "\\ud800\\udc00\\ud800"}' * 2,
    '{"amount": 5, "to": ' + "[" * 500 + "]" * 500 + "}",
    '{"amount": 5, "to": "Anna", "note": "' + "x" * 100_000 + '"}',
    '{"amount": true, "to": null}',
    "\ud800",
)
IDS = ("", "c1", "c1", "\ud800", "\udfff", "call_" * 100, "a b\n", "功")
ACTIONABLE = {
    "tool_not_available": "there is no tool",
    "invalid_arguments": "allowed: ",
}


def shop():
    """An application whose one visible tool notes when it is called, which a wrong call never brings about."""
    app = OwlClaw("shop")
    app.paid = []

    @app.handler("pay", effect="once")
    def pay(amount: Annotated[int, Field(ge=1, le=100)], to: str) -> str:
        """Pay."""
        app.paid.append((amount, to))
        return "paid"

    @app.handler("hidden", tags=["risk:critical"])
    def hidden() -> str:
        """Never visible."""
        app.paid.append("hidden")
        return "oh"

    return app


def bad_calls(seed, number):
    """Return so many wrong calls, of every kind."""
    chance = random.Random(seed)
    wrong = [(name, '{"amount": 5, "to": "Anna"}') for name in NAMES] + [("shop__pay", each) for each in ARGUMENTS]
    chance.shuffle(wrong)
    return [ToolCall(ToolCallId(chance.choice(IDS)), *wrong[number % len(wrong)]) for number in range(number)]


def replies_with(made, each):
    """Return a model that makes these calls, so many in a reply, and no others."""
    turns = [asks() for _ in range(0, len(made), each)]

    def decide(request):
        turn = sum(message.role is MessageRole.ASSISTANT for message in request.messages)
        if turn >= len(turns):
            return says("I give up.")
        return replace(turns[turn], tool_calls=tuple(made[turn * each : (turn + 1) * each]))

    return Model(decide)


def runtime_of(agents, tmp_path, app, model):
    return in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", app=app, models=[model])


async def story_of(runtime, run):
    """Return the replies' calls and the ends of calls, in order, after checking that they pair one to one."""
    entries = await runtime.store.read(JournalOfRun(run.agent.tenant, run.run_id))
    asked = [call for each in entries if each.kind is EntryKind.MODEL_REPLIED for call in each.data["tool_calls"]]
    ended = [each.data for each in entries if each.kind is EntryKind.TOOL_FINISHED]
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert Counter(call["id"] for call in asked) == Counter(data["call_id"] for data in ended)
    assert max(Counter(call["id"] for call in asked).values()) == 1
    assert all(call["id"] for call in asked)
    return asked, ended


async def audited(runtime, run):
    records = await runtime.ledger(
        LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.TOOL_CALL, limit=1_000)
    )
    assert (await runtime.verify_ledger(DEFAULT_TENANT)).breaks == ()
    return [each.record.data for each in records]


@pytest.mark.parametrize("each", [1, 7, 50])
@pytest.mark.parametrize("seed", range(3))
async def test_fifty_wrong_calls_end_in_a_terminated_run_and_a_full_ledger(agents, tmp_path, seed, each):
    """tool-registry: a call outside the effective set goes back to the model for its next turn; where it happens again and
    again, mechanisms such as the limits end the run.
    """
    agents.define()
    app, model = shop(), replies_with(bad_calls(seed, 1_000), each)

    async with runtime_of(agents, tmp_path, app, model) as runtime:
        run = await runtime.trigger("watch")
        asked, ended = await story_of(runtime, run)
        records = await audited(runtime, run)

    assert (run.status, run.result.error.type) == (RunStatus.TERMINATED, "limit_reached")
    assert 50 - each < run.result.tool_calls <= 50
    assert app.paid == []
    assert len(records) == len(ended) == len(asked)
    assert max(len(data["tool"]) for data in ended) < 100
    refused = [data["error"] for data in ended if data["error"]["type"] != "not_executed"]
    assert len(refused) == run.result.tool_calls
    for error in refused:
        assert ACTIONABLE[error["type"]] in error["message"], error
        assert len(error["message"]) < 2_500
        assert "Traceback" not in error["message"]
        assert not error["retryable"]


async def test_the_model_gets_every_error_with_the_id_of_its_call(agents, tmp_path):
    """tool-registry: an assistant's tool call and its result are paired by their tool_call_id, never by order."""
    agents.define()
    model = replies_with(bad_calls(1, 30), 10)

    async with runtime_of(agents, tmp_path, shop(), model) as runtime:
        run = await runtime.trigger("watch")

    assert run.status is RunStatus.COMPLETED
    for request in model.requests[1:]:
        asked = [call.call_id for message in request.messages for call in message.tool_calls]
        answered = [message.call_id for message in request.messages if message.role is MessageRole.TOOL]
        assert asked == answered
        assert len(set(asked)) == len(asked)
    assert all(
        '{"error":{"type":' in each.content for each in model.requests[-1].messages if each.role is MessageRole.TOOL
    )


@pytest.mark.parametrize("crash_in", [1, 3])
async def test_a_run_of_wrong_calls_goes_on_where_its_host_died(agents, tmp_path, crash_in):
    agents.define()
    made, died = bad_calls(2, 40), asyncio.Event()
    steady = replies_with(made, 8)

    async def decide(request):
        turn = sum(message.role is MessageRole.ASSISTANT for message in request.messages)
        if turn == crash_in and not died.is_set():
            died.set()
            await asyncio.Event().wait()
        return steady.decide(request)

    model = Model(decide)
    async with runtime_of(agents, tmp_path, shop(), model) as runtime:
        accepted = await runtime.submit(AgentRef.parse("watch"), Trigger(TriggerKind.API))
        await died.wait()
        await runtime.crash_hosts()
        run = await runtime.outcome(accepted)
        asked, ended = await story_of(runtime, run)
        records = await audited(runtime, run)

    assert run.status is RunStatus.COMPLETED
    assert len(asked) == len(ended) == len(records) == 40


async def test_an_unknown_tool_among_many_is_answered_with_the_closest_ones(agents, tmp_path):
    agents.define(governance={"budgets": []})
    app = OwlClaw("shop")
    for number in range(300):
        app.tool(f"article_{number}")(lambda: "sold")
    model = replies_with([ToolCall(ToolCallId("c"), "shop__article_12x", "{}")], 1)

    async with runtime_of(agents, tmp_path, app, model) as runtime:
        run = await runtime.trigger("watch")
        _, [ended] = await story_of(runtime, run)

    message = ended["error"]["message"]
    assert message.startswith("there is no tool 'shop__article_12x' in this run; of its 310 tools the closest are: ")
    assert "shop__article_12," in message
    assert len(message) < 300


async def test_the_journal_goes_by_canonical_names_and_keeps_the_models_own(agents, tmp_path):
    """tool-registry: permissions, hooks, routing and replay go by the canonical name; the provider's own is kept beside it."""
    agents.define()
    good = ToolCall(ToolCallId("c"), "shop__pay", '{"amount": 5, "to": "Anna"}')

    async with runtime_of(agents, tmp_path, shop(), replies_with([good], 1)) as runtime:
        run = await runtime.trigger("watch")
        [asked], [ended] = await story_of(runtime, run)
        [record] = await audited(runtime, run)

    assert (asked["name"], ended["tool"], record["tool"]) == ("shop__pay", "shop.pay", "shop.pay")
    assert run.result.tools_called == ("shop.pay",)


async def test_a_host_that_dies_among_wrong_calls_repeats_what_was_under_way_and_nothing_else(agents, tmp_path):
    agents.define()
    begun, release, app = [], threading.Event(), OwlClaw("shop")

    @app.tool("look")
    def look() -> str:
        """Look, the first time for as long as the test likes."""
        begun.append("look")
        if len(begun) == 1:
            release.wait(20)
        return "fine"

    wrong = bad_calls(3, 12)
    made = [*wrong[:6], ToolCall(ToolCallId("looking"), "shop__look", "{}"), *wrong[6:]]
    async with runtime_of(agents, tmp_path, app, replies_with(made, len(made))) as runtime:
        accepted = await runtime.submit(AgentRef.parse("watch"), Trigger(TriggerKind.API))
        while not begun:
            await asyncio.sleep(0.001)
        await runtime.crash_hosts()
        run = await runtime.outcome(accepted)
        release.set()
        asked, ended = await story_of(runtime, run)
        records = await audited(runtime, run)

    assert run.status is RunStatus.COMPLETED
    assert begun == ["look", "look"]
    assert len(asked) == len(ended) == len(records) == 13
    assert [data["content"] for data in ended if "content" in data] == ["fine"]
