"""The Directory over hosts that a test steers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from owlclaw_ray.definitions.api import plain_name
from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.placement import directory as directory_module
from owlclaw_ray.placement.directory import Directory
from owlclaw_ray.placement.host import HostStatus
from owlclaw_ray.placement.host_pool import HostGoneError
from owlclaw_ray.store.queries import AgentsWithWork
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, says


async def first_of(*events):
    """Return when one of the events has happened."""
    ends = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for each in ends:
        each.cancel()


class SteeredHost:
    """Holds the agents that it adopts; `idle` and `memory` are what it says of itself."""

    def __init__(self, host_id, node_id="here"):
        self.host_id, self.node_id = host_id, node_id
        self.agents = {}
        self.memory = 0.1
        self.idle = {}
        self.woken = []
        self.frozen = self.drained = self.told_to_drain = False
        self.run_ends = asyncio.Event()
        self.run_ends.set()
        self.handing_over = 0
        self.graces = []
        self.terms = set()
        self.adopts = asyncio.Event()
        self.adopts.set()
        self.answers_at_once = ()
        self.wakes = asyncio.Event()
        self.wakes.set()
        self.lists = asyncio.Event()
        self.lists.set()
        self.dead = asyncio.Event()

    async def _reached(self):
        if self.dead.is_set():
            raise HostGoneError(self.host_id)
        if self.frozen:
            await self.dead.wait()
            raise HostGoneError(self.host_id)

    async def adopt(self, agents, term):
        await self._reached()
        self.terms.add(term)
        if set(agents) <= set(self.answers_at_once):
            return
        await self.adopts.wait()
        if self.drained:
            raise HostGoneError(self.host_id)
        self.agents.update(dict.fromkeys(agents))
        self.woken += agents

    async def wake(self, agents):
        await self._reached()
        await self.wakes.wait()
        self.woken += [agent for agent in agents if agent in self.agents]
        return tuple(agent for agent in agents if agent not in self.agents)

    async def cancel(self, agent, run_id):
        await self._reached()
        return agent in self.agents

    async def release(self, agents):
        await self._reached()
        gone = tuple(agent for agent in agents if agent in self.idle or agent not in self.agents)
        for agent in gone:
            self.agents.pop(agent, None)
            self.idle.pop(agent, None)
        return gone

    async def hand_over(self, agents, grace=None):
        self.graces.append(grace)
        await self._reached()
        self.handing_over += len(agents)
        await first_of(self.run_ends, self.dead)
        await self._reached()
        self.handing_over -= len(agents)
        for agent in agents:
            self.agents.pop(agent, None)
        return tuple(agents)

    async def status(self, most):
        await self._reached()
        longest = sorted(self.idle.items(), key=lambda each: -each[1])
        return HostStatus(len(self.agents), tuple(longest[:most]), self.memory)

    async def hosted(self):
        await self._reached()
        agents = tuple(self.agents)
        await self.lists.wait()
        return agents

    async def ended(self):
        await self.dead.wait()

    async def drain(self, grace):
        self.told_to_drain = True
        await self._reached()


class SteeredPool:
    def __init__(self, *hosts, nodes=None):
        self.nodes = nodes or {"here": 1.0}
        self.bare = frozenset()
        self.silent = set()
        self.hosts = {host.host_id: host for host in hosts}
        self.made = len(hosts)
        self.lost_answers = self.lost_ends = 0
        self.excluded = frozenset()
        self.births = asyncio.Event()
        self.births.set()

    @property
    def members(self):
        return self.nodes

    async def spawn(self, node_id):
        self.made += 1
        host = SteeredHost(f"host-{self.made}", node_id)
        await self.births.wait()
        self.hosts[host.host_id] = host
        if self.lost_answers:
            self.lost_answers -= 1
            raise RuntimeUnavailableError("spawn_host")
        return host

    def exclude(self, node_ids):
        self.excluded = node_ids

    async def living(self):
        return list(self.hosts.values())

    async def kill(self, host):
        if self.lost_ends:
            self.lost_ends -= 1
            return
        self.hosts.pop(host.host_id, None)
        host.dead.set()


class Work:
    """The store's answer to who has runs."""

    def __init__(self):
        self.agents = []
        self.asked = asyncio.Event()

    async def read(self, query):
        assert isinstance(query, AgentsWithWork)
        self.asked.set()
        return self.agents[query.skip : query.skip + query.limit]


