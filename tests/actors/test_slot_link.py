"""Tool slots that the hosts of a node share, in virtual time; and the socket between them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
import uvloop

from actors.plan import ToolSlots
from actors.slot_link import ANSWER_SECONDS, SlotDesk, SlotLink, connect_at
from actors.tool_task import offered_slots, slot_resources
from owlclaw_ray.domain.tool import ToolClass
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.kernel.fair_order import equal_weights
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.testing.clock import ManualClock
from tests.actors.slot_lines import SlotNode

PLACES = 4
A, B = (DEFAULT_TENANT, "a"), (DEFAULT_TENANT, "b")
OTHER = (TenantId("acme"), "c")
KIND = ToolClass.STATE


class Uses:
    """Uses of slots by hosts of a node, which count themselves."""

    def __init__(self, places=PLACES, seed=0):
        self.clock = ManualClock()
        self.node = SlotNode(self.clock, ToolSlots(1, state=places), seed=seed)
        self.using, self.done, self.most = Counter(), Counter(), 0
        self._tasks = []

    async def use(self, host, owner, seconds):
        link = await self.node.host(host)
        async with link.place(KIND, owner):
            self.using[host, owner] += 1
            self.most = max(self.most, self.using.total())
            try:
                await self.clock.sleep(seconds)
            finally:
                self.using[host, owner] -= 1
        self.done[host] += 1

    async def connect(self, *hosts):
        for host in hosts:
            await self.node.host(host)
        await self.clock.advance(0.1)

    def begin(self, host, owner, seconds):
        self._tasks.append(task := asyncio.create_task(self.use(host, owner, seconds)))
        return task

    async def close(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.node.close()


@pytest.fixture
async def uses():
    made = []

    def make(**options):
        made.append(Uses(**options))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def test_a_call_that_need_not_wait_costs_no_message(uses):
    here = uses()
    await here.connect("host-1", "host-2")
    for number in range(50):
        tasks = [here.begin("host-1", (DEFAULT_TENANT, f"a{number}"), 0.01), here.begin("host-2", OTHER, 0.01)]
        await here.clock.advance(0.02)
        assert all(task.done() for task in tasks)

    assert here.node.frames == 2 * 2 + 2 * 2  # each has connected, and asked once


async def test_an_idle_slot_goes_to_the_host_that_waits_for_it(uses):
    here = uses(places=1)
    await here.connect("host-1", "host-2")
    here.begin("host-1", A, 0.01)
    await here.clock.advance(1)

    task = here.begin("host-2", B, 0.01)
    await here.clock.advance(0.02)

    assert task.done()
    assert here.most == 1


async def test_an_idle_slot_goes_to_another_tenant_of_the_same_host(uses):
    here = uses(places=1)
    await here.connect("host-1")
    here.begin("host-1", OTHER, 0.01)
    await here.clock.advance(1)

    task = here.begin("host-1", A, 0.01)
    await here.clock.advance(0.02)

    assert task.done()


async def test_an_agent_has_half_of_the_slots_at_most_also_of_those_that_others_of_its_host_leave(uses):
    here = uses()
    await here.connect("host-1")
    for number in range(PLACES):
        here.begin("host-1", (DEFAULT_TENANT, f"before-{number}"), 0.01)
    await here.clock.advance(1)

    for _ in range(6):
        here.begin("host-1", A, 1)
    await here.clock.advance(0.5)
    held = here.using["host-1", A]
    task = here.begin("host-1", B, 0.1)
    await here.clock.advance(0.2)

    assert held == PLACES // 2
    assert task.done()
    await here.clock.advance(5)
    assert here.done["host-1"] == PLACES + 6 + 1


async def test_a_slot_that_one_agent_left_to_another_counts_for_that_one(uses):
    here = uses()
    await here.connect("host-1")
    here.begin("host-1", A, 0.01)
    await here.clock.advance(1)

    tasks = [here.begin("host-1", B, 1) for _ in range(3)]
    await here.clock.advance(0.5)
    held = here.using["host-1", B]
    await here.clock.advance(2)

    assert held == PLACES // 2
    assert all(task.done() for task in tasks)


async def test_what_a_dead_host_held_and_waited_for_is_there_for_the_others_at_once(uses):
    here = uses(places=2)
    await here.connect("host-1", "host-2")
    for _ in range(5):
        here.begin("host-1", A, 3600)
        here.begin("host-1", OTHER, 3600)
    await here.clock.advance(1)
    task = here.begin("host-2", B, 1)
    await here.clock.advance(10)
    waited = not task.done()

    here.node.die("host-1")
    await here.clock.advance(1.1)

    assert waited
    assert task.done()
    assert here.node.desk.waiting(KIND) == 0
    assert here.node.desk.held(KIND) == 0


async def test_a_wait_that_is_cancelled_takes_no_slot(uses):
    here = uses(places=1)
    await here.connect("host-1", "host-2")
    holder = here.begin("host-1", A, 1)
    await here.clock.advance(0.1)
    late = here.begin("host-2", B, 1)
    await here.clock.advance(0.4)

    late.cancel()
    await here.clock.advance(1)
    after = here.begin("host-1", A, 0.1)
    await here.clock.advance(0.2)

    assert holder.done()
    assert late.cancelled()
    assert after.done()
    assert here.node.desk.waiting(KIND) == 0


@pytest.mark.parametrize("seconds", [0.0005, 0.0015, 0.0025, 0.0035, 0.0045])
async def test_a_slot_that_is_granted_to_a_wait_just_cancelled_is_not_lost(uses, seconds):
    here = uses(places=1)
    await here.connect("host-1", "host-2")
    late = here.begin("host-1", A, 1)
    await here.clock.advance(seconds)

    late.cancel()
    await here.clock.advance(0.1)
    after = here.begin("host-2", B, 0.1)
    await here.clock.advance(0.2)

    assert after.done()


async def test_a_root_that_hangs_holds_up_nothing_for_longer_than_it_may_take_for_an_answer(uses):
    here = uses(places=2)
    await here.connect("host-1", "host-2")
    here.begin("host-1", A, 60)
    await here.clock.advance(1)
    waiting = [here.begin("host-2", OTHER, 1) for _ in range(4)]
    await here.clock.advance(0.5)

    here.node.stop("root")
    new = here.begin("host-1", B, 1)
    await here.clock.advance(ANSWER_SECONDS + 1.0 + 4 * 1.0)

    assert all(task.done() for task in [*waiting, new])


async def test_a_root_that_goes_on_learns_what_hosts_have_and_wait_for(uses):
    here = uses(places=2)
    await here.connect("host-1", "host-2")
    here.node.stop("root")
    for owner in (A, B):
        here.begin("host-1", owner, 60)
    await here.clock.advance(10)
    held = here.using.total()
    waiting = here.begin("host-1", (DEFAULT_TENANT, "late"), 1)
    await here.clock.advance(1)

    here.node.go_on("root")
    await here.clock.advance(5)
    late = here.begin("host-2", OTHER, 1)
    await here.clock.advance(5)

    assert held == 2
    assert here.node.desk.held(KIND) == 2
    assert here.node.desk.waiting(KIND) == 2
    assert not waiting.done()
    assert not late.done()
    await here.clock.advance(60)
    assert waiting.done()
    assert late.done()


async def test_a_new_host_takes_no_slot_before_its_root_had_time_to_answer(uses):
    here = uses(places=2)
    await here.connect("host-1")
    for owner in (A, B):
        here.begin("host-1", owner, 10)
    await here.clock.advance(0.5)

    late = here.begin("new", OTHER, 1)
    await here.clock.advance(5)
    waiting = here.node.desk.waiting(KIND)
    await here.clock.advance(8)

    assert waiting == 1
    assert late.done()
    assert here.most == 2


@pytest.mark.parametrize(("root_does", "seconds"), [("stop", ANSWER_SECONDS), ("die", 0.0)])
async def test_a_new_host_goes_on_alone_when_its_root_does_not_answer(uses, root_does, seconds):
    here = uses(places=2)
    getattr(here.node, root_does)("root")

    task = here.begin("new", OTHER, 1)
    await here.clock.advance(seconds + 1.0)

    assert task.done()


async def test_hosts_whose_root_is_dead_share_slots_out_among_their_own(uses):
    here = uses(places=2)
    await here.connect("host-1")
    tasks = [here.begin("host-1", owner, 1) for owner in (A, B, OTHER) for _ in range(2)]
    await here.clock.advance(0.5)

    here.node.die("root")
    await here.clock.advance(4)

    assert all(task.done() for task in tasks)
    assert here.most == 2


async def test_a_host_that_stands_still_with_idle_slots_holds_up_no_other(uses):
    here = uses(places=2)
    await here.connect("host-1", "host-2")
    for owner in (A, B):
        here.begin("host-1", owner, 0.1)
    await here.clock.advance(1)
    here.node.stop("host-1")

    task = here.begin("host-2", OTHER, 1)
    await here.clock.advance(ANSWER_SECONDS + 1.1)
    meanwhile = task.done()
    here.node.go_on("host-1")
    after = here.begin("host-1", A, 1)
    await here.clock.advance(3)

    assert meanwhile
    assert after.done()


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_lines_break_nothing_is_lost_or_stuck(uses, seed):
    dice, here = random.Random(seed), uses(seed=seed)
    here.node.breaks = 0.2
    tasks, dead = [], set()
    for number in range(500):
        host = f"host-{dice.randrange(5)}"
        if host in dead:
            continue
        owner = (TenantId(dice.choice(["default", "acme", "zeta"])), f"{host}-{dice.randrange(3)}")
        tasks.append((host, here.begin(host, owner, dice.choice([0.001, 0.05, 0.4]))))
        if dice.random() < 0.1:
            dice.choice(tasks)[1].cancel()
        if number in {100, 200}:
            here.node.stop("root" if number == 100 else "host-1")
        if number in {150, 250}:
            here.node.go_on("root" if number == 150 else "host-1")
        if number == 300:
            dead.add(host)
            for at, task in tasks:
                if at == host:
                    task.cancel()
            await here.clock.settle()
            here.node.die(host)
        if dice.random() < 0.5:
            await here.clock.advance(dice.random() * 0.2)

    here.node.breaks = 0.0
    await here.clock.advance(120)

    assert all(task.done() for _, task in tasks)
    assert here.node.desk.waiting(KIND) == 0
    assert 0 <= here.node.desk.held(KIND) <= PLACES
    await here.connect(*(f"new-{number}" for number in range(PLACES)))
    late = [here.begin(f"new-{number}", (TenantId(f"t{number}"), "a"), 50) for number in range(PLACES)]
    await here.clock.advance(10)
    assert here.using.total() == PLACES == here.node.desk.held(KIND)
    await here.clock.advance(100)
    assert all(task.done() for task in late)


@pytest.mark.parametrize("seed", range(6))
async def test_while_lines_hold_there_are_never_more_uses_than_slots(uses, seed):
    dice, here = random.Random(seed), uses()
    await here.connect(*(f"host-{number}" for number in range(5)))
    tasks = []
    for _ in range(500):
        host = f"host-{dice.randrange(5)}"
        owner = (TenantId(dice.choice(["default", "acme", "zeta"])), f"{host}-{dice.randrange(3)}")
        tasks.append(here.begin(host, owner, dice.choice([0.001, 0.05, 0.4])))
        if dice.random() < 0.1:
            dice.choice(tasks).cancel()
        if dice.random() < 0.5:
            await here.clock.advance(dice.random() * 0.2)

    await here.clock.advance(120)

    assert all(task.done() for task in tasks)
    assert here.most == PLACES


@pytest.mark.parametrize("loop_of", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_over_a_socket_slots_are_lent_and_are_free_again_when_a_host_goes(loop_of, tmp_path):
    with asyncio.Runner(loop_factory=loop_of) as runner:
        runner.run(lend_over_a_socket(tmp_path))


async def lend_over_a_socket(tmp_path):
    slots, clock, shut = ToolSlots(1, state=2), SystemClock(), asyncio.Event()
    desk = SlotDesk(slots, clock)
    lending = asyncio.create_task(desk.listen(tmp_path / "slots"))
    while not (tmp_path / "slots").exists():
        await asyncio.sleep(0)
    links = [SlotLink(connect_at(tmp_path / "slots"), slots, equal_weights, clock) for _ in range(2)]

    async def use(link, owner, gate):
        async with link.place(KIND, owner):
            await gate.wait()

    tasks = [asyncio.create_task(use(links[0], owner, shut)) for owner in (A, B)]
    while desk.held(KIND) < 2:
        await asyncio.sleep(0)
    opened = asyncio.Event()
    opened.set()
    late = asyncio.create_task(use(links[1], A, opened))
    while not desk.waiting(KIND):
        await asyncio.sleep(0)
    await links[0].stop()
    await late

    lending.cancel()
    await asyncio.gather(lending, return_exceptions=True)
    await links[1].stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_node_lends_the_slots_that_it_offers():
    assert offered_slots(slot_resources(ToolSlots(9, 3, 4, 5)), ToolSlots(2)) == ToolSlots(9, 3, 4, 5)
    assert offered_slots({"CPU": 2.0}, ToolSlots(2)) == ToolSlots(2)
