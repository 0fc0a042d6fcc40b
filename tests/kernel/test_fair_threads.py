"""Threads that owners share: whose calls begin, while others hang."""

import asyncio
import threading

import pytest

from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.fair_threads import FairThreads
from owlclaw_ray.testing.clock import ManualClock

GREEDY, MODEST = TenantId("greedy"), TenantId("modest")


class Calls:
    """Calls that begin in threads and hang there until all are let go."""

    def __init__(self, number=4, each=1):
        self.clock = ManualClock()
        self.threads = FairThreads("trial", number, each, self.clock)
        self.begun, self.let_go = [], threading.Event()
        self.tasks = []

    def begin(self, tenant, agent, patience=1e6):
        self.tasks.append(
            asyncio.create_task(self.threads.run((tenant, agent), lambda: self._hang(tenant, agent), patience))
        )
        return self.tasks[-1]

    def _hang(self, tenant, agent):
        self.begun.append((tenant, agent))
        self.let_go.wait()
        return agent

    async def answer(self, tenant, agent):
        """Return what a call returns that does not hang."""
        return await self.threads.run((tenant, agent), lambda: "done", 1e6)


@pytest.fixture
async def calls():
    made = []

    def make(**options):
        made.append(Calls(**options))
        return made[-1]

    yield make
    for each in made:
        each.let_go.set()
        await asyncio.gather(*each.tasks, return_exceptions=True)


async def test_a_tenant_is_answered_while_any_number_of_another_one_s_calls_hang(calls):
    here = calls()
    for number in range(60):
        here.begin(GREEDY, f"a{number}")
    await here.clock.settle()

    assert await here.answer(MODEST, "b") == "done"
    assert {tenant for tenant, _ in here.begun} == {GREEDY}


async def test_an_agent_s_calls_that_wait_for_its_turn_have_no_thread(calls):
    here = calls(number=2)
    for _ in range(60):
        here.begin(GREEDY, "a")
    await here.clock.settle()

    assert await here.answer(GREEDY, "a2") == "done"
    assert here.begun == [(GREEDY, "a")]


async def test_who_could_not_begin_in_time_is_told_and_its_call_never_begins(calls):
    here = calls()
    here.begin(GREEDY, "a")
    late = here.begin(GREEDY, "a", patience=10.0)

    await here.clock.advance(10.0)
    with pytest.raises(TimeoutError):
        await late
    here.let_go.set()

    assert await here.answer(GREEDY, "a") == "done"
    assert here.begun == [(GREEDY, "a")]


async def test_a_call_whose_caller_is_gone_keeps_its_place_until_it_has_ended(calls):
    here = calls()
    gone = here.begin(GREEDY, "a")
    await here.clock.settle()
    gone.cancel()
    following = here.begin(GREEDY, "a")
    await here.clock.settle()
    begun_meanwhile = list(here.begun)
    here.let_go.set()

    assert await following == "a"
    assert gone.cancelled()
    assert (begun_meanwhile, here.begun) == ([(GREEDY, "a")], [(GREEDY, "a")] * 2)


async def test_what_a_call_raises_is_raised_and_its_place_is_free(calls):
    here = calls(number=1)

    def fail():
        raise FileNotFoundError("MEMORY.md")

    with pytest.raises(FileNotFoundError):
        await here.threads.run((GREEDY, "a"), fail, 1e6)

    assert await here.answer(GREEDY, "a") == "done"
