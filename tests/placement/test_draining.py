"""Stopping on purpose: runs end in time or are handed over, and the next runtime neither loses nor repeats anything."""

from __future__ import annotations

import asyncio
import gc

import pytest

from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.placement.host_pool import HostGoneError
from owlclaw_ray.runs.activation import FINAL_FLUSH_SECONDS
from owlclaw_ray.runs.run_journal import FLUSH_AFTER
from owlclaw_ray.store.commands import ActivateAgent, AppendJournal, ClaimRun, FinishRun, ReleaseAgent
from owlclaw_ray.store.queries import AgentByRef, AgentPage, JournalOfRun, LedgerBreaks, RunFilter
from tests.world import AGENTS, Fate

SOLO, OTHER, *_ = AGENTS
RUN = "run_000001"


@pytest.fixture
def node(world):
    return world.nodes[0]


async def asked(world, *agents):
    for agent in agents or (SOLO,):
        world.nodes[0].submit(agent, "x")
    await world.clock.settle()


def draining(node, grace):
    return asyncio.create_task(node.runtime.directory.stop(grace))


async def continued_elsewhere(world):
    """Let the second node take over, and return the runs as they are in the end, oldest first."""
    await world.nodes[1].start()
    await world.nodes[1].runtime.directory.sweep()
    assert await world.come_to_rest()
    world.witness.audit(world.database.tables)
    assert not world.witness.violations, world.witness.violations
    assert not await world.nodes[1].gate.read(LedgerBreaks(DEFAULT_TENANT))
    return (await world.nodes[1].gate.read(RunFilter(DEFAULT_TENANT)))[::-1]


async def owners(world):
    return [record.activation_id for record in await world.nodes[0].gate.read(AgentPage(DEFAULT_TENANT))]


async def test_a_run_that_ends_within_the_grace_is_not_handed_over(world, node):
    await asked(world)
    stopping = draining(node, 5)
    await world.clock.advance(2)
    world.answer_model(world.models.pending[0])
    await world.clock.settle()

    assert stopping.done()
    assert world.witness.final == {RUN: RunStatus.COMPLETED}
    assert await owners(world) == [None]


async def test_a_model_call_under_way_ends_within_the_grace_and_its_run_goes_on_elsewhere_at_once(world, node):
    await asked(world)
    stopping = draining(node, 60)
    await world.clock.advance(2)
    world.answer_model(world.models.pending[0], "look", "act")
    await world.clock.settle()

    assert stopping.done()
    assert not world.tools
    assert not world.models.pending
    assert await owners(world) == [None]
    [run] = await continued_elsewhere(world)
    assert run.status is RunStatus.COMPLETED
    assert set(world.witness.executions.values()) == {1}
    entries = await world.nodes[1].gate.read(JournalOfRun(DEFAULT_TENANT, RUN))
    kinds = [entry.kind for entry in entries]
    assert kinds.count(EntryKind.RUN_RESUMED) == 1
    assert kinds.index(EntryKind.MODEL_REPLIED) < kinds.index(EntryKind.RUN_RESUMED)


async def test_tool_calls_under_way_end_within_the_grace_and_those_after_them_are_made_elsewhere(world, node):
    await asked(world)
    world.answer_model(world.models.pending[0], "act", "put")
    await world.clock.settle()
    stopping = draining(node, 60)
    await world.clock.advance(2)
    assert not stopping.done()
    world.end_tool(world.tools[0])
    await world.clock.settle()

    assert stopping.done()
    assert not world.tools
    [run] = await continued_elsewhere(world)
    assert run.status is RunStatus.COMPLETED
    assert "error" not in world.witness.recorded[RUN, "t0-0"]
    assert set(world.witness.executions.values()) == {1}


