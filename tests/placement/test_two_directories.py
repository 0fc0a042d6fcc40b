"""Two Directories of one cluster, each with hosts that the other does not reach: agents end up with the one that Ray made last.

The whole engine in virtual time; what a Directory's process makes of the lease is what its actor makes of it.
"""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.placement.directory import Directory
from owlclaw_ray.placement.lease import RENEW_SECONDS, LeaseHolder, LeaseRole
from owlclaw_ray.store.commands import ActivateAgent, HoldLease, StaleTerm
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.in_process import isolation_of
from tests.world import AGENTS, Fate, InlineDatabase, World

CLUSTER = "east"
THINKING_SECONDS = 3.0
A_CALL_PAID_TWICE = 1


class DirectoryProcess:
    """A Directory on one of the nodes, from its start until it is superseded."""

    def __init__(self, node, directory_id):
        self._node, self._world = node, node.world
        self.directory = None
        began, ended, superseded = self._begin, self._end, self._step_aside
        self.lease = LeaseHolder(
            node.gate, CLUSTER, directory_id, self._world.clock, began=began, ended=ended, superseded=superseded
        )
        self.holding = Periodic("holding the lease", self.lease.tick, self._world.clock, RENEW_SECONDS)
        self.holding.start()

    async def _begin(self):
        world, runtime = self._world, self._node.runtime
        self.directory = runtime.directory = runtime._dispatcher.directory = Directory(
            pool=runtime.pool,
            store=self._node.gate,
            isolation_of=lambda name: isolation_of(world.definitions, name),
            placement=world.placement,
            clock=world.clock,
            term=self.lease.term,
        )
        await self.directory.start()

    async def _end(self):
        await self.directory.stop(0.0)
        for host in tuple(self._node.runtime.pool.hosts.values()):
            await self._node.runtime.pool.kill(host)

    async def _step_aside(self):
        if self.directory is not None:
            await self._end()


@pytest.fixture
async def world():
    """Two nodes of one cluster. Their own Directories have not begun."""
    database = InlineDatabase()
    made = World(database, [SqlStore(database, writer, cluster=CLUSTER) for writer in ("one", "two")])
    for node in made.nodes:
        node.runtime.directory._closed = True
    yield made
    await made.end()


async def passing(world, seconds):
    """Let time pass, in which each model call takes so long; return how many calls began."""
    asked = {}
    begun = 0
    for _ in range(int(seconds * 2)):
        await world.clock.advance(0.5)
        for call in tuple(world.models.pending):
            if id(call) not in asked:
                asked[id(call)] = world.clock.monotonic()
                begun += 1
            elif world.clock.monotonic() - asked[id(call)] >= THINKING_SECONDS:
                world.answer_model(call)
    return begun


def agents_on(node):
    return {agent for host in node.hosts for agent in host._host._activations}


async def ended_well(world):
    assert await world.come_to_rest()
    world.witness.audit(world.database.tables)
    assert not world.witness.violations, world.witness.violations


@pytest.fixture
async def first(world):
    """The Directory of the first node, whose hosts have all agents, each with a run that is asking its model, and one that waits."""
    process = DirectoryProcess(world.nodes[0], "dir-first")
    await passing(world, 2)
    for agent in AGENTS:
        for _ in range(2):
            world.nodes[0].submit(agent, "x")
    await passing(world, 1)
    assert agents_on(world.nodes[0]) == set(AGENTS)
    return process


async def test_all_agents_end_up_with_the_new_directory_when_the_old_one_lives_on_cut_off_from_it(world, first):
    old, new = world.nodes
    second = DirectoryProcess(new, "dir-second")

    begun = await passing(world, 60)

    assert (first.lease.role, second.lease.role) == (LeaseRole.SUPERSEDED, LeaseRole.HOLDER)
    assert not old.hosts
    await ended_well(world)
    assert len(world.witness.final) == 2 * len(AGENTS)
    assert begun <= len(AGENTS) * (2 + A_CALL_PAID_TWICE)