@asynccontextmanager
async def directory_over(pool, *, isolation=Isolation.DEDICATED, work=None, drained=None, **placement):
    made = Directory(
        pool=pool,
        store=work or Work(),
        isolation_of=lambda name: isolation.get(plain_name(name)) if isinstance(isolation, dict) else isolation,
        placement=Placement(**{"warm": 0, "heartbeat": 1.0, "sweep": 1.0, **placement}),
        clock=ManualClock(),
        drained=drained,
    )
    await made.start()
    try:
        yield made
    finally:
        for host in pool.hosts.values():
            host.frozen = False
        await made.stop(0)


async def settled(condition):
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def refs(number, start=0, name="watch"):
    return [AgentRef.parse(f"{name}:{each}") for each in range(start, start + number)]


MIXED = {"solo": Isolation.DEDICATED, "crew": Isolation.SHARED}


async def beats(directory, number=1):
    """Let heartbeats pass, and everything that they begin."""
    for _ in range(number):
        await directory.heartbeat()
        await directory._clock.settle()


async def seated(pool, *agents):
    await settled(lambda: all(hosts_of(pool, agent) for agent in agents))


def hosts_of(pool, agent):
    return [host.host_id for host in pool.hosts.values() if agent in host.agents]


@asynccontextmanager
async def agent_on_its_way():
    """A Directory, a host that does not answer yet when it is to adopt, and the agent that it is to adopt."""
    host, [agent] = SteeredHost("host-1"), refs(1)
    pool = SteeredPool(host)
    async with directory_over(pool) as directory:
        host.adopts.clear()
        await directory.wake([agent])
        await directory._clock.settle()
        yield directory, pool, host, agent


async def test_shared_agents_fill_a_host_before_another_is_made():
    pool = SteeredPool()
    async with directory_over(pool, isolation=Isolation.SHARED, agents_per_actor=10) as directory:
        await directory.wake(refs(25))
        await settled(lambda: sum(len(host.agents) for host in pool.hosts.values()) == 25)

    assert pool.made == 3
    assert max(len(host.agents) for host in pool.hosts.values()) == 10


async def test_no_host_is_made_ahead_while_agents_wait_for_one():
    pool, work = SteeredPool(), Work()
    work.agents = refs(2)
    pool.births.clear()
    async with directory_over(pool, work=work, warm=2) as directory:
        await directory.sweep()
        await beats(directory)
        waited_for = pool.made
        pool.births.set()
        await seated(pool, *work.agents)
        await beats(directory)

        assert (waited_for, pool.made) == (2, 4)


async def test_shared_agents_are_spread_over_the_nodes_before_a_second_host_of_a_node_gets_any():
    hosts = [SteeredHost(f"{node}-{number}", node) for number in (1, 2) for node in ("north", "south")]
    pool = SteeredPool(*hosts, nodes={"north": 1.0, "south": 1.0})
    async with directory_over(pool, isolation=Isolation.SHARED, agents_per_actor=3, most=2) as directory:
        for agent in refs(6):
            await directory.wake([agent])
        await settled(lambda: sum(len(host.agents) for host in hosts) == 6)
        assert [len(host.agents) for host in hosts] == [3, 3, 0, 0]

        await directory.wake(refs(1, start=6))
        await settled(lambda: sum(len(host.agents) for host in hosts) == 7)
        assert [len(host.agents) for host in hosts] == [3, 3, 1, 0]


