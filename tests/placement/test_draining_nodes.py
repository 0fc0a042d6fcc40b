"""A node that is drained: its agents go on elsewhere, nothing new comes to it, and it can be taken back."""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.domain.agent import Isolation
from tests.placement.test_directory import (
    SteeredHost,
    SteeredPool,
    Work,
    beats,
    directory_over,
    hosts_of,
    refs,
    seated,
    settled,
)

GRACE = 60.0


@pytest.fixture
def pool():
    return SteeredPool(nodes={"one": 1.0, "two": 1.0})


def on(pool, node_id):
    """Return the node's hosts, and the agents that they hold."""
    hosts = [host for host in pool.hosts.values() if host.node_id == node_id]
    return hosts, [agent for host in hosts for agent in host.agents]


async def spread(directory, pool, number):
    """Have the agents of that many hosts at work, some on each node."""
    agents = refs(number)
    await directory.wake(agents)
    await seated(pool, *agents)
    assert all(on(pool, node)[1] for node in pool.nodes)
    return agents


async def test_agents_of_a_drained_node_go_on_elsewhere_and_its_hosts_end(pool):
    async with directory_over(pool, isolation=Isolation.SHARED, agents_per_actor=2) as directory:
        agents = await spread(directory, pool, 8)
        leaving = on(pool, "one")[1]

        await directory.drain_node("one", GRACE)
        await seated(pool, *agents)
        await directory._clock.settle()

        assert on(pool, "one") == ([], [])
        assert set(on(pool, "two")[1]) == set(agents)
        assert all(host.woken.count(agent) <= 1 for host in pool.hosts.values() for agent in leaving)


async def test_a_run_under_way_has_the_grace_to_reach_its_next_step_and_its_agent_is_nowhere_else_meanwhile(pool):
    async with directory_over(pool) as directory:
        await spread(directory, pool, 2)
        [host], [agent] = on(pool, "one")
        host.run_ends.clear()

        draining = asyncio.create_task(directory.drain_node("one", GRACE))
        await directory._clock.settle()
        await directory.wake([agent])
        await beats(directory)
        assert host.graces == [GRACE]
        assert hosts_of(pool, agent) == [host.host_id]
        assert not draining.done()

        host.run_ends.set()
        await draining
        await settled(lambda: agent in on(pool, "two")[1])


async def test_a_drained_node_gets_no_hosts_and_no_agents_until_it_is_taken_back(pool):
    async with directory_over(pool, warm=1) as directory:
        await directory.sweep()
        await directory._clock.settle()
        assert all(on(pool, node)[0] for node in pool.nodes)

        await directory.drain_node("one", GRACE)
        agents = refs(4)
        await directory.wake(agents)
        await seated(pool, *agents)
        await beats(directory, 3)
        await directory.sweep()
        assert on(pool, "one") == ([], [])

        await directory.undrain_node("one")
        await beats(directory)
        assert on(pool, "one")[0]


async def test_a_host_that_was_on_its_way_to_a_node_when_it_was_drained_ends(pool):
    async with directory_over(pool) as directory:
        pool.births.clear()
        [first, second] = refs(2)
        await directory.wake([first, second])
        await directory._clock.settle()

        await directory.drain_node("one", GRACE)
        pool.births.set()
        await seated(pool, first, second)
        await directory._clock.settle()

        assert on(pool, "one") == ([], [])
        assert set(on(pool, "two")[1]) == {first, second}


async def test_agents_of_a_drained_node_wait_while_there_is_no_other(pool):
    pool.nodes = {"one": 1.0}
    async with directory_over(pool) as directory:
        [agent] = refs(1)
        await directory.wake([agent])
        await seated(pool, agent)

        await directory.drain_node("one", GRACE)
        await beats(directory, 3)
        assert not pool.hosts

        await directory.undrain_node("one")
        await seated(pool, agent)


async def test_a_directory_that_starts_while_a_node_is_drained_drains_the_hosts_that_it_finds_there(pool):
    [agent] = refs(1)
    host, work = SteeredHost("host-0", "one"), Work()
    host.agents[agent] = None
    host.idle = {}
    pool.hosts = {"host-0": host}
    work.agents = [agent]
    async with directory_over(pool, work=work, drained={"one": GRACE}) as directory:
        await settled(lambda: agent in on(pool, "two")[1])
        await directory._clock.settle()

        assert host.graces == [GRACE]
        assert on(pool, "one") == ([], [])


async def test_a_drain_goes_on_when_the_host_refuses_an_agent_that_was_on_its_way_to_it(pool):
    work = Work()
    async with directory_over(pool, isolation=Isolation.SHARED, work=work) as directory:
        pool.nodes = {"one": 1.0}
        await directory.heartbeat()
        [busy, late] = agents = refs(2)
        await directory.wake([busy])
        await seated(pool, busy)
        [host] = on(pool, "one")[0]
        host.run_ends.clear()
        host.adopts.clear()
        await directory.wake([late])
        await directory._clock.settle()

        draining = asyncio.create_task(directory.drain_node("one", GRACE))
        await directory._clock.settle()
        host.drained = True
        host.adopts.set()
        await directory._clock.settle()
        assert not host.dead.is_set()

        pool.nodes, work.agents = {"one": 1.0, "two": 1.0}, agents
        host.run_ends.set()
        await draining
        await beats(directory)
        await settled(lambda: set(on(pool, "two")[1]) == set(agents))


async def test_a_host_that_dies_while_its_node_is_drained_loses_nobody(pool):
    work = Work()
    async with directory_over(pool, work=work) as directory:
        work.agents = await spread(directory, pool, 2)
        [host], [agent] = on(pool, "one")
        host.frozen = True
        draining = asyncio.create_task(directory.drain_node("one", GRACE))
        await directory._clock.settle()
        host.dead.set()

        await draining
        await settled(lambda: agent in on(pool, "two")[1])


async def test_an_agent_that_got_a_run_when_its_node_was_drained_already_does_not_wait_for_the_calls_of_others(pool):
    work = Work()
    async with directory_over(pool, isolation=Isolation.SHARED, work=work) as directory:
        [busy, idle] = agents = refs(2)
        pool.nodes = {"one": 1.0}
        await directory.wake(agents)
        await seated(pool, *agents)
        [host], _ = on(pool, "one")
        host.idle[idle] = 1.0
        host.run_ends.clear()
        work.agents = agents
        pool.nodes = {"one": 1.0, "two": 1.0}

        draining = asyncio.create_task(directory.drain_node("one", GRACE))
        await settled(lambda: on(pool, "two")[1] == [idle])
        assert not draining.done()

        host.run_ends.set()
        await draining
        await settled(lambda: set(on(pool, "two")[1]) == {busy, idle})
