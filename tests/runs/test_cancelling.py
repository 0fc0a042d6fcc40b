"""A cancel stops a run wherever it is, without waiting for anything that time would bring."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent_tools import CREATE_SUB_AGENT
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tool import Effect, Permission
from owlclaw_ray.domain.trigger import Admission, BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, ActivationId, RunId
from owlclaw_ray.policy.governor import DefinitionGovernor
from owlclaw_ray.runs.catalog import ToolCatalog
from owlclaw_ray.runs.run_journal import FLUSH_AFTER
from owlclaw_ray.store.commands import ActivateAgent, AppendJournal, FinishRun, IdempotencyClaim, SubmitRun
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter, RunById
from tests.world import AGENTS, TOOLS, Fate, World, _tool

SOLO = AGENTS[0]
WITH_MEMORIES = AGENTS[2]
RUN = "run_000001"


async def claiming(world):
    world.nodes[0].gate.ambushes.append((ActivateAgent, Fate.DELAY))
    world.nodes[0].submit(SOLO, "x")
    await world.clock.settle()


async def claiming_with_the_end_of_the_run_before(world):
    world.nodes[0].submit(SOLO, "x")
    world.nodes[0].submit(SOLO, "y")
    await world.clock.settle()
    world.nodes[0].gate.ambushes.append((FinishRun, Fate.DELAY))
    world.answer_model(world.models.pending[0])
    await world.clock.settle()


async def looking_for_its_definition(world):
    await claiming(world)
    world.definitions.readable.clear()
    world.nodes[0].gate.answers.set()
    await world.clock.settle()
    assert world.witness.running
    assert not world.models.pending


async def preloading(world):
    world.nodes[0].submit(WITH_MEMORIES, "x")
    await world.clock.settle()
    assert world.tools[0].invocation.tool == "recall"


async def in_a_model_call(world):
    world.nodes[0].submit(SOLO, "x")
    await world.clock.settle()
    assert world.models.pending


async def waiting_for_a_retry(world):
    await in_a_model_call(world)
    world.fail_model(world.models.pending[0], "unavailable")
    await world.clock.settle()
    assert not world.models.pending


async def committing_a_reply(world):
    await in_a_model_call(world)
    world.nodes[0].gate.ambushes.append((AppendJournal, Fate.DELAY))
    world.answer_model(world.models.pending[0], "act")
    await world.clock.settle()


async def committing_the_beginning_of_a_call(world):
    await in_a_model_call(world)
    world.answer_model(world.models.pending[0], "put", "act")
    await world.clock.settle()
    world.nodes[0].gate.ambushes.append((AppendJournal, Fate.DELAY))
    world.end_tool(world.tools[0])
    await world.clock.settle()


async def waiting_for_a_store_that_is_away(world):
    await in_a_model_call(world)
    world.nodes[0].gate.ambushes.append((AppendJournal, Fate.REFUSE))
    world.answer_model(world.models.pending[0], "act")
    await world.clock.settle()


async def in_a_tool(world):
    await in_a_model_call(world)
    world.answer_model(world.models.pending[0], "act")
    await world.clock.settle()
    assert world.tools


async def in_parallel_tools(world):
    await in_a_model_call(world)
    world.answer_model(world.models.pending[0], "look", "look", "probe")
    await world.clock.settle()
    assert len(world.tools) == 3


PLACES = [
    claiming,
    claiming_with_the_end_of_the_run_before,
    looking_for_its_definition,
    preloading,
    in_a_model_call,
    waiting_for_a_retry,
    committing_a_reply,
    committing_the_beginning_of_a_call,
    in_a_tool,
    in_parallel_tools,
]


def newest(world):
    return max(world.witness.last_entry)


@pytest.mark.parametrize("place", PLACES)
async def test_a_cancel_ends_a_run_wherever_it_is_without_time_passing(world, place):
    await place(world)
    run_id = newest(world)
    begun = sum(world.witness.executions.values())

    await world.nodes[1].gate.pass_through([world.cancellation(run_id)])
    await world.nodes[0].hosts[0].cancel(world.agent_of(run_id), run_id)
    await world.clock.settle()
    world.nodes[0].gate.answers.set()
    await world.clock.settle()
    world.witness.audit(world.database.tables)

    assert world.witness.final[run_id] is RunStatus.CANCELLED
    assert not world.models.pending
    assert not world.tools
    assert sum(world.witness.executions.values()) == begun
    assert not world.witness.violations


async def test_a_cancel_that_comes_while_its_agent_is_activated_stands_beside_a_late_one_of_an_earlier_run(world):
    await claiming(world)
    [host] = world.nodes[0].hosts

    for run_id in (newest(world), "run_earlier"):
        await host.cancel(SOLO, RunId(run_id))
    world.nodes[0].gate.answers.set()
    await world.clock.settle()

    assert not world.models.pending


@pytest.mark.parametrize("turns", range(30))
async def test_a_cancel_that_comes_in_any_turn_of_the_event_loop_ends_a_run_that_begins(world, turns):
    world.nodes[0].submit(WITH_MEMORIES, "x")
    while RUN not in world.witness.last_entry:
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)

    world.nodes[0].cancel(RUN)
    await world.clock.settle()

    assert world.witness.final == {RUN: RunStatus.CANCELLED}


async def test_a_cancel_ends_a_run_that_waits_for_the_store_as_soon_as_the_store_is_back(world):
    await waiting_for_a_store_that_is_away(world)

    world.nodes[0].cancel(RUN)
    await world.clock.settle()
    await world.clock.advance(1)

    assert world.witness.final == {RUN: RunStatus.CANCELLED}
    assert not world.witness.executions


async def test_a_cancel_that_comes_while_the_end_is_committed_changes_nothing(world):
    await in_a_model_call(world)
    world.nodes[0].gate.ambushes.append((FinishRun, Fate.DELAY))
    world.answer_model(world.models.pending[0])
    await world.clock.settle()

    await world.nodes[0].hosts[0].cancel(SOLO, RUN)
    world.nodes[0].gate.answers.set()
    await world.clock.settle()
    world.nodes[0].submit(SOLO, "next")
    await world.clock.settle()

    assert world.witness.final == {RUN: RunStatus.COMPLETED}
    assert world.models.pending[0].request.run_id != RUN


async def test_a_cancel_of_another_run_leaves_the_present_one_alone(world):
    await in_a_model_call(world)

    assert not await world.nodes[0].hosts[0].cancel(SOLO, "run_of_somebody_else")
    await world.clock.settle()

    assert world.models.pending


async def ignore_news(world):
    """Cancel the run in the store only: its host cannot be reached."""
    await world.cancel_in_the_store(RUN)


async def test_a_cancel_that_only_the_store_knows_is_seen_by_the_commit_of_a_reply(world):
    await in_a_model_call(world)
    await ignore_news(world)
    world.answer_model(world.models.pending[0], "look", "put", "act")
    await world.clock.settle()

    assert world.witness.final == {RUN: RunStatus.CANCELLED}
    assert not world.witness.executions


async def test_a_cancel_that_only_the_store_knows_is_seen_before_a_once_call_begins(world):
    await in_a_model_call(world)
    world.answer_model(world.models.pending[0], "look", "act")
    await world.clock.settle()
    await ignore_news(world)
    world.end_tool(world.tools[0])
    await world.clock.settle()

    assert world.witness.final == {RUN: RunStatus.CANCELLED}
    assert list(world.witness.executions) == [(RUN, "t0-0")]


async def test_a_cancel_that_only_the_store_knows_stops_a_model_call_at_the_next_flush(world):
    await in_a_model_call(world)
    world.answer_model(world.models.pending[0], "look")
    await world.clock.settle()
    await ignore_news(world)
    world.end_tool(world.tools[0])
    await world.clock.settle()
    assert world.models.pending

    await world.clock.advance(FLUSH_AFTER)

    assert world.witness.final == {RUN: RunStatus.CANCELLED}
    assert not world.models.pending


async def test_a_cancel_that_only_the_store_knows_is_seen_when_the_prompt_is_flushed(world):
    await in_a_model_call(world)
    await ignore_news(world)

    await world.clock.advance(FLUSH_AFTER)

    assert world.witness.final == {RUN: RunStatus.CANCELLED}
    assert not world.models.pending


async def test_an_interrupt_that_was_accepted_and_never_signalled_is_signalled_when_it_is_repeated(world):
    await in_a_model_call(world)
    await world.clock.advance(FLUSH_AFTER)
    now = world.clock.now()
    claim = IdempotencyClaim("k", "urgent", now + timedelta(hours=1))
    trigger = Trigger(TriggerKind.API, "urgent")
    accepted = SubmitRun(RunId("run_urgent"), SOLO, trigger, now, claim, busy=BusyPolicy.INTERRUPT)
    await world.nodes[1].gate.pass_through([accepted])

    world.nodes[0].submit(SOLO, "urgent", "k", Admission(BusyPolicy.INTERRUPT))
    await world.clock.settle()

    assert world.witness.final == {RUN: RunStatus.CANCELLED}
    assert world.models.pending[0].request.run_id == "run_urgent"


async def test_what_a_cancelled_run_had_begun_is_told_call_by_call(world):
    """tool-registry: where tools are aborted, an error result is written for each call."""
    await in_a_model_call(world)
    world.answer_model(world.models.pending[0], "look", "probe", "put")
    await world.clock.settle()

    world.nodes[0].cancel(RUN)
    await world.clock.settle()

    gate = world.nodes[0].gate
    [run] = [await gate.read(RunById(DEFAULT_TENANT, RUN))]
    entries = await gate.read(JournalOfRun(DEFAULT_TENANT, RUN))
    records = await gate.read(LedgerFilter(DEFAULT_TENANT, run_id=RUN, kind=LedgerKind.TOOL_CALL))
    errors = [entry.data["error"]["type"] for entry in entries if entry.kind is EntryKind.TOOL_FINISHED]
    assert errors == ["cancelled", "uncertain", "not_executed"]
    assert [each.record.data["error"]["type"] for each in records] == errors
    assert run.result.tool_calls == 2


async def test_a_model_call_that_a_cancel_stopped_is_in_the_ledger(world):
    await in_a_model_call(world)

    world.nodes[0].cancel(RUN)
    await world.clock.settle()

    [record] = await world.nodes[0].gate.read(LedgerFilter(DEFAULT_TENANT, run_id=RUN, kind=LedgerKind.MODEL_CALL))
    entries = await world.nodes[0].gate.read(JournalOfRun(DEFAULT_TENANT, RUN))
    [built] = [each.data["model"] for each in entries if each.kind is EntryKind.PROMPT_BUILT]
    assert record.record.data == {"model": built, "error": "the run was cancelled"}


async def test_an_activation_that_learns_of_its_successor_stops_its_tools_at_once(world):
    await in_a_model_call(world)
    world.answer_model(world.models.pending[0], "look", "look")
    await world.clock.settle()
    world.end_tool(world.tools[0])
    await world.clock.settle()
    successor = ActivateAgent(SOLO, ActivationId("act_of_a_successor"), world.clock.now())
    await world.nodes[1].gate.pass_through([successor])
    assert world.tools

    await world.clock.advance(FLUSH_AFTER)

    assert not world.tools
    assert not world.witness.violations


class Children:
    """A Family that notes which runs it was to end."""

    def __init__(self):
        self.to_end = []

    async def orphaned(self, run):
        return False

    def ended(self, run):
        pass

    async def end(self, tenant, started):
        self.to_end += started


@pytest.mark.parametrize("owner", ["itself", "a successor"])
async def test_only_the_activation_that_has_a_run_ends_those_that_it_started(stores, owner):
    world, children = World(*stores), Children()
    node, tools = world.nodes[0], (*TOOLS, _tool(CREATE_SUB_AGENT, Permission.WRITE, Effect.IDEMPOTENT))
    governor = DefinitionGovernor(tools, world.clock)
    services = {"family": children, "catalog": ToolCatalog(tools), "governor": governor}
    node.runtime.pool._services = replace(node.runtime.pool._services, **services)
    await node.start()
    await in_a_model_call(world)
    world.answer_model(world.models.pending[0], tools[-1].wire_name)
    await world.clock.settle()
    assert world.tools
    if owner == "a successor":
        successor = ActivateAgent(SOLO, ActivationId("act_of_a_successor"), world.clock.now())
        await world.nodes[1].gate.pass_through([successor])

    await node.hosts[0].cancel(SOLO, RUN)
    await world.clock.settle()

    assert len(children.to_end) == (owner == "itself")
    assert not world.tools
    await world.end()
