"""A node's row in a store, as its Keeper holds it."""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.placement.lease import GIVE_UP_SECONDS
from owlclaw_ray.placement.node_row import NodeRow
from owlclaw_ray.store.commands import AgentActivated, ForgetNode, JoinNode, MarkNode, NodeState, OnStandby
from owlclaw_ray.store.queries import ClusterNodes
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.store_commands import activation, one
from tests.placement.test_lease import Line


@pytest.fixture
async def store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="keeper")
    yield store
    await store.close()


class SilentLine(Line):
    """A line on which nothing arrives, and nothing comes back, until it is restored."""

    def __init__(self, store):
        super().__init__(store)
        self.restored = asyncio.Event()
        self.restored.set()

    async def apply(self, commands):
        await self.restored.wait()
        return await super().apply(commands)


class Hosts:
    """Those of the node; `asked` is how often they were to be ended."""

    def __init__(self):
        self.asked, self.survive = 0, False

    async def end(self):
        self.asked += 1
        if self.survive:
            raise RuntimeUnavailableError("the root is not there yet")


@pytest.fixture
def line(store):
    return SilentLine(store)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def hosts():
    return Hosts()


@pytest.fixture
async def row(store, line, clock, hosts):
    row = NodeRow(line, JoinNode("n1", "east", "machine-1"), clock, joined=store.serve_node, lost=hosts.end)
    await row.join()
    yield row
    await row.stop()


async def ticks(row, clock, seconds):
    """Let so many seconds pass, in which the row is renewed again and again."""
    ticking = asyncio.create_task(forever(row, clock))
    await clock.advance(seconds)
    ticking.cancel()
    await asyncio.wait({ticking})


async def forever(row, clock):
    while True:
        await row.tick()
        await clock.sleep(1.0)


async def held(store):
    (node,) = await store.read(ClusterNodes())
    return node.generation, node.beats, node.state


async def test_a_node_joins_and_renews_its_row(store, row):
    await row.tick()
    await row.tick()

    assert await held(store) == (1, 2, NodeState.ACTIVE)
    assert isinstance(await one(store, activation("act_1")), AgentActivated)


async def test_a_node_that_was_taken_for_lost_activates_nothing_until_it_has_joined_again(store, row):
    await one(store, MarkNode("n1", NodeState.LOST))
    assert await one(store, activation("act_1")) == OnStandby()

    await row.tick()

    assert await held(store) == (2, 0, NodeState.ACTIVE)
    assert isinstance(await one(store, activation("act_1")), AgentActivated)


async def test_a_node_that_does_not_reach_the_store_renews_its_row_as_soon_as_it_does(store, row, line):
    line.cut = True
    await row.tick()
    with pytest.raises(StoreUnavailableError):
        await row.join()
    line.cut = False
    await row.tick()

    assert await held(store) == (1, 1, NodeState.ACTIVE)


async def test_a_node_that_is_drained_stays_so_while_it_renews_its_row(store, row):
    await one(store, MarkNode("n1", NodeState.DRAINING))
    await row.tick()

    assert await held(store) == (1, 1, NodeState.DRAINING)
    assert await one(store, activation("act_1")) == OnStandby()


async def test_a_drained_node_stays_so_when_its_row_was_removed_while_it_was_cut_off(store, row):
    await one(store, MarkNode("n1", NodeState.DRAINING))
    await row.tick()
    (seen,) = await store.read(ClusterNodes())
    await one(store, ForgetNode("n1", seen))

    await row.tick()
    assert await held(store) == (1, 0, NodeState.DRAINING)

    await one(store, MarkNode("n1", NodeState.ACTIVE))
    await row.tick()
    await one(store, MarkNode("n1", NodeState.LOST))
    await row.tick()
    assert (await held(store))[2] is NodeState.ACTIVE


async def test_a_node_that_was_taken_for_lost_joins_again_only_when_its_hosts_have_ended(store, row, hosts):
    await one(store, MarkNode("n1", NodeState.LOST))
    hosts.survive = True
    await row.tick()
    assert await held(store) == (1, 0, NodeState.LOST)

    hosts.survive = False
    await row.tick()

    assert hosts.asked == 2
    assert await held(store) == (2, 0, NodeState.ACTIVE)


async def test_its_hosts_are_left_alone_as_long_as_nobody_took_the_node_for_lost(row, line, hosts):
    line.cut = True
    await row.tick()
    line.cut = False
    await row.tick()

    assert hosts.asked == 0


async def test_the_age_of_a_row_counts_from_when_its_last_renewal_was_asked_for(row, clock, line):
    await row.tick()
    await clock.advance(3.0)
    assert row.unrenewed == 3.0

    line.cut = True
    await row.tick()
    assert row.unrenewed == 3.0

    line.cut = False
    await row.tick()
    assert row.unrenewed == 0.0


@pytest.mark.parametrize("after", [0.0, 0.5, 1.1])
async def test_who_waits_for_a_store_that_answers_nothing_is_told_so_when_it_is_time_to_give_up(
    row, clock, line, after
):
    await clock.advance(after)
    line.restored.clear()
    waiting = asyncio.create_task(row.while_answered(line.restored.wait))
    ticking = asyncio.create_task(forever(row, clock))

    await clock.advance(GIVE_UP_SECONDS - after - 0.1)
    assert not waiting.done()
    await clock.advance(0.25)
    ticking.cancel()

    with pytest.raises(StoreUnavailableError, match="has not answered this node for 4 s"):
        await waiting


async def test_nothing_is_asked_of_a_store_that_answers_nothing_until_it_does_again(store, row, clock, line):
    line.restored.clear()
    await ticks(row, clock, GIVE_UP_SECONDS + 1)
    asked = []

    async def work():
        asked.append("store")
        return "answer"

    with pytest.raises(StoreUnavailableError):
        await row.while_answered(work)
    assert not asked

    line.restored.set()
    while await held(store) == (1, 0, NodeState.ACTIVE):
        await clock.settle()
    await row.tick()
    assert await row.while_answered(work) == "answer"


async def test_a_store_that_says_that_it_takes_nothing_is_still_asked_for_what_it_has(row, clock, line):
    line.cut = True
    await ticks(row, clock, GIVE_UP_SECONDS * 3)

    async def work():
        return "answer"

    assert await row.while_answered(work) == "answer"


async def test_an_answer_that_comes_late_is_that_of_its_question(row, clock, line):
    line.restored.clear()
    await ticks(row, clock, 7.0)
    line.restored.set()

    await row.tick()

    assert row.unrenewed == 7.0
    await row.tick()
    assert row.unrenewed == 0.0