async def test_after_the_last_tool_call_of_a_turn_a_draining_host_asks_no_model(world, node):
    await asked(world)
    world.answer_model(world.models.pending[0], "look")
    await world.clock.settle()
    stopping = draining(node, 60)
    await world.clock.settle()
    world.end_tool(world.tools[0])
    await world.clock.settle()

    assert stopping.done()
    assert not world.models.pending
    assert [run.status for run in await continued_elsewhere(world)] == [RunStatus.COMPLETED]
    assert world.witness.executions == {(RUN, "t0-0"): 1}


async def test_no_further_run_is_begun_while_a_host_drains(world, node):
    await asked(world, SOLO, SOLO)
    stopping = draining(node, 5)
    await world.clock.settle()
    world.answer_model(world.models.pending[0])
    await world.clock.settle()

    assert stopping.done()
    assert not world.models.pending
    assert not world.witness.running
    assert [run.status for run in await continued_elsewhere(world)] == [RunStatus.COMPLETED] * 2


async def test_a_run_that_does_not_end_in_time_is_handed_over_and_continues(world, node):
    await asked(world)
    world.answer_model(world.models.pending[0], "look", "put", "act")
    await world.clock.settle()
    for _ in range(3):
        world.end_tool(world.tools[0])
        await world.clock.settle()
    stopping = draining(node, 5)
    await world.clock.advance(5)

    assert stopping.done()
    assert not world.models.pending
    [run] = await continued_elsewhere(world)
    assert run.status is RunStatus.COMPLETED
    assert set(world.witness.executions.values()) == {1}
    assert "error" not in world.witness.recorded[RUN, "t0-2"]


async def test_what_is_known_when_a_run_is_handed_over_is_not_done_again(world, node):
    await asked(world)
    world.answer_model(world.models.pending[0], "look", "look", "probe")
    await world.clock.settle()
    for call in tuple(world.tools)[1:]:
        world.end_tool(call)
    await world.clock.settle()

    stopping = draining(node, 0)
    await world.clock.settle()
    assert stopping.done()
    [run] = await continued_elsewhere(world)

    assert run.status is RunStatus.COMPLETED
    assert {call_id: times for (_, call_id), times in world.witness.executions.items()} == {
        "t0-0": 2,
        "t0-1": 1,
        "t0-2": 1,
    }
    assert "error" not in world.witness.recorded[RUN, "t0-2"]


async def test_a_once_call_that_the_end_of_the_grace_kills_is_uncertain_afterwards(world, node):
    await asked(world)
    world.answer_model(world.models.pending[0], "act")
    await world.clock.settle()
    stopping = draining(node, 1)
    await world.clock.advance(1)

    assert stopping.done()
    assert not world.tools
    [run] = await continued_elsewhere(world)
    assert run.status is RunStatus.COMPLETED
    assert world.witness.recorded[RUN, "t0-0"]["error"]["type"] == "uncertain"
    assert list(world.witness.executions.values()) == [1]


async def test_a_whole_fleet_is_handed_over_in_order(world, node):
    await asked(world, *AGENTS, *AGENTS, *AGENTS)
    for call in tuple(world.models.pending)[::2]:
        world.answer_model(call, "look", "act")
    await world.clock.settle()
    stopping = draining(node, 3)
    await world.clock.advance(1)
    for call in tuple(world.tools)[::2]:
        world.end_tool(call)
    await world.clock.advance(2 + FINAL_FLUSH_SECONDS)

    assert stopping.done()
    runs = await continued_elsewhere(world)
    assert [run.status for run in runs] == [RunStatus.COMPLETED] * 15
    for agent in AGENTS:
        started = [run.started_at for run in runs if run.agent == agent]
        assert started == sorted(started)


async def test_a_run_that_is_handed_over_says_so_in_its_journal(world, node):
    await asked(world)
    await world.clock.advance(1)
    draining(node, 0)
    await world.clock.settle()
    await continued_elsewhere(world)

    kinds = [entry.kind for entry in await world.nodes[1].gate.read(JournalOfRun(DEFAULT_TENANT, RUN))]
    assert kinds.count(EntryKind.RUN_RESUMED) == 1
    assert kinds.count(EntryKind.PROMPT_BUILT) == 1


