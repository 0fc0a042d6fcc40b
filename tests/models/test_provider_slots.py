"""Who may call a provider when, and that one provider's trouble is its own."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.concurrency_limit import ConcurrencyLimit
from owlclaw_ray.domain.endpoint import Endpoint, provider_of
from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.errors import (
    ModelOverloadedError,
    ModelRefusedError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.adaptive_limit import AdaptiveLimit
from owlclaw_ray.models.model_gateway import ModelGateway
from owlclaw_ray.models.provider_slots import ProviderSlots, SlotCounts
from owlclaw_ray.testing.clock import ManualClock
from tests.model_requests import model_request


class Providers:
    """A client of providers of which `hung/…` never answers, `busy/…` has too much to do, and the others answer at once."""

    def __init__(self):
        self.asked, self.inside = [], []
        self.gates = {}

    def serves(self, model):
        return True

    async def load(self):
        pass

    async def complete(self, request, model):
        self.asked.append((model, request.agent_id))
        if model.startswith("hung/"):
            self.inside.append(request.agent_id)
            try:
                await self.gates.setdefault(request.agent_id, asyncio.Event()).wait()
            finally:
                self.inside.remove(request.agent_id)
        if model.startswith("busy/"):
            raise ModelOverloadedError("rate limited by the provider (429)")
        return ModelReply("ok", (), model)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def providers():
    return Providers()


@pytest.fixture
def gateway(clock, providers):
    return ModelGateway([providers], clock=clock, retry=RetryPolicy(2), jitter=lambda: 0.0)


def asking(gateway, agent, *chain, timeout=60.0, waiting=lambda _: None):
    request = replace(model_request(*chain, timeout=timeout), agent_id=agent)
    return asyncio.create_task(gateway.complete(request, waiting))


def own(address):
    return (Endpoint("hung", address),)


async def cancel(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("openai/gpt-4o", "openai"),
        ("gpt-4o", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
        ("qwen", "qwen"),
        ("scripted:a/b.yaml", "scripted:a/b.yaml"),
    ],
)
def test_a_provider_is_what_stands_before_the_slash_or_is_known_and_each_script_is_one(model, provider):
    assert provider_of(model) == provider


async def test_calls_to_another_provider_are_answered_while_all_of_a_hanging_one_still_hang(gateway, providers, clock):
    hanging = [asking(gateway, f"agent:{number}", "hung/m") for number in range(200)]
    await clock.settle()

    replies = await asyncio.gather(*(asking(gateway, f"agent:{number}", "well/m") for number in range(200)))

    assert {reply.text for reply in replies} == {"ok"}
    assert not any(task.done() for task in hanging)
    assert clock.monotonic() == 0
    assert gateway.slots[0] == SlotCounts("hung", 64, 48, 152)
    await cancel(hanging)


async def test_an_address_that_hangs_takes_no_slots_from_the_others_of_its_provider(gateway, providers, clock):
    there, here = (
        replace(model_request("hung/m").model, endpoints=at) for at in (own("http://a:1/v1/"), own("http://b:2"))
    )
    hanging = [
        asyncio.create_task(gateway.complete(replace(model_request(), model=there, agent_id=f"agent:{number}")))
        for number in range(200)
    ]
    await clock.settle()
    asked = len(providers.asked)

    other = asyncio.create_task(gateway.complete(replace(model_request(), model=here, agent_id="agent:200")))
    await clock.settle()

    assert providers.asked[asked:] == [("hung/m", "agent:200")]
    assert gateway.slots == (SlotCounts("hung at a:1/v1", 64, 48, 152), SlotCounts("hung at b:2", 64, 1, 0))
    await cancel([*hanging, other])


async def test_a_definition_whose_calls_all_hang_leaves_slots_of_its_provider_to_others(gateway, providers, clock):
    hanging = [asking(gateway, f"greedy:{number}", "hung/m") for number in range(1_000)]
    await clock.settle()

    others = [asking(gateway, f"modest:{number}", "hung/m") for number in range(16)]
    await clock.settle()

    asked = [agent.partition(":")[0] for _, agent in providers.asked]
    assert (asked.count("greedy"), asked.count("modest")) == (48, 16)
    await cancel([*hanging, *others])


async def test_definitions_take_turns_however_many_calls_each_has(gateway, providers, clock):
    """A thousand calls of one that came first are not before the tenth call of another."""
    hanging = [asking(gateway, f"a:{number}", "hung/m") for number in range(1_000)]
    hanging += [asking(gateway, f"b:{number}", "hung/m") for number in range(100)]
    await clock.settle()
    begun = len(providers.asked)

    for number in range(20):
        providers.gates[f"a:{number}"].set()
    await clock.settle()

    served = [agent.partition(":")[0] for _, agent in providers.asked[begun:]]
    assert served.count("b") >= len(served) // 2 >= 10
    await cancel(hanging)


async def test_a_wait_is_told_of_when_it_begins_and_when_it_is_over(gateway, providers, clock):
    told = []
    first = [asking(gateway, f"a:{number}", "hung/m", waiting=told.append) for number in range(48)]
    await clock.settle()
    ignore_news = list(told)
    last = asking(gateway, "a:last", "hung/m", waiting=told.append)
    await clock.settle()
    begun = list(told)

    providers.gates["a:0"].set()
    await clock.settle()

    assert (ignore_news, begun, told) == ([], [True], [True, False])
    await cancel([*first, last])


async def test_cancelling_a_call_that_waits_ends_it_at_once_and_the_provider_is_not_asked(gateway, providers, clock):
    told = []
    first = [asking(gateway, f"a:{number}", "hung/m") for number in range(48)]
    waits = asking(gateway, "a:waits", "hung/m", waiting=told.append)
    await clock.settle()

    waits.cancel()
    await clock.settle()

    assert waits.cancelled()
    assert told == [True, False]
    assert len(providers.asked) == 48
    assert gateway.slots[0].waiting == 0
    await cancel(first)
    assert gateway.slots[0] == SlotCounts("hung", 64, 0, 0)


async def test_a_wait_counts_neither_against_the_time_limit_nor_as_the_call_s_duration(gateway, providers, clock):
    first = [asking(gateway, f"a:{number}", "hung/m", timeout=50) for number in range(48)]
    last = asking(gateway, "a:last", "hung/m", timeout=50)
    await clock.advance(49)
    providers.gates["a:0"].set()
    await clock.settle()

    await clock.advance(40)
    providers.gates["a:last"].set()
    await clock.settle()

    assert (last.result().duration_ms, last.result().failed_attempts) == (40_000, ())
    await cancel(first)


async def test_who_waits_for_a_provider_that_has_gone_silent_is_sent_to_the_next_model(gateway, providers, clock):
    first = [asking(gateway, f"a:{number}", "hung/m", timeout=60) for number in range(48)]
    waits = [asking(gateway, f"a:waits{number}", "hung/m", "well/m", timeout=60) for number in range(500)]

    await clock.advance(200)

    replies = [task.result() for task in waits if task.done()]
    turned_away = [
        reply for reply in replies if "no free slot: hung has answered none" in reply.failed_attempts[0].error
    ]
    assert len(turned_away) > 400
    assert {len(reply.failed_attempts) for reply in turned_away} == {1}
    assert {reply.model for reply in replies} == {"well/m"}
    await cancel([*first, *waits])


async def test_who_waits_for_a_provider_that_answers_a_few_keeps_waiting(gateway, providers, clock):
    first = [asking(gateway, f"a:{number}", "hung/m", timeout=60) for number in range(48)]
    waits = [asking(gateway, f"a:waits{number}", "hung/m", timeout=60) for number in range(200)]

    for _ in range(20):
        await clock.advance(30)
        providers.gates[providers.inside[-1]].set()
    await clock.settle()

    told = [str(task.exception()) for task in waits if task.done() and task.exception() is not None]
    assert gateway.slots[0].waiting > 0
    assert not [each for each in told if "no free slot" in each]
    await cancel([*first, *waits])


async def test_a_provider_that_has_too_much_to_do_gets_fewer_calls_at_once_and_no_other_does(gateway, providers, clock):
    for number in range(5):
        await clock.advance(10)
        busy = asking(gateway, f"a:{number}", "busy/m")
        await clock.advance(10)
        assert isinstance(busy.exception(), ModelUnavailableError)
        await asking(gateway, f"a:{number}", "well/m")

    limits = {each.provider: each.limit for each in gateway.slots}
    assert limits["busy"] < 20
    assert limits["well"] == 64


ENDS = {
    "answer": None,
    "overloaded": ModelOverloadedError("429"),
    "timeout": ModelTimeoutError("late"),
    "unavailable": ModelUnavailableError("500"),
    "refused": ModelRefusedError("bad key"),
    "broken": RuntimeError("odd"),
}
STEP = st.one_of(
    st.tuples(st.just("call"), st.sampled_from("ab"), st.integers(1, 6)),
    st.tuples(st.sampled_from(sorted(ENDS)), st.just(""), st.integers(0, 50)),
    st.tuples(st.just("cancel"), st.just(""), st.integers(0, 50)),
    st.tuples(st.just("pass"), st.just(""), st.integers(0, 100)),
)


@given(ceiling=st.integers(1, 12), steps=st.lists(STEP, max_size=60))
def test_no_slot_is_lost_or_given_twice_whatever_calls_come_to(ceiling, steps):
    async def scenario():
        clock = ManualClock()
        limit = AdaptiveLimit(ceiling=ceiling, start=ConcurrencyLimit(6))
        slots = ProviderSlots("p", limit, clock)
        inside, tasks = {}, []

        async def call(definition):
            end = asyncio.get_running_loop().create_future()
            async with slots.slot(("default", definition, definition), "m", 10.0, lambda _: None):
                inside[end] = definition
                try:
                    await end
                finally:
                    del inside[end]

        for step, definition, number in steps:
            before, now = len(inside), limit.now
            if step == "call":
                tasks += [asyncio.create_task(call(definition)) for _ in range(number)]
            elif step == "pass":
                await clock.advance(number)
            elif step == "cancel" and tasks:
                tasks[number % len(tasks)].cancel()
            elif step in ENDS and inside:
                end = list(inside)[number % len(inside)]
                end.set_result(None) if ENDS[step] is None else end.set_exception(ENDS[step])
            await clock.settle()
            unfinished = sum(not task.done() for task in tasks)
            assert len(inside) <= max(now, limit.now, before)
            assert slots.counts == SlotCounts("p", limit.now, len(inside), unfinished - len(inside))
            if unfinished > len(inside):
                held = [sum(each == name for each in inside.values()) for name in "ab"]
                assert len(inside) >= limit.now or max(held) >= limit.now - limit.now // 4
        await cancel(tasks)
        assert (slots.counts.running, slots.counts.waiting) == (0, 0)

    asyncio.run(scenario())
