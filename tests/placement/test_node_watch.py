"""Which nodes are lost, by the rows in the store, on the clock of who looks at them."""

from __future__ import annotations

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.placement.node_watch import ALONE_SECONDS, MAX_BLIND_SECONDS, NodeWatch
from owlclaw_ray.store.commands import HoldNode, JoinNode, MarkNode, NodeState
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS
from owlclaw_ray.store.queries import ClusterNodes
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock


class Rows:
    """The store of three nodes, seen from n1; `told` is what became known of lost nodes."""

    def __init__(self, store):
        self.store, self.clock, self.told = store, ManualClock(), []
        self.generations = {"n1": 1, "n2": 1, "n3": 1}
        self.cut = False
        self.before_marks, self.reads = [], 0
        self.watch = NodeWatch(self, "n1", self.clock, changed=lambda lost: self.told.append(set(lost)))

    async def read(self, query):
        if self.cut:
            raise StoreUnavailableError("the line is cut")
        self.reads += 1
        return await self.store.read(query)

    async def apply(self, commands):
        for node_id in self.before_marks:
            await self.beat(node_id)
        return await self.store.apply(commands)

    async def beat(self, *node_ids):
        for node_id in node_ids:
            await self.store.apply([HoldNode(node_id, self.generations[node_id])])

    async def join(self, *node_ids):
        for node_id in node_ids:
            (held,) = await self.store.apply([JoinNode(node_id, "east", f"machine of {node_id}")])
            self.generations[node_id] = held.node.generation

    async def pass_time(self, seconds, *beating):
        """Have seconds pass, in each of which these nodes renew their rows, and then the watch looks."""
        for _ in range(int(seconds)):
            await self.clock.advance(1.0)
            await self.beat(*beating)
            await self.watch.tick()

    async def states(self):
        return {node.node_id: node.state for node in await self.store.read(ClusterNodes())}


@pytest.fixture
async def rows(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="keeper")
    rows = Rows(store)
    await rows.join("n1", "n2", "n3")
    await rows.watch.tick()
    yield rows
    await store.close()


async def test_a_node_whose_row_stands_still_is_lost_after_its_time_and_not_sooner(rows):
    await rows.pass_time(2, "n1", "n2", "n3")
    await rows.pass_time(EXPIRE_SECONDS - 1, "n1", "n2")
    assert rows.told == []

    await rows.pass_time(1, "n1", "n2")

    assert rows.told == [{"n3"}]
    assert await rows.states() == {"n1": NodeState.ACTIVE, "n2": NodeState.ACTIVE, "n3": NodeState.LOST}


async def test_a_node_that_renews_its_row_now_and_then_is_not_lost(rows):
    for _ in range(4):
        await rows.pass_time(EXPIRE_SECONDS - 1, "n1", "n2")
        await rows.pass_time(1, "n1", "n2", "n3")

    assert rows.told == []


async def test_a_node_that_renews_its_row_just_before_it_is_marked_is_not_lost(rows):
    rows.before_marks = ["n3"]

    await rows.pass_time(EXPIRE_SECONDS + 3, "n1", "n2")

    assert rows.told == []
    assert (await rows.states())["n3"] is NodeState.ACTIVE


async def test_a_node_that_has_joined_again_is_not_lost_any_more(rows):
    await rows.pass_time(EXPIRE_SECONDS + 1, "n1", "n2")
    await rows.join("n3")

    await rows.pass_time(EXPIRE_SECONDS * 2, "n1", "n2", "n3")

    assert rows.told == [{"n3"}, set()]


async def test_a_node_that_another_watch_has_marked_is_lost_here_too(rows):
    await rows.store.apply([MarkNode("n2", NodeState.LOST)])

    await rows.pass_time(1, "n1", "n3")

    assert rows.told == [{"n2"}]


