"""The drained nodes, over a store."""

from __future__ import annotations

import pytest

from owlclaw_ray.domain.node import OtherCluster
from owlclaw_ray.ids import ActivationId
from owlclaw_ray.placement.drained_nodes import DrainedNodes
from owlclaw_ray.store.commands import ActivateAgent, AgentActivated, JoinNode, MarkNode, NodeState, OnStandby
from owlclaw_ray.store.queries import ClusterNodes
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from tests.world import AGENTS


@pytest.fixture
async def store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="keeper")
    yield store
    await store.close()


async def states(store):
    return {row.node_id: row.state for row in await store.read(ClusterNodes())}


async def activation(store):
    command = ActivateAgent(AGENTS[0], ActivationId("act_1"), ManualClock().now(), claim=True)
    [outcome] = await store.apply([command])
    return type(outcome)


async def test_a_drained_node_claims_nothing_until_it_is_taken_back(store):
    await store.apply([JoinNode("one", "east", "alpha"), JoinNode("two", "east", "beta")])
    store.serve_node("one", 1)
    nodes = DrainedNodes(store, "east")

    await nodes.drain(["one"])
    assert await activation(store) is OnStandby
    assert await states(store) == {"one": NodeState.DRAINING, "two": NodeState.ACTIVE}
    assert nodes.known == {"one"}

    await nodes.undrain(["one", "two"])
    assert await activation(store) is AgentActivated
    assert nodes.known == frozenset()


async def test_a_drain_is_known_to_those_who_look_later(store):
    await store.apply([JoinNode("one", "east", "alpha")])
    await DrainedNodes(store, "east").drain(["one"])

    assert await DrainedNodes(store, "east").look() == {"one"}


async def test_a_node_that_has_not_joined_yet_is_drained_when_it_does(store):
    await DrainedNodes(store, "east").drain(["one"])
    await store.apply([JoinNode("one", "east", "alpha")])

    assert await states(store) == {"one": NodeState.DRAINING}


async def test_taking_nodes_back_makes_no_lost_one_active(store):
    await store.apply([JoinNode("one", "east", "alpha"), MarkNode("one", NodeState.LOST)])

    await DrainedNodes(store, "east").undrain(["one"])

    assert await states(store) == {"one": NodeState.LOST}


async def test_the_other_clusters_of_the_store_are_told_by_what_their_nodes_said_and_lost_ones_not(store):
    said = {"version": "0.0.9", "schema": "0015", "since": "2026-11-20T10:00:00+00:00"}
    joined = [
        JoinNode("one", "east", "alpha"),
        JoinNode("two", "west", "beta", said),
        JoinNode("three", "west", "gamma"),
    ]
    await store.apply([*joined, JoinNode("four", "north", "delta"), MarkNode("four", NodeState.LOST)])
    nodes = DrainedNodes(store, "east")

    await nodes.look()

    assert nodes.others == (OtherCluster("west", ("beta", "gamma"), **said),)