@pytest.mark.parametrize("kind", [ActivateAgent, ClaimRun, FinishRun, ReleaseAgent])
async def test_a_drain_that_crosses_with_a_commit_loses_nothing(world, node, kind):
    if kind is ReleaseAgent:
        node.submit(OTHER, "x")
        await world.clock.settle()
        await world.answer_all()
        await world.clock.settle()
    node.gate.ambushes.append((kind, Fate.DELAY))
    node.submit(SOLO, "x")
    await world.clock.settle()
    await world.answer_all()
    await world.clock.settle()

    stopping = draining(node, 1)
    await world.clock.advance(0.5)
    node.gate.answers.set()
    await world.clock.advance(0.5 + FINAL_FLUSH_SECONDS)

    assert stopping.done()
    assert not world.models.pending
    assert {run.status for run in await continued_elsewhere(world)} == {RunStatus.COMPLETED}


async def test_a_run_that_is_handed_over_while_it_waits_to_write_its_end_ends_elsewhere_and_once(world, node):
    await asked(world)
    world.answer_model(world.models.pending[0], "look")
    await world.clock.settle()
    world.end_tool(world.tools[0])
    await world.clock.settle()
    node.gate.ambushes.append((AppendJournal, Fate.DELAY))
    await world.clock.advance(FLUSH_AFTER)
    world.answer_model(world.models.pending[0])
    await world.clock.settle()

    stopping = draining(node, 0)
    await world.clock.settle()
    node.gate.answers.set()
    await world.clock.settle()

    assert stopping.done()
    [run] = await continued_elsewhere(world)
    assert run.status is RunStatus.COMPLETED


async def test_a_store_that_does_not_answer_holds_up_a_drain_for_a_few_seconds_only(world, node):
    await asked(world, SOLO, OTHER)
    world.answer_model(world.models.pending[0])
    await world.clock.settle()
    world.answer_model(world.models.pending[0], "look")
    await world.clock.settle()
    world.end_tool(world.tools[0])
    node.gate.open = False

    stopping = draining(node, 3)
    await world.clock.advance(3 + 2 * FINAL_FLUSH_SECONDS)

    assert stopping.done()
    assert {run.status for run in await continued_elsewhere(world)} == {RunStatus.COMPLETED}


async def test_a_host_that_drains_adopts_nobody_and_says_so(world, node):
    host = await node.runtime.pool.spawn("here")
    await host.drain(0)

    with pytest.raises(HostGoneError, match="drained"):
        await host.adopt([SOLO], 0)

    assert not await host.hosted()
    assert await world.nodes[0].gate.read(AgentByRef(SOLO)) is None


async def test_a_directory_ends_hosts_that_the_one_before_it_drained_and_their_agents_go_on_in_others(world, node):
    await asked(world, SOLO, OTHER)
    drained = [host.host_id for host in node.hosts]
    draining(node, 0)  # as one does that gives all agents up; it is killed before it has ended the hosts
    await world.clock.settle()

    await node.restart_directory()
    await world.clock.settle()  # and no time passes

    entries = await node.gate.read(JournalOfRun(DEFAULT_TENANT, RUN))
    assert EntryKind.RUN_RESUMED in [entry.kind for entry in entries]
    assert not set(drained) & {host.host_id for host in await node.runtime.pool.living()}
    assert await world.come_to_rest()
    assert set(world.witness.final.values()) == {RunStatus.COMPLETED}


@pytest.mark.parametrize("turns", range(8, 20))
async def test_a_host_can_die_in_any_turn_of_its_event_loop_and_leaves_no_call_half_made(world, node, turns):
    """A coroutine that nobody awaits any more would be reported when it is collected."""
    gc.freeze()  # what others left behind is not looked at
    node.submit(SOLO, "x")
    for _ in range(turns):
        await asyncio.sleep(0)

    await node.kill_hosts()
    await world.clock.settle()
    gc.collect()
    gc.unfreeze()

    assert await world.come_to_rest()
