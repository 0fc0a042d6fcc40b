"""Places that several processes of a node share, in virtual time; messages between them take two milliseconds each way."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.kernel.borrowed_places import PoolSize
from owlclaw_ray.kernel.place_lender import BorrowerId, PlaceCount, PlaceLender, PlaceRequest, PoolName
from owlclaw_ray.testing.clock import ManualClock
from tests.kernel.lending import Node

POOL = PoolName("tool_slots")
PLACES = 4
A, B = (DEFAULT_TENANT, "a"), (DEFAULT_TENANT, "b")
OTHER = (TenantId("acme"), "c")


class Uses:
    """Uses of places by hosts of a node, which count themselves."""

    def __init__(self, places=PLACES, each=None):
        self.clock = ManualClock()
        self.node = Node(self.clock, {POOL: PoolSize(places, each)})
        self.hosts, self.using, self.done, self.most = {}, Counter(), Counter(), 0
        self._tasks = []

    async def use(self, host, owner, seconds):
        if host not in self.hosts:
            self.hosts[host] = self.node.host(host)
        async with self.hosts[host].pool(POOL).place(owner):
            self.using[host, owner] += 1
            self.most = max(self.most, self.using.total())
            try:
                await self.clock.sleep(seconds)
            finally:
                self.using[host, owner] -= 1
        self.done[host] += 1

    def begin(self, host, owner, seconds):
        self._tasks.append(task := asyncio.create_task(self.use(host, owner, seconds)))
        return task

    def repeat(self, host, owner, seconds):
        async def for_ever():
            while True:
                await self.use(host, owner, seconds)

        self._tasks.append(task := asyncio.create_task(for_ever()))
        return task

    async def close(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.node.stop()


@pytest.fixture
async def uses():
    made = []

    def make(**options):
        made.append(Uses(**options))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def test_a_host_that_is_alone_asks_once_for_any_number_of_uses(uses):
    here = uses()
    for _ in range(50):
        task = here.begin("host-1", A, 0.01)
        await here.clock.advance(0.02)
        assert task.done()

    assert here.node.messages == 1


async def test_a_flood_on_one_host_costs_a_message_in_a_while_and_not_one_for_each_use(uses):
    here = uses()
    for number in range(400):
        here.begin("host-1", (DEFAULT_TENANT, f"a{number}"), 0.01)

    await here.clock.advance(1.1)

    assert here.done["host-1"] == 400
    assert here.node.messages <= 20


async def test_an_idle_place_goes_to_the_host_that_waits_for_it(uses):
    here = uses(places=1)
    here.begin("host-1", A, 0.01)
    await here.clock.advance(1)

    task = here.begin("host-2", B, 0.01)
    await here.clock.advance(0.03)

    assert task.done()
    assert here.most == 1


async def test_an_idle_place_goes_to_another_tenant_of_the_same_host(uses):
    here = uses(places=1)
    here.begin("host-1", OTHER, 0.01)
    await here.clock.advance(1)

    task = here.begin("host-1", A, 0.01)
    await here.clock.advance(0.03)

    assert task.done()


async def test_two_floods_of_short_uses_have_equal_parts_and_pay_for_turns_and_not_for_uses(uses):
    here = uses()
    for _ in range(8):
        here.repeat("host-1", A, 0.002)
        here.repeat("host-2", B, 0.002)
    await here.clock.advance(1)
    before, messages = here.done.copy(), here.node.messages

    await here.clock.advance(10)

    served = here.done - before
    assert served["host-1"] == pytest.approx(served["host-2"], rel=0.1)
    assert here.node.messages - messages < 0.1 * served.total()
    assert here.most <= PLACES


async def test_what_a_dead_host_held_and_waited_for_is_there_for_the_others(uses):
    here = uses(places=2)
    for _ in range(5):
        here.begin("host-1", A, 3600)
    await here.clock.advance(1)
    task = here.begin("host-2", B, 1)
    await here.clock.advance(10)
    waited = not task.done()

    here.node.end("host-1")
    await here.clock.advance(1.1)

    assert waited
    assert task.done()
    assert here.node.lender.waiting(POOL) == 0
    assert here.node.lender.held(POOL) == 1


async def test_a_wait_that_is_cancelled_takes_no_place(uses):
    here = uses(places=1)
    holder = here.begin("host-1", A, 1)
    late = here.begin("host-2", B, 1)
    await here.clock.advance(0.5)

    late.cancel()
    await here.clock.advance(1)
    after = here.begin("host-1", A, 0.1)
    await here.clock.advance(0.2)

    assert holder.done()
    assert late.cancelled()
    assert after.done()
    assert here.node.lender.waiting(POOL) == 0


async def test_a_place_that_is_granted_to_a_wait_just_cancelled_is_not_lost(uses):
    here = uses(places=1)
    late = here.begin("host-1", A, 1)
    await here.clock.advance(0.003)

    late.cancel()
    await here.clock.advance(0.1)
    after = here.begin("host-2", B, 0.1)
    await here.clock.advance(0.2)

    assert after.done()


async def test_one_agent_has_no_more_places_than_its_bound_and_asks_for_no_more(uses):
    here = uses(places=4, each=2)
    for _ in range(10):
        here.begin("host-1", A, 1)
    await here.clock.advance(0.5)

    held = here.using["host-1", A]
    task = here.begin("host-2", B, 0.1)
    await here.clock.advance(0.2)

    assert held == 2
    assert task.done()
    await here.clock.advance(5)
    assert here.done["host-1"] == 10


async def test_hosts_go_on_without_a_lender_that_is_silent_and_it_learns_what_they_have(uses):
    here = uses(places=2)
    here.begin("host-1", A, 60)
    await here.clock.advance(1)
    here.node.silent.set()
    tasks = [here.begin("host-2", B, 1) for _ in range(4)]

    await here.clock.advance(6)

    assert all(task.done() for task in tasks)
    here.begin("host-2", B, 30)
    await here.clock.advance(1)
    here.node.silent.clear()
    await here.clock.advance(10)
    assert here.node.lender.held(POOL) >= 2
    await here.clock.advance(60)
    assert here.using.total() == 0
    task = here.begin("host-3", (DEFAULT_TENANT, "d"), 0.1)
    await here.clock.advance(0.3)
    assert task.done()


@pytest.mark.parametrize("seed", range(8))
async def test_never_are_there_more_uses_than_places_nor_does_anybody_starve(uses, seed):
    dice, here = random.Random(seed), uses(each=2)
    tasks, dead = [], set()
    for number in range(600):
        host = f"host-{dice.randrange(5)}"
        if host in dead:
            continue
        owner = (TenantId(dice.choice(["default", "acme", "zeta"])), f"{host}-{dice.randrange(3)}")
        tasks.append((host, here.begin(host, owner, dice.choice([0.001, 0.05, 0.4]))))
        if dice.random() < 0.1:
            dice.choice(tasks)[1].cancel()
        if number == 300:
            dead.add(host)
            for at, task in tasks:
                if at == host:
                    task.cancel()
            await here.clock.settle()
            here.node.end(host)
        if dice.random() < 0.5:
            await here.clock.advance(dice.random() * 0.2)

    await here.clock.advance(120)

    assert all(task.done() for _, task in tasks)
    assert here.most <= PLACES
    assert here.node.lender.waiting(POOL) == 0
    assert 0 <= here.node.lender.held(POOL) <= PLACES


def test_a_request_that_its_borrower_gave_up_changes_nothing_when_it_comes_late():
    lender, host = PlaceLender({POOL: 2}, lambda _: 1.0, lambda _: None), BorrowerId("host-1")
    lender.request(host, PlaceRequest(5, wanted=(PlaceCount(POOL, A, 1),), anew=True))

    late = lender.request(host, PlaceRequest(4, wanted=(PlaceCount(POOL, A, 1),)))

    assert late.granted == ()
    assert lender.held(POOL) == 1


def test_nobody_returns_more_than_it_has():
    lender, host = PlaceLender({POOL: 2}, lambda _: 1.0, lambda _: None), BorrowerId("host-1")
    lender.request(host, PlaceRequest(0, wanted=(PlaceCount(POOL, A, 1),)))

    lender.request(host, PlaceRequest(1, returned=(PlaceCount(POOL, A, 2), PlaceCount(POOL, B, 1))))

    assert lender.held(POOL) == 0