async def test_nobody_is_lost_because_the_watch_itself_stood_still(rows):
    await rows.pass_time(2, "n1", "n2", "n3")
    await rows.clock.advance(EXPIRE_SECONDS * 3)

    await rows.watch.tick()
    await rows.pass_time(EXPIRE_SECONDS - 1, "n1", "n2")
    assert rows.told == []

    await rows.pass_time(1, "n1", "n2")
    assert rows.told == [{"n3"}]


async def test_nobody_is_lost_because_the_store_could_not_be_read(rows):
    await rows.pass_time(2, "n1", "n2", "n3")
    rows.cut = True
    for _ in range(int(EXPIRE_SECONDS) + 2):
        await rows.clock.advance(1.0)
        with pytest.raises(StoreUnavailableError):
            await rows.watch.tick()
    rows.cut = False

    await rows.pass_time(1, "n1")

    assert rows.told == []


async def test_nobody_is_lost_while_the_store_takes_no_writes(rows):
    await rows.pass_time(2, "n1", "n2", "n3")
    await rows.pass_time(EXPIRE_SECONDS * 3)

    await rows.pass_time(1, "n1")

    assert rows.told == []


async def test_a_renewal_of_the_own_row_that_comes_a_little_late_does_not_make_the_time_longer(rows):
    assert MAX_BLIND_SECONDS > 2
    await rows.pass_time(1, "n1", "n2", "n3")
    for _ in range(int(EXPIRE_SECONDS) // 2):
        await rows.pass_time(1, "n2")
        await rows.pass_time(1, "n1", "n2")

    assert rows.told == [{"n3"}]


async def test_where_there_is_one_node_the_store_is_rarely_asked(rows):
    await rows.store.apply([MarkNode("n2", NodeState.LOST), MarkNode("n3", NodeState.LOST)])
    await rows.pass_time(ALONE_SECONDS + 1, "n1")
    before = rows.reads

    await rows.pass_time(4 * ALONE_SECONDS, "n1")

    assert rows.reads - before == 4
    await rows.join("n2")
    await rows.pass_time(ALONE_SECONDS + EXPIRE_SECONDS, "n1")
    assert (await rows.states())["n2"] is NodeState.LOST


async def test_a_node_that_is_drained_stays_so_however_long_its_row_stands_still(rows):
    await rows.store.apply([MarkNode("n2", NodeState.DRAINING)])

    await rows.pass_time(3 * EXPIRE_SECONDS, "n1", "n3")
    await rows.store.apply([MarkNode("n2", NodeState.LOST)])

    assert rows.told == []
    assert (await rows.states())["n2"] is NodeState.DRAINING


async def test_a_drained_node_of_another_cluster_that_stands_still_is_forgotten_after_its_time_and_not_sooner(rows):
    await rows.store.apply([JoinNode("w1", "west", "far", drained=True), JoinNode("w2", "west", "far", drained=True)])
    rows.generations |= {"w1": 1, "w2": 1}
    await rows.pass_time(2, "n1", "n2", "n3", "w1", "w2")
    await rows.pass_time(EXPIRE_SECONDS - 1, "n1", "n2", "n3", "w2")
    assert {"w1", "w2"} < {*await rows.states()}

    await rows.pass_time(1, "n1", "n2", "n3", "w2")

    assert {*await rows.states()} == {"n1", "n2", "n3", "w2"}
    assert rows.told == [], "it had no hosts of this cluster"


async def test_a_cluster_is_there_until_its_last_node_is_lost_or_forgotten(rows):
    assert rows.watch.clusters == {"east"}
    await rows.store.apply([JoinNode("w1", "west", "far", drained=True), JoinNode("w2", "west", "far")])
    rows.generations |= {"w1": 1, "w2": 1}
    await rows.pass_time(1, "n1", "n2", "n3", "w1", "w2")
    await rows.pass_time(EXPIRE_SECONDS, "n1", "n2", "n3", "w2")
    assert rows.watch.clusters == {"east", "west"}

    await rows.pass_time(EXPIRE_SECONDS, "n1", "n2", "n3")

    assert rows.watch.clusters == {"east"}
