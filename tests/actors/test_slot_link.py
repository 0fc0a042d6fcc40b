"""Tool slots between hosts and the root of a node: the messages that they send, over handles that are no processes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorUnavailableError

from actors.plan import ToolSlots
from actors.remote_actor import RemoteActor
from actors.slot_link import SlotDesk, SlotLink
from actors.tool_task import offered_slots, slot_resources
from owlclaw_ray.domain.tool import ToolClass
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.kernel.place_lender import BorrowerId, PlaceRequest
from owlclaw_ray.testing.clock import ManualClock

SLOTS = ToolSlots(alone=2)


class Handle:
    """Calls an actor as Ray does, packed; so often in vain at first."""

    def __init__(self, actor, failures=0):
        self._actor, self._failures = actor, failures
        self.answer = SimpleNamespace(remote=self._call)

    async def _call(self, packed):
        if self._failures:
            self._failures -= 1
            raise ActorUnavailableError("away", None)
        return await self._actor.answer(packed)


class Root(RemoteActor):
    def __init__(self, clock):
        self.hosts = {}
        self.slots = SlotDesk(SLOTS, self.hosts.get, lambda _: 1.0, clock)

    async def lend_slots(self, host_id, request):
        return self.slots.request(host_id, request)


class Host(RemoteActor):
    def __init__(self, host_id, root, clock, failures=0):
        self._slots = SlotLink(host_id, "trial", SLOTS, clock)
        self._slots._root._actor = Handle(root)
        root.hosts[host_id] = Handle(self, failures)

    async def told_slots(self, news):
        self._slots.told(news)

    async def use(self, gate, agent="a"):
        async with self._slots.places[ToolClass.ALONE].place((DEFAULT_TENANT, agent)):
            await gate.wait()


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_host_is_told_when_others_wait_and_gives_back_what_is_idle(failures):
    clock, gate = ManualClock(), asyncio.Event()
    root = Root(clock)
    first, second = Host("host-1", root, clock, failures), Host("host-2", root, clock)
    gate.set()
    await first.use(gate)
    gate.clear()
    tasks = [asyncio.create_task(second.use(gate, agent)) for agent in "ab"]
    for _ in range(5):
        await clock.advance(0.2)
    gate.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 10)

    assert root.slots.waiting("tool_slots") == 0


async def test_what_an_ended_host_had_is_lent_to_others_and_it_gets_nothing_more():
    clock, shut = ManualClock(), asyncio.Event()
    root = Root(clock)
    first, second = Host("host-1", root, clock), Host("host-2", root, clock)
    held = [asyncio.create_task(first.use(shut, agent)) for agent in "ab"]
    await clock.advance(0.2)
    opened = asyncio.Event()
    opened.set()
    late = asyncio.create_task(second.use(opened))
    await clock.advance(0.2)
    waited = not late.done()

    del root.hosts["host-1"]
    root.slots.forget("host-1")
    await asyncio.wait_for(late, 10)

    assert waited
    with pytest.raises(RuntimeUnavailableError, match="host-1 is no host of this node"):
        root.slots.request(BorrowerId("host-1"), PlaceRequest(9))
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)


def test_a_node_lends_the_slots_that_it_offers():
    assert offered_slots(slot_resources(ToolSlots(9, 3, 4, 5)), SLOTS) == ToolSlots(9, 3, 4, 5)
    assert offered_slots({"CPU": 2.0}, SLOTS) == SLOTS