async def test_a_host_that_does_not_answer_delays_nobody_elses_agents():
    pool = SteeredPool()
    first, second = refs(2)
    async with directory_over(pool) as directory:
        await directory.wake([first, second])
        await settled(lambda: hosts_of(pool, first) and hosts_of(pool, second))
        pool.hosts[hosts_of(pool, first)[0]].frozen = True
        healthy = pool.hosts[hosts_of(pool, second)[0]]
        healthy.woken.clear()

        await directory.wake([first, second])
        await settled(lambda: healthy.woken)

        assert healthy.woken == [second]


async def test_the_agents_of_a_host_that_ends_are_taken_over_without_waiting_for_a_heartbeat():
    pool, work = SteeredPool(), Work()
    [agent] = refs(1)
    async with directory_over(pool, work=work) as directory:
        await directory.wake([agent])
        await settled(lambda: hosts_of(pool, agent))
        work.agents = [agent]
        [dead] = hosts_of(pool, agent)

        pool.hosts[dead].dead.set()

        await settled(lambda: hosts_of(pool, agent) not in ([], [dead]))


async def test_agents_of_a_dead_host_are_taken_over_behind_however_many_that_waited_for_longer():
    older, young = SteeredHost("host-1"), SteeredHost("host-2")
    work = Work()
    async with directory_over(
        SteeredPool(older, young), isolation=Isolation.SHARED, work=work, agents_per_actor=20_000, most=2
    ) as directory:
        older.agents = dict.fromkeys(refs(12_000))
        young.agents = dict.fromkeys(refs(10, start=12_000))
        await directory.heartbeat()
        work.agents = refs(12_010)

        young.dead.set()
        await settled(lambda: set(refs(10, start=12_000)) <= older.agents.keys() | set(older.woken))


async def test_a_host_that_gives_no_sign_of_life_is_ended_and_its_agents_are_taken_over():
    pool, work = SteeredPool(), Work()
    [agent] = refs(1)
    async with directory_over(pool, work=work) as directory:
        await directory.wake([agent])
        await settled(lambda: hosts_of(pool, agent))
        work.agents = [agent]
        [stuck] = pool.hosts.values()

        async def no_answer(most):
            raise HostGoneError("no answer in time")

        stuck.status = no_answer
        await directory.heartbeat()

        await settled(lambda: hosts_of(pool, agent) not in ([], [stuck.host_id]))
        assert stuck.dead.is_set()


async def test_a_new_directory_learns_who_is_where_and_moves_nobody():
    host = SteeredHost("old")
    known = refs(3)
    host.agents = dict.fromkeys(known)
    pool = SteeredPool(host)

    async with directory_over(pool, isolation=Isolation.SHARED) as directory:
        homes = await directory.wake(known)

    assert set(homes.values()) == {"old"}
    assert pool.made == 1


async def test_a_host_with_more_agents_than_it_should_have_gets_no_more_and_takes_no_place_from_others():
    crowded, spare = SteeredHost("host-1"), SteeredHost("host-2")
    crowded.agents = dict.fromkeys(refs(4))
    async with directory_over(
        SteeredPool(crowded, spare), isolation=Isolation.SHARED, agents_per_actor=2, most=2
    ) as directory:
        await directory.wake(refs(2, start=4))
        await settled(lambda: len(spare.agents) == 2)
        await directory.wake(refs(1, start=6))
        spare.idle = dict.fromkeys(refs(1, start=4), 9.0)
        await directory.heartbeat()
        await settled(lambda: set(spare.agents) == set(refs(2, start=5)))

    assert set(crowded.agents) == set(refs(4))


async def test_an_agent_that_its_host_lost_frees_its_place():
    pool = SteeredPool()
    first, second = refs(2)
    async with directory_over(pool, most=1) as directory:
        await directory.wake([first])
        await settled(lambda: hosts_of(pool, first))
        del pool.hosts[hosts_of(pool, first)[0]].agents[first]

        await directory.heartbeat()
        await directory.wake([second])

        await settled(lambda: hosts_of(pool, second))


