"""A node's row in a store, as its Keeper holds it."""

from __future__ import annotations

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.placement.node_row import NodeRow
from owlclaw_ray.store.commands import AgentActivated, JoinNode, MarkNode, NodeState, OnStandby
from owlclaw_ray.store.queries import ClusterNodes
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import activation, one
from tests.placement.test_lease import Line


@pytest.fixture
async def store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="keeper")
    yield store
    await store.close()


@pytest.fixture
def line(store):
    return Line(store)


@pytest.fixture
async def row(store, line):
    row = NodeRow(line, JoinNode("n1", "east", "machine-1"), joined=store.serve_node)
    await row.join()
    return row


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