async def test_no_agent_is_handed_over_more_than_once_while_both_directories_live_and_have_work(world, first):
    old, new = world.nodes
    before = dict(world.witness.epochs)
    DirectoryProcess(new, "dir-second")

    for _ in range(40):
        for agent in AGENTS:
            for node in (old, new):  # each side's API accepts triggers and has its Directory wake the agent
                node.submit(agent, "x")
        await passing(world, 3)

    assert agents_on(old) == set()
    assert agents_on(new) == set(AGENTS)
    assert {agent: epoch - before[agent] for agent, epoch in world.witness.epochs.items()} == dict.fromkeys(AGENTS, 1)
    await ended_well(world)


async def test_the_superseded_directory_places_no_agent_before_it_knows_that_it_was_superseded(world, first):
    old, new = world.nodes
    await first.holding.stop()  # it hears of nothing
    DirectoryProcess(new, "dir-second")
    await passing(world, 20)
    epochs = dict(world.witness.epochs)

    for agent in AGENTS:
        await first.directory.wake([agent])
    await first.directory.sweep()
    await passing(world, 20)

    assert {agent: epoch for agent, epoch in world.witness.epochs.items() if epoch > epochs[agent]} == {}
    assert agents_on(old) == set()
    await ended_well(world)


@pytest.mark.parametrize("fate", [Fate.COMMIT, Fate.LOSE_ANSWER, Fate.REFUSE])
async def test_a_renewal_that_is_under_way_when_the_other_takes_over_changes_nothing_whatever_becomes_of_it(
    world, first, fate
):
    old, new = world.nodes
    await first.holding.stop()
    old.gate.open = False
    asking = asyncio.create_task(first.lease.tick())
    await world.clock.settle()
    second = DirectoryProcess(new, "dir-second")
    await passing(world, 2)

    await old.gate.decide(fate)
    old.gate.open = True
    await asking
    first.holding.start()
    await passing(world, 30)

    assert (first.lease.role, second.lease.role) == (LeaseRole.SUPERSEDED, LeaseRole.HOLDER)
    assert agents_on(old) == set()
    await ended_well(world)


@pytest.mark.parametrize("at", range(4))
async def test_the_new_directory_reigns_once_whichever_of_its_answers_is_lost(world, first, at):
    new = world.nodes[1]
    new.gate.ambushes += [(HoldLease, Fate.COMMIT)] * at + [(HoldLease, Fate.LOSE_ANSWER)]

    second = DirectoryProcess(new, "dir-second")
    await passing(world, 30)

    assert (first.lease.role, second.lease.role) == (LeaseRole.SUPERSEDED, LeaseRole.HOLDER)
    assert (second.lease.term, world.database.tables("SELECT term FROM cluster_lease")) == (2, [(2,)])
    await ended_well(world)


async def test_agents_change_hands_no_more_often_than_ray_makes_directories(world, first):
    """Ray makes one here, one there, again and again, and those before live on: each takes over once."""
    processes = [first]
    for number in range(8):
        processes.append(DirectoryProcess(world.nodes[(number + 1) % 2], f"dir-{number}"))
        for _ in range(5):
            for agent in AGENTS:
                for node in world.nodes:
                    node.submit(agent, "x")
            await passing(world, 2)
    await passing(world, 120)

    assert [each.lease.role for each in processes] == [LeaseRole.SUPERSEDED] * 8 + [LeaseRole.HOLDER]
    terms = world.database.tables("SELECT term FROM cluster_lease")
    assert terms == [(len(processes),)]
    assert max(world.witness.epochs.values()) <= len(processes)
    assert agents_on(world.nodes[1]) == set()
    await ended_well(world)


async def test_a_host_is_told_that_its_directory_was_superseded(world, first, caplog):
    host = world.nodes[0].hosts[0]
    DirectoryProcess(world.nodes[1], "dir-second")
    await first.holding.stop()
    await passing(world, 1)

    outcome = await world.nodes[0].gate.apply([ActivateAgent(AGENTS[0], "act_x", world.clock.now(), term=1)])
    await host._host.adopt([agent for agent in AGENTS if agent not in host._host._activations], 1)

    assert isinstance(outcome[0], StaleTerm)
    assert "its Directory (term 1) was superseded (term 2)" in caplog.text
