"""The drained nodes, over a store."""

from __future__ import annotations

import pytest

from owlclaw_ray.domain.node import OtherCluster
from owlclaw_ray.ids import ActivationId
from owlclaw_ray.placement.drained_nodes import FORGET_SECONDS, DrainedNodes
from owlclaw_ray.store.commands import ActivateAgent, AgentActivated, HoldNode, JoinNode, MarkNode, NodeState, OnStandby
from owlclaw_ray.store.queries import ClusterNodes
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from tests.world import AGENTS


@pytest.fixture
async def store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="keeper")
    yield store
    await store.close()


def nodes_of_east(store, clock=None, present=()):
    """As they are seen from node one."""
    return DrainedNodes(store, "east", "one", clock or ManualClock(), present=lambda: present)


async def pass_time(store, nodes, clock, seconds, *beating):
    """Have looks at them follow one another, before each of which these nodes renew their rows."""
    for _ in range(int(seconds / 60)):
        await clock.advance(60.0)
        await store.apply([HoldNode(each, 1) for each in beating])
        await nodes.look()


async def states(store):
    return {row.node_id: row.state for row in await store.read(ClusterNodes())}


async def activation(store):
    command = ActivateAgent(AGENTS[0], ActivationId("act_1"), ManualClock().now(), claim=True)
    [outcome] = await store.apply([command])
    return type(outcome)


async def test_a_drained_node_claims_nothing_until_it_is_taken_back(store):
    await store.apply([JoinNode("one", "east", "alpha"), JoinNode("two", "east", "beta")])
    store.serve_node("one", 1)
    nodes = nodes_of_east(store)

    await nodes.drain(["one"])
    assert await activation(store) is OnStandby
    assert await states(store) == {"one": NodeState.DRAINING, "two": NodeState.ACTIVE}
    assert nodes.known == {"one"}

    await nodes.undrain(["one", "two"])
    assert await activation(store) is AgentActivated
    assert nodes.known == frozenset()


async def test_a_drain_is_known_to_those_who_look_later(store):
    await store.apply([JoinNode("one", "east", "alpha")])
    await nodes_of_east(store).drain(["one"])

    assert await nodes_of_east(store).look() == {"one"}


async def test_a_node_that_has_not_joined_yet_is_drained_when_it_does(store):
    await nodes_of_east(store).drain(["one"])
    await store.apply([JoinNode("one", "east", "alpha")])

    assert await states(store) == {"one": NodeState.DRAINING}


async def test_taking_nodes_back_makes_no_lost_one_active(store):
    await store.apply([JoinNode("one", "east", "alpha"), MarkNode("one", NodeState.LOST)])

    await nodes_of_east(store).undrain(["one"])

    assert await states(store) == {"one": NodeState.LOST}


async def test_the_other_clusters_of_the_store_are_told_by_what_their_nodes_said_and_lost_ones_not(store):
    said = {"version": "0.0.9", "schema": "0015", "since": "2026-11-20T10:00:00+00:00"}
    joined = [
        JoinNode("one", "east", "alpha"),
        JoinNode("two", "west", "beta", said),
        JoinNode("three", "west", "gamma"),
    ]
    await store.apply([*joined, JoinNode("four", "north", "delta"), MarkNode("four", NodeState.LOST)])
    nodes = nodes_of_east(store)

    await nodes.look()

    assert nodes.others == (OtherCluster("west", ("beta", "gamma"), **said),)


@pytest.fixture
async def clock(store):
    await store.apply(
        [JoinNode("one", "east", "alpha"), JoinNode("two", "east", "beta"), JoinNode("far", "west", "gamma")]
    )
    await store.apply([MarkNode("two", NodeState.DRAINING), MarkNode("far", NodeState.DRAINING)])
    return ManualClock()


async def test_the_rows_of_drained_nodes_that_are_gone_are_removed_after_some_minutes_and_not_sooner(store, clock):
    nodes = nodes_of_east(store, clock)
    await nodes.look()

    await pass_time(store, nodes, clock, FORGET_SECONDS - 60, "one")
    assert set(await states(store)) == {"one", "two", "far"}

    await pass_time(store, nodes, clock, 60, "one")
    assert await states(store) == {"one": NodeState.ACTIVE}
    assert (nodes.known, nodes.others) == (frozenset(), ())


async def test_the_rows_of_drained_nodes_that_are_there_stay_and_so_do_rows_that_are_not_drained(store, clock):
    await store.apply([JoinNode("three", "east", "delta"), JoinNode("far-2", "west", "gamma")])
    nodes = nodes_of_east(store, clock, present={"one", "two"})
    await nodes.look()

    await pass_time(store, nodes, clock, 2 * FORGET_SECONDS, "one", "far")

    assert set(await states(store)) == {"one", "two", "three", "far", "far-2"}
    assert nodes.known == {"two", "far"}


async def test_no_row_is_removed_because_the_store_took_no_writes(store, clock):
    nodes = nodes_of_east(store, clock)
    await nodes.look()

    await pass_time(store, nodes, clock, 2 * FORGET_SECONDS)
    await pass_time(store, nodes, clock, FORGET_SECONDS - 60, "one")

    assert set(await states(store)) == {"one", "two", "far"}


async def test_the_row_of_this_node_stays_however_it_is_seen(store, clock):
    await store.apply([MarkNode("one", NodeState.DRAINING)])
    nodes = nodes_of_east(store, clock)
    await nodes.look()

    await pass_time(store, nodes, clock, 2 * FORGET_SECONDS, "far")

    assert "one" in await states(store)
