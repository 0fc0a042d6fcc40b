"""One run, disturbed at every boundary that it has: before and after each commit, with its answer lost, inside each call."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, ActivationId, RunId
from owlclaw_ray.runs.run_journal import FLUSH_AFTER
from owlclaw_ray.store.commands import ActivateAgent, AppendJournal, ClaimRun, FinishRun, SubmitRun
from owlclaw_ray.store.queries import LedgerBreaks, LedgerFilter, RunById, RunFilter
from tests.world import AGENTS, DISASTERS, World

SOLO = AGENTS[0]
TURNS = (("look", "probe", "put", "act"), ("act", "look"), ())
RESULTS = {"t0-0", "t0-1", "t0-2", "t0-3", "t1-0", "t1-1"}
UNCERTAIN = {"t0-1": "uncertain", "t0-3": "uncertain", "t1-0": "uncertain", "t1-1": "not_executed"}
"""What an interruption may do to the calls: the last is not executed if the write before it is uncertain."""


@dataclass
class Story:
    """Lets a run happen, and disturbs it where it is told to."""

    world: World
    turns: tuple = TURNS
    kill_in_tool: int = 0
    kill_in_model: int = 0
    ended: int = 0
    killed: bool = False
    asked: list = field(default_factory=list)

    @property
    def node(self):
        return self.world.nodes[0]

    async def tell(self):
        """Return the run when it is over."""
        for _ in range(200):
            if not self.node.clients and not self.world.acknowledged:
                self.node.submit(SOLO, "x", "key of this story")
            await self.world.clock.settle()
            if self.world.models.pending:
                await self._model(self.world.models.pending[0])
            elif self.world.tools:
                await self._tool(self.world.tools[0])
            elif not self.world.witness.final:
                await self.world.clock.advance(0.5)
            else:
                return await self._checked()
        raise AssertionError("the run does not end")

    async def _model(self, call):
        self.asked.append(call.request)
        if len(self.asked) == self.kill_in_model:
            await self.world.clock.advance(2 * FLUSH_AFTER)
            await self._kill()
        else:
            turn = sum(bool(message.tool_calls) for message in call.request.messages)
            self.world.answer_model(call, *self.turns[turn])

    async def _tool(self, call):
        self.ended += 1
        if self.ended == self.kill_in_tool:
            await self._kill()
        else:
            self.world.end_tool(call)

    async def _kill(self):
        self.killed = True
        await self.node.kill_hosts()

    async def _checked(self):
        self.world.witness.audit(self.world.database.tables)
        assert not self.world.witness.violations, self.world.witness.violations
        assert not await self.node.gate.read(LedgerBreaks(DEFAULT_TENANT))
        [run] = await self.node.gate.read(RunFilter(DEFAULT_TENANT))
        return run

    def errors(self):
        """Return the type of each call's error, by the call's id."""
        recorded = self.world.witness.recorded.items()
        return {call_id: data["error"]["type"] for (_, call_id), data in recorded if "error" in data}


@pytest.mark.parametrize("fate", DISASTERS)
async def test_whatever_becomes_of_any_transaction_of_a_run_nothing_is_lost_or_repeated(stores, fate):
    at = 0
    while True:
        world = World(*stores)
        await world.nodes[0].start()
        world.nodes[0].gate.ambush_transaction(at, fate)
        story = Story(world)
        run = await story.tell()
        await world.end()
        if world.nodes[0].gate.transactions_to_ambush:
            break
        assert run.status is RunStatus.COMPLETED
        assert {call_id for _, call_id in world.witness.recorded} == RESULTS
        assert story.errors().items() <= UNCERTAIN.items()
        at += 1
    assert at >= 9


@pytest.mark.parametrize("number", range(1, 7))
async def test_a_host_that_dies_inside_a_tool_call_repeats_it_or_reports_it_as_uncertain_by_its_effect(world, number):
    story = Story(world, kill_in_tool=number)

    run = await story.tell()

    interrupted = {call_id for (_, call_id), times in world.witness.executions.items() if times == 2}
    assert story.killed
    assert run.status is RunStatus.COMPLETED
    assert {call_id for _, call_id in world.witness.recorded} == RESULTS
    assert interrupted or story.errors()
    assert interrupted <= {"t0-0", "t0-2", "t1-1"}
    assert story.errors().items() <= UNCERTAIN.items()


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_host_that_dies_inside_a_model_call_has_it_asked_again(world, number):
    story = Story(world, kill_in_model=number)

    run = await story.tell()

    assert run.status is RunStatus.COMPLETED
    assert len(story.asked) == 4
    assert story.asked[number - 1].messages == story.asked[number].messages
    assert set(world.witness.executions.values()) == {1}


async def test_an_interrupted_once_call_is_uncertain_to_the_model_and_in_the_ledger(world):
    """tool-registry: tool_started is written before the execution."""
    story = Story(world, turns=(("act",), ()), kill_in_tool=1)

    run = await story.tell()

    told = json.loads(story.asked[-1].messages[-1].content)["error"]
    records = await story.node.gate.read(LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.TOOL_CALL))
    assert told["type"] == "uncertain"
    assert [each.record.data["error"]["type"] for each in records] == ["uncertain"]
    assert list(world.witness.executions.values()) == [1]


async def test_of_two_parallel_calls_the_one_whose_result_is_durable_is_not_repeated(world):
    node = world.nodes[0]
    node.submit(SOLO, "x")
    await world.clock.settle()
    world.answer_model(world.models.pending[0], "look", "look")
    await world.clock.settle()
    world.end_tool(world.tools[1])
    await world.clock.advance(2 * FLUSH_AFTER)

    await node.kill_hosts()
    assert await world.come_to_rest()

    assert {call_id: times for (_, call_id), times in world.witness.executions.items()} == {"t0-0": 2, "t0-1": 1}
    assert not world.witness.violations


async def begin(world, *entries):
    """Leave behind a run that an activation of the past had brought so far."""
    gate, now, run_id = world.nodes[1].gate, world.clock.now(), RunId("run_of_the_past")
    await gate.apply([SubmitRun(run_id, SOLO, Trigger(TriggerKind.API), now)])
    await gate.apply([ActivateAgent(SOLO, ActivationId("act_of_the_past"), now), ClaimRun(SOLO, 1, now)])
    facts = tuple(JournalEntry(3 + at, kind, now, data) for at, (kind, data) in enumerate(entries))
    await gate.apply([AppendJournal(run_id, SOLO, 1, facts, (), {"s": "system", "t": "[]"})])
    return run_id


PROMPT = (
    EntryKind.PROMPT_BUILT,
    {"system": "s", "tools": "t", "user": "u", "visible": ["act", "look", "put"], "model": "test", "scripted": False},
)


def reply(*names):
    calls = [{"id": f"t0-{at}", "name": name, "arguments": "{}"} for at, name in enumerate(names)]
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0, "cost": 0.0}
    data = {"text": "", "tool_calls": calls, "model": "test", "scripted": False, "usage": usage, "duration_ms": 1}
    return (EntryKind.MODEL_REPLIED, data)


def finished(at, tool, error=None):
    data = {"call_id": f"t0-{at}", "tool": tool, "arguments": "{}", "duration_ms": 1, "content": "ok"}
    if error:
        data["error"] = {"type": error, "message": "no", "retryable": False, "details": None}
    return (EntryKind.TOOL_FINISHED, data)


async def test_after_a_recorded_failure_of_a_write_a_resumed_run_refuses_the_rest_of_the_turn(world):
    await begin(world, PROMPT, reply("look", "put", "act", "look"), finished(1, "put", "execution_failed"))

    await world.nodes[0].runtime.directory.sweep()
    assert await world.come_to_rest()

    results = {call_id: data for (_, call_id), data in world.witness.recorded.items()}
    assert [call_id for _, call_id in world.witness.executions] == ["t0-0"]
    assert results["t0-2"]["error"]["type"] == results["t0-3"]["error"]["type"] == "not_executed"
    assert "put failed" in results["t0-2"]["error"]["message"]


async def test_a_run_that_was_over_its_limit_when_it_was_interrupted_ends_without_another_model_call(world):
    names = ["look"] * 7
    results = [finished(at, "look") for at in range(6)]
    run_id = await begin(world, PROMPT, reply(*names), *results, finished(6, "look", "not_executed"))

    await world.nodes[0].runtime.directory.sweep()
    await world.clock.settle()

    assert world.witness.final == {run_id: RunStatus.TERMINATED}
    assert not world.witness.executions


async def test_a_tool_that_the_application_has_no_more_is_not_available_to_a_resumed_run(world):
    kind, data = PROMPT
    await begin(world, (kind, {**data, "visible": ["look", "of_old"]}), reply("of_old", "look"))

    await world.nodes[0].runtime.directory.sweep()
    assert await world.come_to_rest()

    results = {call_id: data for (_, call_id), data in world.witness.recorded.items()}
    assert results["t0-0"]["error"]["type"] == "tool_not_available"
    assert "error" not in results["t0-1"]
    assert set(world.witness.final.values()) == {RunStatus.COMPLETED}


def begun(at, tool):
    return (EntryKind.TOOL_STARTED, {"call_id": f"t0-{at}", "tool": tool})


def with_a_tool_of_old(world):
    kind, data = PROMPT
    return (kind, {**data, "visible": ["of_old", "put"]}), reply("of_old", "put"), begun(0, "of_old")


def with_a_tool_that_may_be_repeated_by_now(world):
    return PROMPT, reply("put"), begun(0, "put")


def with_fewer_calls_allowed_by_now(world):
    world.definitions.have_tool_calls(1)
    return PROMPT, reply("look", "act"), finished(0, "look"), begun(1, "act")


@pytest.mark.parametrize(
    ("circumstances", "errors"),
    [
        (with_a_tool_of_old, {"t0-0": "uncertain", "t0-1": "not_executed"}),
        (with_a_tool_that_may_be_repeated_by_now, {"t0-0": "uncertain"}),
        (with_fewer_calls_allowed_by_now, {"t0-1": "uncertain"}),
    ],
)
async def test_an_interrupted_once_call_is_uncertain_whatever_the_application_is_by_now(world, circumstances, errors):
    await begin(world, *circumstances(world))

    await world.nodes[0].runtime.directory.sweep()
    assert await world.come_to_rest()

    recorded = {call_id: data for (_, call_id), data in world.witness.recorded.items() if "error" in data}
    assert {call_id: data["error"]["type"] for call_id, data in recorded.items()} == errors
    assert not world.witness.executions


async def test_a_run_that_is_cancelled_before_it_resumes_says_that_a_call_of_a_tool_of_old_is_uncertain(world):
    run_id = await begin(world, *with_a_tool_of_old(world))
    await world.cancel_in_the_store(run_id)

    await world.nodes[0].runtime.directory.sweep()
    assert await world.come_to_rest()

    recorded = {call_id: data["error"]["type"] for (_, call_id), data in world.witness.recorded.items()}
    assert recorded["t0-0"] == "uncertain"
    assert world.witness.final == {run_id: RunStatus.CANCELLED}


async def test_a_journal_that_cannot_be_read_back_ends_its_run_and_not_the_agent(world):
    run_id = await begin(world, PROMPT, reply("look"))
    world.database.tables(
        """UPDATE journal SET data = '{"nothing":"of what belongs here"}' WHERE kind = 'model_replied'"""
    )
    world.nodes[0].submit(SOLO, "whole")

    assert await world.come_to_rest()

    run = await world.nodes[0].gate.read(RunById(DEFAULT_TENANT, run_id))
    assert run.result.error.type == "internal_error"
    assert sorted(status.value for status in world.witness.final.values()) == ["completed", "failed"]


@pytest.mark.parametrize("fate", DISASTERS)
async def test_a_crash_in_the_middle_of_finish_ends_the_run_once_and_the_next_one_runs(world, fate):
    node = world.nodes[0]
    node.submit(SOLO, "first")
    node.submit(SOLO, "second")
    await world.clock.settle()
    node.gate.ambushes.append((FinishRun, fate))

    for _ in range(40):
        await world.answer_all()
        await world.clock.advance(1)

    world.witness.audit(world.database.tables)
    assert list(world.witness.final.values()) == [RunStatus.COMPLETED] * 2
    assert not world.witness.violations