async def test_under_memory_pressure_idle_agents_leave_at_once_and_no_host_is_made_ahead():
    pool, work = SteeredPool(), Work()
    busy, idle = refs(2)
    async with directory_over(pool, isolation=Isolation.SHARED, work=work, warm=2, idle=3600.0) as directory:
        await directory.wake([busy, idle])
        await settled(lambda: hosts_of(pool, idle))
        await directory.sweep()
        await settled(lambda: len(pool.hosts) == 3)
        [home] = hosts_of(pool, idle)
        pool.hosts[home].idle = {idle: 0.5}
        for host in pool.hosts.values():
            host.memory = 0.95

        for _ in range(4):
            await directory.heartbeat()
        await settled(lambda: len(pool.hosts) == 1)

        assert list(pool.hosts[home].agents) == [busy]


async def test_when_all_shared_hosts_are_full_those_idle_for_longest_make_room():
    pool = SteeredPool()
    async with directory_over(pool, isolation=Isolation.SHARED, most=2, agents_per_actor=5, idle=3600.0) as directory:
        old = refs(10)
        await directory.wake(old)
        await settled(lambda: all(hosts_of(pool, agent) for agent in old))
        for host in pool.hosts.values():
            host.idle = {agent: float(100 - int(agent.agent_id.split(":")[1])) for agent in host.agents}
        await directory.heartbeat()

        new = refs(3, start=10)
        await directory.wake(new)
        await settled(lambda: all(hosts_of(pool, agent) for agent in new))

        assert [agent for agent in old if not hosts_of(pool, agent)] == old[:3]


async def test_ten_thousand_agents_that_wait_cost_one_look_each():
    pool = SteeredPool()
    looks = 0

    def isolation_of(name):
        nonlocal looks
        looks += 1
        return Isolation.SHARED

    directory = Directory(
        pool=pool,
        store=Work(),
        isolation_of=isolation_of,
        placement=Placement(warm=0, most=2, agents_per_actor=10),
        clock=ManualClock(),
    )
    await directory.start()
    crowd = refs(10_000)
    await directory.wake(crowd)
    await settled(lambda: sum(directory.hosts().values()) == 20)
    for _ in range(10):
        await directory.heartbeat()
    await directory.stop(0)

    assert looks < 2 * len(crowd)


async def test_agents_with_hosts_of_their_own_take_turns_when_none_is_idle(agents, tmp_path):
    agents.define()
    asked = []

    async def decide(request):
        asked.append(asyncio.Event())
        await asked[-1].wait()
        return says("done")

    async def beat():
        await runtime.directory.heartbeat()
        while asked:
            asked.pop().set()

    placement = Placement(warm=0, most=1, heartbeat=3600, sweep=3600)
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(decide)], placement=placement
    ) as runtime:
        greedy = [await runtime.submit(AgentRef.parse("watch:greedy"), Trigger(TriggerKind.API)) for _ in range(20)]
        while runtime.directory.hosts() == {}:
            await asyncio.sleep(0)
        patient = await runtime.submit(AgentRef.parse("watch:patient"), Trigger(TriggerKind.API))
        while not (await runtime.run(patient.agent.tenant, patient.run_id)).status.final:
            await beat()
        last = await runtime.run(greedy[-1].agent.tenant, greedy[-1].run_id)
        while not (ended := await runtime.run(greedy[-1].agent.tenant, greedy[-1].run_id)).status.final:
            await beat()

    assert last.status is RunStatus.QUEUED
    assert ended.status is RunStatus.COMPLETED


async def test_shared_agents_that_are_never_idle_make_room_for_an_agent_with_a_host_of_its_own():
    pool, crew, [solo] = SteeredPool(), refs(3, name="crew"), refs(1, name="solo")
    async with directory_over(pool, isolation=MIXED, agents_per_actor=2, most=2) as directory:
        await directory.wake(crew)
        await seated(pool, *crew)
        pool.hosts[hosts_of(pool, crew[0])[0]].agents.pop(crew[0])
        await beats(directory)
        await directory.wake([solo])

        await beats(directory, 4)

        assert hosts_of(pool, solo) != hosts_of(pool, crew[1]) == hosts_of(pool, crew[2]) != []


