"""In which order a turn's calls are executed, against a model of it that fits on a page."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, AgentState, Limits, ModelChoice
from owlclaw_ray.domain.approval import ApprovalDecision, Decision
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.permission import Approver, PermissionPolicy
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.tool import (
    AGENT,
    DANGEROUS,
    Effect,
    Permission,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolOrigin,
    ToolResult,
)
from owlclaw_ray.domain.tool_call import CONFIRM_SECONDS, CheckedCall, Ownership, Stage, ToolOutcome, nothing_to_confirm
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import StaleEpochError
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.machine import boot_id
from owlclaw_ray.policy.governor import DefinitionGovernor
from owlclaw_ray.policy.permission import PermissionGate, SessionGrants
from owlclaw_ray.runs.catalog import ToolCatalog
from owlclaw_ray.runs.conversation import Conversation
from owlclaw_ray.runs.run_journal import RunJournal
from owlclaw_ray.runs.running_calls import RunningCalls, unknown
from owlclaw_ray.runs.tool_dispatch import ToolDispatch
from owlclaw_ray.store.commands import Appended, StaleEpoch
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.testing.clock import ManualClock


def tool(name, permission, effect=Effect.IDEMPOTENT, *tags):
    origin = ToolOrigin.APPLICATION
    return ToolDefinition(name, name, {"type": "object"}, permission, effect, tags=frozenset(tags), origin=origin)


READ, WRITE = Permission.READONLY, Permission.WRITE
TOOLS = {
    each.name: each
    for each in (
        tool("read", READ),
        tool("write", WRITE),
        tool("act", WRITE, Effect.ONCE),
        tool("list_workers", READ, Effect.PURE, AGENT),
        tool("fork_agent", WRITE, Effect.IDEMPOTENT, AGENT),
        tool("peek", READ, Effect.PURE, DANGEROUS),
        tool("risk", WRITE, Effect.ONCE, DANGEROUS),
        tool("schedule_once", READ, Effect.IDEMPOTENT),
        tool("secret_look", READ),
        tool("secret_write", WRITE),
    )
}
HIDDEN = {"secret_look", "secret_write"}
NAMES = [*(name for name in TOOLS if name != "schedule_once"), "unknown"]


class Accepting:
    """A CommandStore that has no more to say than that everything is durable, or that another activation has the run."""

    def __init__(self):
        self.outcome = Appended()

    async def apply(self, commands):
        return [self.outcome for _ in commands]


@dataclass
class Runner:
    """A ToolRunner whose calls fail if they are told to, and end in an order of their own."""

    failing: set
    order: list = field(default_factory=list)
    log: list = field(default_factory=list)
    running: set = field(default_factory=set)
    beside: set = field(default_factory=set)
    waits: bool = False
    """Whether calls wait for so long that their run may be another activation's by then."""
    owned: Ownership | None = None
    """What the last of these was told of who has the run."""

    async def run(self, invocation, confirm=nothing_to_confirm):
        if self.waits:
            self.owned = await confirm()
        if invocation.stage is Stage.CHECK:
            return ToolOutcome(ToolResult(invocation.call_id), 0, checked=CheckedCall(invocation.arguments, "{}"))
        call_id = invocation.call_id
        self.log.append(call_id)
        self.running.add(call_id)
        for _ in range(1 + self.order[int(call_id) % len(self.order)] if self.order else 1):
            await asyncio.sleep(0)
            self.beside.update((call_id, other) for other in self.running if other != call_id)
        self.running.discard(call_id)
        error = ToolError("execution_failed", "no") if call_id in self.failing else None
        return ToolOutcome(ToolResult(call_id, None if error else call_id, error), 1)


