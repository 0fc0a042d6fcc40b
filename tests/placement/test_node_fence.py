"""When a node's hosts are ended because its row is not renewed, on the node's own clock."""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.placement.lease import EXPIRE_SECONDS, GIVE_UP_SECONDS
from owlclaw_ray.placement.node_fence import NodeCutError, NodeFence, RowAge
from owlclaw_ray.testing.clock import ManualClock


class Keeper:
    """Says how old the row is; `renews` while the store does, and it is `away` or `hung` while it cannot be asked."""

    def __init__(self, clock):
        self.clock, self.renewed = clock, None
        self.renews, self.away, self.hung = True, False, False

    async def unrenewed(self):
        if self.away:
            raise RuntimeUnavailableError("the keeper is being restarted")
        if self.hung:
            await asyncio.Event().wait()
        if self.renews:
            self.renewed = self.clock.monotonic()
        return None if self.renewed is None else self.clock.monotonic() - self.renewed


class Node:
    def __init__(self):
        self.clock = ManualClock()
        self.keeper, self.ended = Keeper(self.clock), []
        self.fence = NodeFence(self.keeper.unrenewed, self.clock, end=self._end)

    async def _end(self):
        self.ended.append(self.clock.monotonic())

    def may_have_hosts(self):
        try:
            self.fence.check()
        except NodeCutError:
            return False
        return True

    async def pass_time(self, seconds):
        async def watch():
            while True:
                await self.fence.tick()
                await self.clock.sleep(1.0)

        watching = asyncio.create_task(watch())
        await self.clock.advance(seconds)
        watching.cancel()
        await asyncio.wait({watching})


@pytest.fixture
def node():
    return Node()


async def test_a_node_whose_row_is_renewed_keeps_its_hosts(node):
    await node.pass_time(60)

    assert not node.ended
    assert node.may_have_hosts()


async def test_hosts_are_ended_when_the_keeper_cannot_renew_the_row_and_before_others_may_take_their_agents(node):
    await node.pass_time(10)
    node.keeper.renews = False
    await node.pass_time(GIVE_UP_SECONDS - 1)
    assert node.may_have_hosts()

    await node.pass_time(1)

    [ended, *_] = node.ended
    assert ended - node.keeper.renewed <= GIVE_UP_SECONDS < EXPIRE_SECONDS
    assert not node.may_have_hosts()


@pytest.mark.parametrize("trouble", ["away", "hung"])
async def test_a_keeper_that_cannot_be_asked_has_as_long_as_others_wait_before_they_take_the_agents(node, trouble):
    await node.pass_time(10)
    setattr(node.keeper, trouble, True)
    await node.pass_time(EXPIRE_SECONDS - 1)
    assert not node.ended

    await node.pass_time(3)

    assert node.ended
    assert not node.may_have_hosts()


async def test_hosts_that_come_to_life_later_are_ended_as_well_while_the_node_is_cut(node):
    await node.pass_time(1)
    node.keeper.renews = False
    await node.pass_time(GIVE_UP_SECONDS + 1)
    before = len(node.ended)

    await node.pass_time(3)

    assert len(node.ended) > before


async def test_a_node_whose_row_is_renewed_again_may_have_hosts_again(node):
    await node.pass_time(1)
    node.keeper.renews = False
    await node.pass_time(10)
    node.keeper.renews = True
    await node.pass_time(1)

    assert node.may_have_hosts()


async def test_a_node_that_has_no_row_yet_is_not_cut(node):
    node.keeper.renews = False

    await node.pass_time(60)

    assert not node.ended
    assert node.may_have_hosts()


async def test_the_age_of_a_row_is_never_less_than_it_is_however_long_the_answer_takes():
    clock = ManualClock()

    async def ask():
        await clock.sleep(0.5)
        return 2.0

    row = RowAge(ask, clock)
    await clock.advance(10)
    looking = asyncio.create_task(row.look())
    await clock.advance(0.5)
    await looking

    assert row.seconds == 2.5