async def test_where_all_shared_hosts_are_full_the_agents_of_one_take_turns_with_an_agent_of_the_other_kind():
    pool, crew, [solo] = SteeredPool(), refs(4, name="crew"), refs(1, name="solo")
    async with directory_over(pool, isolation=MIXED, agents_per_actor=2, most=2) as directory:
        await directory.wake(crew)
        await seated(pool, *crew)
        await directory.wake([solo])

        await beats(directory, 4)
        sitting = [agent for agent in crew if hosts_of(pool, agent)]
        assert hosts_of(pool, solo)
        assert len(sitting) == 2

        await beats(directory, 4)
        assert all(hosts_of(pool, agent) for agent in crew)


async def test_shared_agents_that_are_never_idle_take_turns_with_others_of_their_kind():
    pool, crew = SteeredPool(), refs(5, name="crew")
    async with directory_over(pool, isolation=MIXED, agents_per_actor=2, most=2) as directory:
        await directory.wake(crew)
        await seated(pool, *crew[:4])

        out = []
        for _ in range(3):
            out += [agent for agent in crew if not hosts_of(pool, agent)]
            await beats(directory, 3)

    assert out[0] == crew[4]
    assert len(set(out)) == 3


async def test_a_shared_agent_that_takes_long_to_leave_keeps_no_idle_one_from_making_room():
    pool, crew = SteeredPool(), refs(4, name="crew")
    async with directory_over(pool, isolation=MIXED, agents_per_actor=2, most=1, idle=3600.0) as directory:
        await directory.wake(crew[:2])
        await seated(pool, *crew[:2])
        [host] = pool.hosts.values()
        host.run_ends.clear()
        await directory.wake(crew[2:3])
        await beats(directory, 4)
        [busy] = directory._placement_table
        [idle] = busy.agents.keys() - busy.leaving

        host.idle = {idle: 5.0}
        await beats(directory, 2)

        assert hosts_of(pool, idle) == []
        assert hosts_of(pool, crew[2])


async def test_a_host_is_for_the_agents_that_share_one_before_it_is_for_one_alone_that_came_a_moment_before():
    pool, solo, crew = SteeredPool(), refs(3, name="solo"), refs(20, name="crew")
    async with directory_over(pool, isolation=MIXED) as directory:
        pool.births.clear()
        await directory.wake([*solo, *crew])
        await beats(directory)
        first = SteeredHost("first")
        pool.hosts[first.host_id] = first
        await directory.sweep()

        await seated(pool, *crew)
        assert first.agents.keys() == set(crew)
        pool.births.set()
        await seated(pool, *solo)


async def test_an_agent_that_has_waited_is_seated_before_those_that_came_later_whatever_their_kind():
    pool, [first, second, third] = SteeredPool(), refs(3, name="solo")
    [shared] = refs(1, name="crew")
    async with directory_over(pool, isolation=MIXED, most=1) as directory:
        await directory.wake([first])
        await seated(pool, first)
        for agent in (second, shared, third):
            await directory.wake([agent])
        order = []
        for _ in range(4):
            [host] = pool.hosts.values()
            order += host.agents
            await directory.wake(list(host.agents))
            await beats(directory, 3)

    assert order == [first, second, shared, third]


async def test_an_agent_that_is_woken_while_it_gives_its_host_away_waits_behind_the_others():
    pool, [solo] = SteeredPool(), refs(1, name="solo")
    [shared] = refs(1, name="crew")
    async with directory_over(pool, isolation=MIXED, most=1) as directory:
        await directory.wake([solo])
        await seated(pool, solo)
        [host] = pool.hosts.values()
        host.run_ends.clear()
        await directory.wake([shared])
        await beats(directory, 4)

        await directory.wake([solo])
        host.run_ends.set()
        await directory._clock.settle()

        assert list(host.agents) == [shared]