class Turn:
    """A turn of a run, its calls numbered from 0."""

    def __init__(self, names, failing=(), order=(), policy=None, approve=None):
        self.calls = tuple(ToolCall(str(at), name, "{}") for at, name in enumerate(names))
        self.runner = Runner({str(at) for at in failing}, list(order))
        clock, agent = ManualClock(), AgentRef.parse("watch")
        self.clock = clock
        run = Run(RunId("run"), 1, agent, Trigger(TriggerKind.API), RunStatus.RUNNING, clock.now())
        self.conversation = Conversation()
        self.store = Accepting()
        journal = RunJournal(run, 1, conversation=self.conversation, store=DurableStore(self.store, clock), clock=clock)
        self.journal = journal
        reply = {
            "text": "",
            "tool_calls": [{"id": call.call_id, "name": call.name, "arguments": "{}"} for call in self.calls],
            "model": "m",
            "scripted": False,
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "cached_tokens": 0, "cost": 0.0},
            "duration_ms": 1,
        }
        journal.record(EntryKind.MODEL_REPLIED, reply)
        visible = ToolCatalog(TOOLS.values()).select([name for name in TOOLS if name not in HIDDEN], agent.tenant)
        gate = PermissionGate(run, journal, policy or PermissionPolicy(), SessionGrants(), clock, approve)
        definition = AgentDefinition("watch", "1", "", "Be calm.", "- look", "", ModelChoice("scripted:echo"))
        governor = DefinitionGovernor(tuple(TOOLS.values()), clock)
        rules = governor.rules(run, definition, AgentState(), self.conversation.outcomes, journal)
        self.dispatch = ToolDispatch(
            run, visible, Limits(), self.runner, journal, rules, clock, gate, RunningCalls(clock, unknown)
        )

    async def execute(self):
        needed = await self.dispatch.execute(self.calls)
        self.journal.abandon()
        return needed

    def errors(self):
        return {call_id: each.error and each.error.type for call_id, each in self.conversation.results.items()}


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("lost", [True, False])
async def test_a_call_that_waited_long_is_made_only_while_its_activation_has_the_run(lost, late):
    turn = Turn([next(iter(TOOLS))])
    turn.runner.waits = True
    await turn.clock.advance(CONFIRM_SECONDS)
    turn.journal.record(EntryKind.RUN_ACTIVE, {})
    await turn.journal.commit()
    if lost:
        turn.store.outcome = StaleEpoch(AgentRef.parse("watch"), 2)
    await turn.clock.advance(CONFIRM_SECONDS if late else CONFIRM_SECONDS - 0.1)

    with pytest.raises(StaleEpochError) if lost and late else nullcontext():
        await turn.execute()

    assert turn.runner.log == ([] if lost and late else ["0"])


@pytest.mark.parametrize(("waited", "ago"), [(CONFIRM_SECONDS - 0.5, CONFIRM_SECONDS - 0.5), (CONFIRM_SECONDS, 0.0)])
async def test_a_call_is_told_when_its_activation_was_last_known_to_have_the_run(waited, ago):
    turn = Turn([next(iter(TOOLS))])
    turn.runner.waits = True
    turn.journal.record(EntryKind.RUN_ACTIVE, {})
    await turn.journal.commit()
    await turn.clock.advance(waited)

    await turn.execute()

    assert turn.runner.owned == Ownership(1, turn.clock.monotonic() - ago, boot_id())


async def test_a_call_that_waited_long_is_not_made_for_a_run_that_was_asked_to_end_meanwhile():
    turn = Turn([next(iter(TOOLS))])
    turn.runner.waits = True
    await turn.journal.commit()
    turn.store.outcome = Appended(cancel_requested=True)
    await turn.clock.advance(CONFIRM_SECONDS)
    executing = asyncio.create_task(turn.execute())
    turn.journal.interrupt = executing.cancel

    with pytest.raises(asyncio.CancelledError):
        await executing

    assert turn.journal.cancel_requested
    assert turn.runner.log == []


def reference(names, failing, denied):
    """Return what becomes of each call, and which calls may run beside each other: written without groups, one call after another."""
    fate, lanes, lane, stopped, to_stop = [], [], -1, False, False
    before = None
    for at, name in enumerate(names):
        definition = TOOLS.get(name)
        writes = definition is not None and definition.permission is WRITE
        kind = "agent" if definition and AGENT in definition.tags else "write" if writes else "read"
        if kind != before or kind == "write":
            lane, stopped = lane + 1, stopped or to_stop
        before = kind
        lanes.append(lane)
        if stopped:
            fate.append("not_executed")
        elif definition is None or name in HIDDEN:
            fate.append("tool_not_available")
        elif denied and DANGEROUS in definition.tags:
            fate.append("denied")
        else:
            fate.append("execution_failed" if at in failing else None)
        to_stop = to_stop or (writes and fate[-1] is not None)
    return fate, lanes


turns = st.lists(st.sampled_from(NAMES), min_size=1, max_size=12)
failures = st.sets(st.integers(0, 11), max_size=4)


@pytest.mark.property
@given(names=turns, failing=failures, order=st.lists(st.integers(0, 3), max_size=5), denied=st.booleans())
def test_every_turn_is_executed_as_the_reference_says(names, failing, order, denied):
    """tool-registry: consecutive readonly calls in parallel, a write is a boundary; a failed or denied write stops the rest."""

    async def approve(request):
        return Decision.DENY if denied else Decision.ALLOW_ONCE

    async def story():
        turn = Turn(names, failing, order, approve=approve)
        assert await turn.execute() == ()
        return turn

    turn = asyncio.run(story())

    fate, lanes = reference(names, failing, denied)
    assert turn.errors() == {str(at): each for at, each in enumerate(fate)}
    executed = [int(call_id) for call_id in turn.runner.log]
    assert sorted(executed) == [at for at, each in enumerate(fate) if each in {None, "execution_failed"}]
    assert [lanes[at] for at in executed] == sorted(lanes[at] for at in executed)
    assert all(lanes[int(one)] == lanes[int(other)] for one, other in turn.runner.beside)
    assert all(each.content in {None, call_id} for call_id, each in turn.conversation.results.items())


