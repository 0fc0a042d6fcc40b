"""Which tenant's agents get places on hosts, and whose make place for them."""

from __future__ import annotations

from collections import Counter

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.ids import TenantId
from tests.placement.test_directory import MIXED, SteeredHost, SteeredPool, beats, directory_over, hosts_of, seated


def of(tenant, number, start=0, name="watch"):
    return [AgentRef.parse(f"{name}:{each}", TenantId(tenant)) for each in range(start, start + number)]


def placed(pool):
    return Counter(agent.tenant for host in pool.hosts.values() for agent in host.agents)


def rest(pool, agents):
    """Have these agents be idle wherever they are."""
    for host in pool.hosts.values():
        host.idle.update((agent, 1.0) for agent in agents if agent in host.agents)


async def test_a_tenant_with_many_agents_leaves_a_quarter_of_the_hosts_to_others():
    pool = SteeredPool()
    async with directory_over(pool, most=8) as directory:
        await directory.wake(of("greedy", 100))
        await beats(directory, 2)
        before = placed(pool)
        [modest] = of("modest", 1)
        await directory.wake([modest])
        await directory._clock.settle()

        assert before == {"greedy": 6}
        assert hosts_of(pool, modest)


async def test_spare_hosts_are_kept_for_other_tenants_too():
    pool = SteeredPool(*(SteeredHost(f"spare-{number}") for number in range(8)))
    async with directory_over(pool, most=8) as directory:
        await directory.wake(of("greedy", 100))
        await beats(directory, 2)

        assert placed(pool) == {"greedy": 6}


async def test_the_default_tenant_has_all_hosts_while_it_is_the_only_one():
    pool = SteeredPool()
    async with directory_over(pool, most=8) as directory:
        await directory.wake(of("default", 100))
        await beats(directory, 2)

        assert placed(pool) == {"default": 8}


async def test_an_agent_is_next_whose_tenant_holds_less_however_many_of_another_came_before():
    pool = SteeredPool()
    async with directory_over(pool, most=4) as directory:
        crowd, others = of("default", 100), of("modest", 2)
        await directory.wake(crowd)
        await seated(pool, *crowd[:4])
        await directory.wake(others)
        rest(pool, crowd[:2])
        await beats(directory)

        await seated(pool, *others)
        assert placed(pool) == {"default": 2, "modest": 2}


async def test_a_tenant_at_its_limit_makes_place_for_an_agent_among_its_own_idle_ones():
    pool = SteeredPool()
    async with directory_over(pool, most=16) as directory:
        await directory.wake([*of("greedy", 12), *of("modest", 1)])
        await seated(pool, *of("greedy", 12), *of("modest", 1))
        rest(pool, [*of("greedy", 1), *of("modest", 1)])
        await beats(directory)
        [late] = of("greedy", 1, start=20)
        await directory.wake([late])
        await beats(directory)

        await seated(pool, late)
        assert placed(pool) == {"greedy": 12, "modest": 1}


async def test_a_tenant_at_its_limit_has_its_own_agents_take_turns():
    pool = SteeredPool()
    async with directory_over(pool, most=4) as directory:
        await directory.wake([*of("modest", 1), *of("greedy", 10)])
        await seated(pool, *of("modest", 1), *of("greedy", 3))
        await beats(directory, 12)

        served = {agent for host in pool.hosts.values() for agent in host.woken}
        assert len(served) > 4
        assert hosts_of(pool, *of("modest", 1))


async def test_idle_agents_of_a_tenant_below_its_share_stay_while_another_floods():
    pool = SteeredPool()
    async with directory_over(pool, most=8) as directory:
        await directory.wake([*of("modest", 2), *of("greedy", 100)])
        await seated(pool, *of("modest", 2), *of("greedy", 6))
        rest(pool, of("modest", 2))
        await beats(directory, 10)

        assert all(hosts_of(pool, agent) for agent in of("modest", 2))


async def test_an_agent_below_its_tenants_share_has_the_place_of_an_idle_one_of_any_tenant():
    pool = SteeredPool()
    async with directory_over(pool, most=8) as directory:
        await directory.wake([*of("calm", 2), *of("default", 6)])
        await seated(pool, *of("calm", 2), *of("default", 6))
        for host in pool.hosts.values():
            host.run_ends.clear()
        rest(pool, of("calm", 1))
        await beats(directory)
        [modest] = of("modest", 1)
        await directory.wake([modest])
        await beats(directory)

        await seated(pool, modest)
        for host in pool.hosts.values():
            host.run_ends.set()


async def test_a_spare_host_is_for_the_tenant_that_holds_less_of_whichever_kind():
    pool = SteeredPool()
    async with directory_over(pool, isolation=MIXED, agents_per_actor=2, most=2) as directory:
        pool.births.clear()
        await directory.wake(of("default", 4, name="crew"))
        await directory.wake(of("modest", 1, name="solo"))
        pool.births.set()
        await beats(directory)

        await seated(pool, *of("modest", 1, name="solo"))
        assert placed(pool) == {"default": 2, "modest": 1}