async def test_nobody_is_seated_on_a_host_that_is_being_emptied():
    pool, crew, [solo] = SteeredPool(), refs(4, name="crew"), refs(1, name="solo")
    async with directory_over(pool, isolation=MIXED, agents_per_actor=3, most=2) as directory:
        await directory.wake(crew)
        await seated(pool, *crew)
        full, small = (pool.hosts[hosts_of(pool, agent)[0]] for agent in (crew[0], crew[3]))
        small.run_ends.clear()
        await directory.wake([solo])
        await beats(directory, 3)

        [late] = refs(1, start=4, name="crew")
        await directory.wake([late])
        await beats(directory)
        assert hosts_of(pool, late) == []

        full.agents.pop(crew[0])
        await beats(directory, 2)
        assert hosts_of(pool, late) == [full.host_id]


async def test_one_host_is_emptied_for_one_agent_however_long_its_run_takes_to_end_unless_it_takes_too_long():
    pool, others = SteeredPool(), refs(6, name="solo")
    [late] = refs(1, start=6, name="solo")
    async with directory_over(pool, isolation=MIXED, most=6) as directory:
        await directory.wake(others)
        await seated(pool, *others)
        for host in pool.hosts.values():
            host.run_ends.clear()
        await beats(directory, 3)
        await directory.wake([late])

        await beats(directory, 3)
        assert sum(host.handing_over for host in pool.hosts.values()) == 1

        await beats(directory, 3)
        assert sum(host.handing_over for host in pool.hosts.values()) == 2


async def test_a_heartbeat_while_an_agent_is_adopted_again_does_not_lose_it():
    pool, [agent] = SteeredPool(), refs(1)
    async with directory_over(pool) as directory:
        await directory.wake([agent])
        await seated(pool, agent)
        [host] = pool.hosts.values()
        host.agents.clear()
        host.adopts.clear()

        await directory.wake([agent])
        await beats(directory)
        assert directory.hosts() == {host.host_id: 1}

        host.adopts.set()
        await seated(pool, agent)


async def test_an_agent_that_is_adopted_again_while_its_host_says_who_is_there_is_not_lost():
    pool, [agent] = SteeredPool(), refs(1)
    async with directory_over(pool) as directory:
        await directory.wake([agent])
        await seated(pool, agent)
        [host] = pool.hosts.values()
        host.agents.clear()
        host.lists.clear()
        host.adopts.clear()
        beat = asyncio.create_task(directory.heartbeat())
        await directory._clock.settle()

        await directory.wake([agent])
        await directory._clock.settle()
        host.lists.set()
        await beat

        assert directory.hosts() == {host.host_id: 1}
        host.adopts.set()
        await seated(pool, agent)


async def test_an_agent_that_leaves_while_its_host_says_who_is_there_is_not_believed_to_be_there():
    host, [agent, other, gone] = SteeredHost("host-1"), refs(3)
    pool = SteeredPool(host)
    async with directory_over(pool, most=1) as directory:
        await directory.wake([agent])
        await seated(pool, agent)
        host.idle = {agent: 9.0}
        await beats(directory)
        host.agents[gone] = None
        host.lists.clear()
        beat = asyncio.create_task(directory.heartbeat())
        await directory._clock.settle()
        del host.agents[gone]

        await directory.wake([other])
        await seated(pool, other)
        host.lists.set()
        await beat
        await directory.wake([agent])
        await directory._clock.settle()

        assert list(host.agents) == [other]


async def test_an_agent_that_left_before_its_wake_arrived_is_not_brought_back_beside_who_came_instead():
    pool, [agent, other] = SteeredPool(), refs(2)
    async with directory_over(pool, most=1) as directory:
        await directory.wake([agent])
        await seated(pool, agent)
        [host] = pool.hosts.values()
        host.idle = {agent: 9.0}
        await beats(directory)
        host.wakes.clear()
        await directory.wake([agent])
        await directory._clock.settle()

        await directory.wake([other])
        await seated(pool, other)
        host.wakes.set()
        await directory._clock.settle()
        assert list(host.agents) == [other]

        host.idle = {other: 9.0}
        await beats(directory)
        await seated(pool, agent)


