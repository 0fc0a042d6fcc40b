"""A cluster that hands the lease over while its agents have calls under way: each of them stays until its host releases it."""

from __future__ import annotations

import pytest

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.store.commands import (
    AgentActivated,
    AgentLeaving,
    ClaimRun,
    ClusterNode,
    EndHandover,
    ForgetNode,
    HoldLease,
    JoinNode,
    MarkNode,
    NodeState,
    NothingQueued,
    OnStandby,
    ReleaseAgent,
    Released,
    ReleaseLease,
    RunClaimed,
    RunFinished,
)
from owlclaw_ray.store.queries import AgentsWithWork
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import AGENT, NOW, activation, claimed, ending, one, submission

EAST, WEST = "east", "west"
OF_EAST = JoinNode("n-east", EAST, "machine-1")
RESTING = AgentRef.parse("trader:MSFT")


@pytest.fixture
async def clusters(store_url):
    """Stores of two clusters, each of a node of its own. The first one runs two agents, one of which has a run under way."""
    opened = []
    for name in (EAST, WEST):
        store = await open_store(store_url, writer=f"keeper-{name}", cluster=name)
        await one(store, JoinNode(f"n-{name}", name, "machine"))
        store.serve_node(f"n-{name}", 1)
        opened.append(store)
    east = opened[0]
    await one(east, HoldLease(EAST, "dir-east", 1))
    resting = activation("act_2", agent=RESTING)
    await east.apply([submission("run_1"), submission("run_2"), activation("act_1"), resting])
    await claimed(east)
    await one(east, ReleaseAgent(RESTING, 1, AgentState(), NOW))
    yield opened
    for store in opened:
        await store.close()


async def handed_over(clusters):
    """Have the first cluster hand the lease over, and the second one take it."""
    east, west = clusters
    await one(east, ReleaseLease(EAST, "dir-east", leaving=True))
    await one(west, HoldLease(WEST, "dir-west", 2))
    return east, west


async def test_an_agent_at_work_stays_with_the_cluster_that_leaves_and_one_that_was_released_does_not(clusters):
    east, west = await handed_over(clusters)

    assert await one(west, activation("act_3")) == AgentLeaving()
    assert isinstance(await one(west, activation("act_4", agent=RESTING)), AgentActivated)
    assert await one(east, activation("act_5", agent=RESTING)) == OnStandby()


async def test_its_run_ends_where_it_is_and_the_next_one_is_for_the_other_cluster(clusters):
    east, west = await handed_over(clusters)

    assert await one(east, ending("run_1")) == RunFinished()
    assert await one(east, ClaimRun(AGENT, 1, NOW)) == NothingQueued()
    assert await one(west, activation("act_3")) == AgentLeaving()
    assert await one(east, ReleaseAgent(AGENT, 1, AgentState(), NOW)) == Released(pending=True)
    taken = await one(west, activation("act_3"))
    assert taken.epoch == 2
    assert isinstance(await one(west, ClaimRun(AGENT, 2, NOW)), RunClaimed)


async def test_agents_that_the_leaving_cluster_holds_have_no_work_for_anybody_until_they_are_released(clusters):
    east, west = clusters
    await one(east, submission("run_3", agent=RESTING))
    assert {*await east.read(AgentsWithWork())} == {AGENT, RESTING}
    await handed_over(clusters)

    assert await west.read(AgentsWithWork()) == [RESTING]
    await one(east, ReleaseAgent(AGENT, 1, AgentState(), NOW))
    assert {*await west.read(AgentsWithWork())} == {AGENT, RESTING}


@pytest.mark.parametrize("how", ["handover_ended", "node_lost", "node_forgotten"])
async def test_what_the_leaving_cluster_held_is_free_when_it_says_so_or_its_node_is_gone(clusters, how):
    _, west = await handed_over(clusters)
    if how == "handover_ended":
        await one(west, EndHandover(EAST))
    elif how == "node_lost":
        await one(west, MarkNode("n-east", NodeState.LOST))
    else:
        await one(west, MarkNode("n-east", NodeState.DRAINING))
        seen = ClusterNode("n-east", EAST, "machine", 1, 0, NodeState.DRAINING)
        assert await one(west, activation("act_3")) == AgentLeaving()
        await one(west, ForgetNode("n-east", seen))

    assert await west.read(AgentsWithWork()) == [AGENT]
    assert isinstance(await one(west, activation("act_3")), AgentActivated)


async def test_a_cluster_that_loses_the_lease_without_handing_it_over_loses_its_agents_at_once(clusters):
    east, west = clusters
    await one(east, ReleaseLease(EAST, "dir-east"))
    await one(west, HoldLease(WEST, "dir-west", 2))

    assert isinstance(await one(west, activation("act_3")), AgentActivated)


async def test_the_agents_of_the_cluster_that_has_the_lease_now_move_between_its_nodes_as_ever(clusters):
    _, west = await handed_over(clusters)
    await one(west, submission("run_3", agent=RESTING))
    await one(west, activation("act_3", agent=RESTING))

    assert await west.read(AgentsWithWork()) == [RESTING]
    assert (await one(west, activation("act_4", agent=RESTING))).epoch == 3
