"""A store that serves a node: its agents are claimed only while the node has its row."""

from __future__ import annotations

import pytest

from owlclaw_ray.store.commands import (
    AgentActivated,
    ClaimRun,
    HoldNode,
    JoinNode,
    MarkNode,
    NodeHeld,
    NodeState,
    NothingQueued,
    OnStandby,
    RunFinished,
)
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import AGENT, NOW, activation, claimed, ending, one, submission

JOIN = JoinNode("n1", "east", "machine-1")


@pytest.fixture
async def node(store_url):
    store = await open_store(store_url, writer="keeper")
    await one(store, JOIN)
    store.serve_node("n1", 1)
    yield store
    await store.close()


@pytest.fixture
async def other(store_url):
    store = await open_store(store_url, writer="other")
    yield store
    await store.close()


async def test_a_node_that_has_its_row_activates_agents(node):
    assert isinstance(await one(node, activation("act_1")), AgentActivated)


@pytest.mark.parametrize("state", [NodeState.LOST, NodeState.DRAINING])
async def test_a_node_that_is_lost_or_drained_ends_the_run_that_it_has_and_takes_up_nothing(node, other, state):
    await node.apply([submission("run_1"), submission("run_2"), activation("act_1")])
    await claimed(node)
    await one(other, MarkNode("n1", state))

    assert await one(node, ending("run_1")) == RunFinished()
    assert await one(node, ClaimRun(AGENT, 1, NOW)) == NothingQueued()
    assert await one(node, activation("act_2")) == OnStandby()
    assert isinstance(await one(other, activation("act_3")), AgentActivated)


async def test_a_node_whose_row_another_generation_has_activates_nothing_until_it_serves_as_that_one(node, other):
    await one(other, JOIN)
    assert await one(node, activation("act_1")) == OnStandby()

    node.serve_node("n1", 2)

    assert isinstance(await one(node, activation("act_1")), AgentActivated)


async def test_a_node_that_never_joined_activates_nothing(other):
    other.serve_node("n2", 1)

    assert await one(other, activation("act_1")) == OnStandby()


async def test_a_row_is_renewed_in_the_same_batch_as_agents_are_claimed(node):
    held, activated = await node.apply([HoldNode("n1", 1), activation("act_1")])

    assert isinstance(held, NodeHeld)
    assert isinstance(activated, AgentActivated)