async def test_an_agent_is_not_released_while_it_is_on_its_way_again():
    async with agent_on_its_way() as (directory, _, host, agent):
        host.agents, host.idle = {agent: None}, {agent: 99.0}

        await beats(directory)
        host.adopts.set()
        await directory._clock.settle()
        assert directory.hosts() == {host.host_id: 1}
        assert list(host.agents) == [agent]

        await beats(directory)
        assert not host.agents


async def test_an_agent_that_is_woken_again_on_its_way_is_on_its_way_until_it_has_arrived():
    async with agent_on_its_way() as (directory, pool, host, agent):
        host.answers_at_once = {agent}

        await directory.wake([agent])
        await beats(directory)
        assert directory.hosts() == {host.host_id: 1}

        host.adopts.set()
        await seated(pool, agent)


async def test_sweeps_come_to_agents_behind_more_than_one_looks_at_and_begin_again(monkeypatch):
    monkeypatch.setattr(directory_module, "_SWEEP_LIMIT", 3)
    pool, work = SteeredPool(), Work()
    async with directory_over(pool, work=work, isolation=Isolation.SHARED, agents_per_actor=100) as directory:
        await work.asked.wait()
        work.agents = refs(8)

        for seen in (3, 6, 8):
            await directory.sweep()
            await seated(pool, *work.agents[:seen])
            assert sum(len(host.agents) for host in pool.hosts.values()) == seen
        work.agents = refs(1, start=8)
        await directory.sweep()
        await seated(pool, *work.agents)


async def test_a_host_whose_making_got_no_answer_is_used():
    pool, [agent] = SteeredPool(), refs(1)
    pool.lost_answers = 1
    async with directory_over(pool, most=1) as directory:
        await directory.wake([agent])
        await settled(lambda: pool.hosts)

        await directory.sweep()
        await seated(pool, agent)

        assert pool.made == 1


async def test_a_host_whose_end_got_no_answer_is_ended_again():
    pool = SteeredPool(SteeredHost("host-1"), SteeredHost("host-2"))
    pool.lost_ends = 1
    async with directory_over(pool, warm=1) as directory:
        await directory.sweep()
        await beats(directory)
        assert len(pool.hosts) == 2

        await directory.sweep()
        await beats(directory, 2)
        assert len(pool.hosts) == 1


async def joined(directory, pool, *nodes, beats_left=200):
    """Have machines join, and heartbeats pass until nobody has to move; return how many agents each machine has."""
    pool.nodes = {**pool.nodes, **dict.fromkeys(nodes, 1.0)}
    for _ in range(beats_left):
        await beats(directory)
        if not directory._spreading:
            return by_node(pool)
    raise AssertionError(f"agents still move: {by_node(pool)}")


def by_node(pool):
    agents = dict.fromkeys(pool.nodes, 0)
    for host in pool.hosts.values():
        agents[host.node_id] += len(host.agents)
    return agents


@pytest.mark.parametrize("isolation", Isolation)
async def test_agents_move_to_a_machine_that_joins_until_each_has_about_its_share_and_nobody_moves_twice(isolation):
    pool, agents = SteeredPool(nodes={"a": 1.0, "b": 1.0}), refs(48)
    async with directory_over(pool, isolation=isolation, agents_per_actor=20, idle=1e9) as directory:
        await directory.wake(agents)
        await seated(pool, *agents)
        came = dict.fromkeys(agents, 0)
        for host in pool.hosts.values():
            host.woken.clear()

        spread = await joined(directory, pool, "c")
        for host in pool.hosts.values():
            for agent in host.woken:
                came[agent] += 1
        still = [hosts_of(pool, agent) for agent in agents]
        await beats(directory, 10)

        assert sum(spread.values()) == 48
        assert max(spread.values()) <= 1.2 * 16 + 1
        assert max(came.values()) == 1
        assert sum(came.values()) == spread["c"] > 0
        assert [hosts_of(pool, agent) for agent in agents] == still


