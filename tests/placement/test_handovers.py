"""Wakes that cross with activations and passivations."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.store.commands import ActivateAgent, CommandFailed, FinishRun, ReleaseAgent
from owlclaw_ray.store.queries import AgentByRef
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.contracts.store_commands import submission
from tests.world import AGENTS, Fate
from tests.worlds import Model, says

WATCH = AgentRef.parse("watch")


class SlowStore:
    """A store whose answers to one kind of command wait for a gate."""

    def __init__(self, store, kind):
        self.store, self.kind = store, kind
        self.reached, self.gate = asyncio.Event(), asyncio.Event()

    async def apply(self, commands):
        outcomes = await self.store.apply(commands)
        if any(isinstance(command, self.kind) for command in commands):
            self.reached.set()
            await self.gate.wait()
        return outcomes


def slow_down(runtime, kind):
    slow = SlowStore(runtime.pool._store, kind)
    runtime.pool._store = slow
    for host in runtime.pool.hosts.values():
        host._wire._store = slow
    return slow


async def test_an_agent_that_is_woken_while_it_is_activated_is_activated_once(agents, tmp_path):
    agents.define()
    model = Model(lambda _: says("ok"))
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        store = slow_down(runtime, ActivateAgent)
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await store.reached.wait()
        sweeps = [asyncio.create_task(runtime.directory.take_over()) for _ in range(3)]
        await asyncio.sleep(0)
        store.gate.set()
        await asyncio.gather(*sweeps)
        run = await runtime.outcome(accepted)
        record = await runtime.store.read(AgentByRef(WATCH))

    assert run.status is RunStatus.COMPLETED
    assert record.epoch == 1
    assert len(model.requests) == 1


async def test_an_agent_that_is_woken_while_it_is_passivated_runs_at_one_place(agents, tmp_path):
    agents.define()
    asked = asyncio.Event()
    gate = asyncio.Event()

    async def decide(request):
        if request.trigger.payload == "second":
            asked.set()
            await gate.wait()
        return says("ok")

    model = Model(decide)
    placement = Placement(warm=2, idle=0.0, heartbeat=3600, sweep=3600)
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], placement=placement
    ) as runtime:
        await runtime.trigger("watch", "first")
        store = slow_down(runtime, ReleaseAgent)
        while not store.reached.is_set():
            await runtime.directory.heartbeat()
            await asyncio.sleep(0)
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API, "second"))
        store.gate.set()
        await asked.wait()
        for _ in range(3):
            await runtime.directory.take_over()
        gate.set()
        run = await runtime.outcome(accepted)
        record = await runtime.store.read(AgentByRef(WATCH))

    assert run.status is RunStatus.COMPLETED
    assert record.epoch == 2
    assert len(model.requests) == 2


class RefusingStore:
    """A store that never takes one kind of command."""

    def __init__(self, store, kind):
        self.store, self.kind = store, kind

    async def apply(self, commands):
        taken = [command for command in commands if not isinstance(command, self.kind)]
        outcomes = iter(await self.store.apply(taken) if taken else ())
        return [CommandFailed("no") if isinstance(command, self.kind) else next(outcomes) for command in commands]


@pytest.mark.parametrize("leave", ["hand_over", "release"])
async def test_an_agent_whose_state_the_store_refuses_leaves_its_host_all_the_same_and_runs_again(
    agents, tmp_path, leave
):
    agents.define()
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(lambda _: says("ok"))]
    ) as runtime:
        await runtime.trigger("watch", "first")
        [host] = [host for host in runtime.pool.hosts.values() if await host.hosted()]
        host._wire._store = RefusingStore(host._wire._store, ReleaseAgent)

        while await getattr(host, leave)([WATCH]) != (WATCH,):  # a late wake of the first run may have brought it back
            await asyncio.sleep(0)

        assert await host.hosted() == ()
        assert (await runtime.trigger("watch", "second")).status is RunStatus.COMPLETED


async def test_a_new_directory_moves_nobody_who_is_being_activated_and_seats_nobody_beside(world):
    node, [first, second] = world.nodes[0], AGENTS[:2]
    unheard_of = replace(submission("run_0", first), at=world.clock.now())
    await node.gate.apply([unheard_of])
    node.gate.ambushes.append((ActivateAgent, Fate.DELAY))
    node.submit(second, "x")
    await world.clock.settle()

    await node.restart_directory()
    await world.clock.settle()
    node.gate.answers.set()
    await world.clock.settle()

    assert [(await node.gate.read(AgentByRef(agent))).epoch for agent in (first, second)] == [1, 1]
    assert {await host.hosted() for host in node.hosts} == {(first,), (second,)}


async def test_a_run_that_is_claimed_while_its_agent_is_handed_over_keeps_its_owner(world):
    node, [agent, *_] = world.nodes[0], AGENTS
    node.submit(agent, "x")
    node.submit(agent, "y")
    await world.clock.settle()
    node.gate.ambushes.append((FinishRun, Fate.DELAY))
    world.answer_model(world.models.pending[0])
    await world.clock.settle()
    [host] = node.hosts

    leaving = asyncio.create_task(host.hand_over([agent]))
    await world.clock.settle()
    node.gate.answers.set()
    await world.clock.settle()
    assert len(world.models.pending) == 1
    assert not leaving.done()

    node.cancel(max(world.witness.last_entry))
    await world.clock.settle()
    assert await leaving == (agent,)
    assert not world.witness.running