@pytest.mark.parametrize("name", ["read", "list_workers", "fork_agent"])
async def test_calls_of_a_group_run_beside_each_other(name):
    turn = Turn([name] * 3, order=[2])

    await turn.execute()

    assert turn.runner.beside == {(one, other) for one in "012" for other in "012" if one != other}


async def test_all_agent_tools_of_a_group_are_waited_for_though_one_fails():
    """tool-registry: parallel agent tools wait for all; one that fails cancels none of the others."""
    turn = Turn(["fork_agent", "fork_agent", "list_workers", "write"], failing=[0], order=[0, 3, 3])

    await turn.execute()

    assert turn.errors() == {"0": "execution_failed", "1": None, "2": None, "3": "not_executed"}


async def test_a_turn_stops_where_an_approval_is_needed_and_goes_on_from_there():
    turn = Turn(["read", "peek", "read", "write", "read"])

    [request] = await turn.execute()

    assert request.call_id == "1"
    assert turn.errors() == {"0": None, "2": None}
    assert turn.runner.log == ["0", "2"]


async def test_a_group_asks_for_all_its_approvals_at_once():
    turn = Turn(["peek", "read", "peek"])

    assert [request.call_id for request in await turn.execute()] == ["0", "2"]


async def test_where_nobody_can_be_asked_the_answer_is_no():
    """tool-registry: without a callback a call that would ask is denied."""
    turn = Turn(["risk", "write"], policy=PermissionPolicy(approver=Approver.NOBODY))

    assert await turn.execute() == ()
    assert turn.errors() == {"0": "denied", "1": "not_executed"}
    assert "no approver is configured" in turn.conversation.results["0"].error.message


async def test_a_write_that_is_hidden_from_the_run_stops_the_turn_as_a_denied_one_does():
    turn = Turn(["read", "secret_write", "read"])

    await turn.execute()

    assert turn.errors() == {"0": None, "1": "tool_not_available", "2": "not_executed"}
    assert turn.runner.log == ["0"]


async def test_an_approver_that_fails_denies():
    """tool-registry: an exception of the permission callback is a denial."""

    async def approve(request):
        raise RuntimeError("the screen is gone")

    turn = Turn(["peek", "read"], approve=approve)

    await turn.execute()

    assert turn.errors() == {"0": "denied", "1": None}
    assert "the approver failed: RuntimeError" in turn.conversation.results["0"].error.message
    assert turn.conversation.decided["0"].decision is Decision.DENY


async def test_an_approver_that_is_late_denies():
    """tool-registry: a timeout of the permission callback is a denial."""
    waiting = asyncio.Event()

    async def approve(request):
        waiting.set()
        await asyncio.Event().wait()

    turn = Turn(["peek"], approve=approve, policy=PermissionPolicy(expires=30))
    executing = asyncio.create_task(turn.execute())
    await waiting.wait()
    await turn.dispatch.gate.clock.advance(31)
    await executing

    assert "did not answer in time" in turn.conversation.results["0"].error.message


async def test_allowing_for_the_session_is_for_the_tool_and_its_target():
    """tool-registry: allow_for_session is recorded by canonical name and normalised target."""
    asked = []

    async def approve(request):
        asked.append(request.target)
        return ApprovalDecision(Decision.ALLOW_FOR_SESSION)

    turn = Turn(["risk", "risk", "peek"], approve=approve)

    await turn.execute()

    assert asked == ["{}", "{}"]
    assert turn.errors() == {"0": None, "1": None, "2": None}


async def test_a_denial_is_for_that_call_only():
    """tool-registry: deny leaves no memory behind."""
    answers = [Decision.DENY, Decision.ALLOW_ONCE]

    async def approve(request):
        return answers.pop(0)

    turn = Turn(["peek", "write", "peek"], approve=approve)

    await turn.execute()

    assert turn.errors() == {"0": "denied", "1": None, "2": None}


async def test_calls_that_are_aborted_say_so_and_those_that_ended_keep_their_results():
    """tool-registry: aborted calls have an error result with the metadata aborted and abort_reason."""
    turn = Turn(["read", "read", "act", "read"], order=[0, 9, 9])
    executing = asyncio.create_task(turn.execute())
    while "0" not in turn.conversation.results:
        await asyncio.sleep(0)
    executing.cancel()
    await asyncio.wait({executing})

    turn.dispatch.close("the run was cancelled")
    turn.journal.abandon()

    results = turn.conversation.results
    assert results["0"].content == "0"
    assert results["1"].metadata == {"aborted": True, "abort_reason": "the run was cancelled"}
    assert turn.errors() == {"0": None, "1": "uncertain", "2": "not_executed", "3": "not_executed"}


async def test_a_run_makes_no_more_schedules_than_its_limit_in_one_turn_either():
    turn = Turn(["schedule_once"] * 25)

    await turn.execute()

    errors = turn.errors()
    assert [errors[call.call_id] for call in turn.calls] == [None] * 20 + ["limit_reached"] * 5
    assert len(turn.runner.log) == 20