async def test_idle_agents_leave_before_those_with_work_when_a_machine_joins():
    pool, agents = SteeredPool(SteeredHost("full", "a"), nodes={"a": 1.0}), refs(12)
    async with directory_over(pool, isolation=Isolation.SHARED, agents_per_actor=20, idle=1e9) as directory:
        await directory.wake(agents)
        await seated(pool, *agents)
        host = pool.hosts["full"]
        host.idle = dict.fromkeys(agents[6:], 5.0)
        await beats(directory)
        pool.nodes = {"a": 1.0, "b": 1.0}

        await beats(directory)

        assert set(host.agents) == set(agents[:6])


async def test_a_run_is_not_interrupted_when_its_agent_moves_and_nobody_else_is_moved_for_it():
    pool, agents = SteeredPool(SteeredHost("full", "a"), nodes={"a": 1.0}), refs(4)
    async with directory_over(pool, isolation=Isolation.SHARED, agents_per_actor=20, idle=1e9) as directory:
        await directory.wake(agents)
        await seated(pool, *agents)
        host = pool.hosts["full"]
        host.run_ends.clear()
        pool.nodes = {"a": 1.0, "b": 1.0}

        await beats(directory, 6)
        assert (len(host.agents), host.handing_over) == (4, 2)
        host.run_ends.set()
        await beats(directory, 3)

        assert by_node(pool) == {"a": 2, "b": 2}


async def test_agents_with_work_leave_a_machine_whose_memory_is_full():
    pool, agents = SteeredPool(nodes={"a": 1.0, "b": 1.0}), refs(8)
    async with directory_over(pool, agents_per_actor=20, idle=1e9) as directory:
        await directory.wake(agents)
        await seated(pool, *agents)
        for host in pool.hosts.values():
            host.memory = 0.95 if host.node_id == "a" else 0.1

        await beats(directory, 12)

        assert by_node(pool) == {"a": 0, "b": 8}


async def test_the_hosts_of_a_lost_machine_cost_one_look_at_the_store_and_wake_nobody_else():
    pool, work, agents = SteeredPool(), Work(), refs(30)
    work.agents = agents
    async with directory_over(pool, isolation=Isolation.SHARED, work=work, agents_per_actor=10) as directory:
        await directory.wake(agents)
        await seated(pool, *agents)
        [stays, *lost] = list(pool.hosts.values())
        stays.woken.clear()
        reads = []
        directory._store.read = read_noting(work.read, reads)
        for host in lost:
            del pool.hosts[host.host_id]
            host.dead.set()

        await seated(pool, *agents)

        assert len(reads) == 1
        assert stays.woken == []


def read_noting(read, reads):
    async def noted(query):
        reads.append(query)
        return await read(query)

    return noted


async def test_agents_of_a_lost_node_run_elsewhere_at_once_though_its_hosts_do_not_end():
    work, (first, second) = Work(), refs(2)
    pool = SteeredPool(nodes={"north": 1.0, "south": 1.0})
    async with directory_over(pool, work=work, most=2) as directory:
        await directory.wake([first, second])
        await seated(pool, first, second)
        [lost] = [host for host in pool.hosts.values() if host.node_id == "north"]
        [agent] = lost.agents
        lost.frozen, work.agents, pool.lost_ends = True, [first, second], 1

        pool.nodes = {"south": 1.0}
        directory.lose_nodes({"north"})
        await settled(lambda: len(hosts_of(pool, agent)) == 2)

        [other] = [host for host in hosts_of(pool, agent) if host != lost.host_id]
        assert pool.hosts[other].node_id == "south"
        assert lost.host_id not in directory.hosts()


async def test_hosts_that_a_lost_node_was_making_are_not_waited_for():
    pool, [agent] = SteeredPool(nodes={"north": 1.0}), refs(1)
    async with directory_over(pool) as directory:
        pool.births.clear()
        await directory.wake([agent])
        await directory._clock.settle()
        made = pool.made
        pool.births.set()

        pool.nodes = {"south": 1.0}
        pool.births = asyncio.Event()
        pool.births.set()
        directory.lose_nodes({"north"})
        await settled(lambda: hosts_of(pool, agent))

        assert made == 1
