"""The tool calls of a run's turns (T6): in which order they execute, whether each may, and what journal and ledger say of it.

Consecutive readonly calls run in parallel, and so do consecutive calls of agent tools. A write call is a barrier: it runs alone, in
the model's order. When a call that writes fails or is denied, what comes after its group in the turn is not executed; a readonly
one stops nothing. Every call gets exactly one result, paired by its id. A call that needs an approval, or that started a run
of another agent, stops the turn where it stands: the run waits, and `execute` goes on from there when everything is decided,
or every started run is over. Then a call that started one is made again, and gets that run's result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from itertools import groupby
from typing import TypeAlias
from zlib import crc32

from msgspec import Struct, field
from msgspec.structs import replace

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.agent import EVERY_STATE, Limits, StateChoice
from owlclaw_ray.domain.agent_tools import AGENT_TOOLS, CHILD_FAILED, STARTING
from owlclaw_ray.domain.approval import ApprovalRequest
from owlclaw_ray.domain.entries import tool_finished
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.lineage import child_run_id
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.skill import LOAD_SKILL
from owlclaw_ray.domain.tool import (
    AGENT,
    QUERY_STATE,
    RECALL,
    Effect,
    Permission,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolResult,
)
from owlclaw_ray.domain.tool_call import CheckedCall, Stage, ToolInvocation, ToolOutcome, ToolRunner
from owlclaw_ray.domain.tracing import call_span, session_of
from owlclaw_ray.ids import RunId, ToolCallId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.containment import contained
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.policy.governor import GovernedRun
from owlclaw_ray.policy.permission import CallAllowed, CallDenied, CallNeedsCheck, PermissionGate, refusal
from owlclaw_ray.runs.catalog import VisibleTools, shortened
from owlclaw_ray.runs.conversation import NOT_EXECUTED, ChildRunStarted
from owlclaw_ray.runs.run_journal import RunJournal
from owlclaw_ray.runs.running_calls import RunningCalls

_AGENT_TOOL_ATTEMPTS = 5
"""Of agent tools without a configured limit: a failure there is one of the connection to the store, and they may be repeated."""
_SCHEDULING = frozenset({"schedule_once", "schedule_cron"})

Answer: TypeAlias = ToolResult | ApprovalRequest | ChildRunStarted


class CallLane(Enum):
    """What a call may run beside."""

    READING = "reading"
    """Other readonly calls, and calls of tools that do not exist."""
    WRITING = "writing"
    """Nothing: it is a barrier."""
    AGENTS = "agents"
    """Other calls of agent tools, whatever they do: each has an agent of its own. All are waited for."""


def lane_of(tool: ToolDefinition | None) -> CallLane:
    """Return the lane of a tool's calls, which may be refused; None stands for a tool that does not exist."""
    if tool is None:
        return CallLane.READING
    if AGENT in tool.tags:
        return CallLane.AGENTS
    return CallLane.WRITING if tool.permission is Permission.WRITE else CallLane.READING


class ToolDispatch(Struct, frozen=True):
    """Executes the calls of one run's turns."""

    run: Run
    visible: VisibleTools
    limits: Limits
    tools: ToolRunner
    journal: RunJournal
    rules: GovernedRun
    clock: Clock
    gate: PermissionGate
    running: RunningCalls
    begun: set[ToolCallId] = field(default_factory=set)
    """Calls that were handed to `tools`."""
    abandoned: list[RunId] = field(default_factory=list)
    """Runs that calls started, or may have, which then failed."""
    admitted: set[ToolCallId] = field(default_factory=set)
    """Calls that the rules admitted; they are not asked twice about one that waits for an approver in this process."""
    timezone: str = "UTC"
    """The agent's."""
    states: StateChoice = EVERY_STATE
    """Those that the agent may query."""
    renew: Callable[[], Awaitable[None]] | None = None
    """Makes the rules those of the present definition, after an approver in this process was asked."""
    leaving: Callable[[], bool] = bool
    """Whether no further group of calls is to be begun: its calls are left without results."""

    async def execute(self, calls: Sequence[ToolCall]) -> tuple[ApprovalRequest | ChildRunStarted, ...]:
        """Execute those of a turn's calls that have no result yet, and record every result.

        Return what has to be approved, or to be over, before the turn can go on: then the calls of that group that need
        nothing are done, and those after the group are not begun.

        When the run is being left, calls of further groups are not begun, and have no results then.

        Durable when this returns if any of them has the effect `once`; else with the run's next commit. Calls that were
        begun before a crash are not begun again if their effect is `once`: they become `uncertain`. If this does not
        return, none of the calls goes on.
        """
        stopped_by = ""
        for group in self._groups(calls):
            if stopped_by:
                self.refuse_all(group, f"{stopped_by} failed before it, in the same turn")
                continue
            if self.leaving() and any(call.call_id not in self.journal.conversation.results for call in group):
                break
            answers = await self._together(group)
            needed = tuple(answer for answer in answers if not isinstance(answer, ToolResult))
            if needed:
                return needed
            stopped_by = next((self._canonical(call) for call in group if self._is_failed_write(call)), "")
        if any(self._effect(call) is Effect.ONCE for call in calls):
            await self.journal.commit()
        return ()

    def refuse_all(self, calls: Sequence[ToolCall], message: str) -> None:
        """Record that those of these calls that have no result are not executed: uncertain, where they were begun before."""
        for call in calls:
            if self._interrupted(call):
                self._uncertain(call)
            elif call.call_id not in self.journal.conversation.results:
                self._refuse(call, ToolError(NOT_EXECUTED, message))

    def close(self, why: str) -> Sequence[RunId]:
        """Record the end of the calls that have no result when their run ends, which ends because of `why`.

        Return the runs that these calls may have started: the run that would get their results is over.
        """
        for call in self.journal.conversation.unanswered():
            if not self._may_have_begun(call):
                self._refuse(call, ToolError(NOT_EXECUTED, why))
                continue
            if self._started_by(call) is not None:
                error = ToolError("cancelled", f"what it started was cancelled: {why}")
            elif self._effect(call) is Effect.PURE:
                error = ToolError("cancelled", f"it was stopped: {why}")
            else:
                error = ToolError("uncertain", f"it may or may not have acted: it was stopped, because {why}")
            self._refuse(call, error, {"aborted": True, "abort_reason": why})
            self._charge(call)
        return self.drain_abandoned()

    def drain_abandoned(self) -> Sequence[RunId]:
        """Return the runs that calls started, or may have, though they failed: no call will fetch their results."""
        taken = tuple(self.abandoned)
        self.abandoned.clear()
        return taken

    def _groups(self, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
        """Yield consecutive calls that may run beside each other, all in the model's order."""
        for lane, together in groupby(calls, key=lambda call: lane_of(self._known(call))):
            if lane is CallLane.WRITING:
                yield from ([call] for call in together)
            else:
                yield list(together)

    async def _together(self, calls: Sequence[ToolCall]) -> Sequence[Answer]:
        if len(calls) == 1:
            return [await self._one(calls[0])]
        tasks = [asyncio.create_task(self._one(call)) for call in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _one(self, call: ToolCall) -> Answer:
        """Answer a call. May it run? What is asked here is asked once for a call; `_run` asks what may have changed by then."""
        conversation, call_id = self.journal.conversation, call.call_id
        recorded = conversation.results.get(call_id)
        if recorded is not None:
            return recorded
        if self._interrupted(call):
            return self._uncertain(call)
        tool = self.visible.by_wire_name.get(call.name)
        if tool is None:
            return self._refuse(call, ToolError("tool_not_available", self.visible.unknown(call.name)))
        awaited = conversation.awaited.get(call_id)
        if awaited is not None:
            # It started a run: it was permitted, admitted and passed its hooks. It is made again for that run's result.
            self.admitted.add(call_id)
            arguments = call.arguments if awaited.executed is None else awaited.executed
            return await self._run(call, tool, CallAllowed(arguments, Stage.APPROVED, awaited.hooks))
        limit = self._limit_reached(call, tool)
        if limit:
            return self._refuse(call, ToolError("limit_reached", limit))
        clearance = self.gate.clear(call, tool)
        if not isinstance(clearance, CallNeedsCheck):
            return await self._pass(call, tool, clearance)
        forbidden = self._forbidden(call, tool)
        if forbidden is not None:
            return self._refuse(call, forbidden)
        # Its arguments and hooks are checked first: an approver is asked about what the tool would get.
        invocation = self._invocation(call, tool, CallAllowed(call.arguments, Stage.CHECK))
        outcome = await contained(self.tools.run(replace(invocation, effect=Effect.PURE)))
        if outcome.checked is None:
            return self._finish(call, outcome)
        return await self._ask(call, tool, outcome, outcome.checked, clearance.reason)

    async def _ask(
        self, call: ToolCall, tool: ToolDefinition, outcome: ToolOutcome, checked: CheckedCall, reason: str
    ) -> Answer:
        clearance = await self.gate.ask(call, tool, checked, reason, outcome.hooks)
        if self.gate.approve is not None and self.renew is not None:
            await self.renew()
        return await self._pass(call, tool, clearance)

    async def _pass(
        self, call: ToolCall, tool: ToolDefinition, clearance: CallAllowed | CallDenied | ApprovalRequest
    ) -> Answer:
        if isinstance(clearance, CallAllowed):
            return await self._run(call, tool, clearance)
        self._withdraw(call)
        return self._finish(call, refusal(call, clearance)) if isinstance(clearance, CallDenied) else clearance

    async def _run(self, call: ToolCall, tool: ToolDefinition, cleared: CallAllowed) -> Answer:
        call_id, conversation = call.call_id, self.journal.conversation
        # One that only fetches the result of the run that it started is not asked about again.
        refused = None if call_id in conversation.awaited else self._forbidden(call, tool)
        if refused is not None:
            self._withdraw(call)
        elif call_id not in self.admitted:
            refused = await self.rules.admit(tool, call_id)
        if refused is not None:
            return self._refuse(call, refused)
        self.admitted.add(call_id)
        if tool.effect is Effect.ONCE:
            self.journal.record(EntryKind.TOOL_STARTED, {"call_id": call_id, "tool": tool.name})
            await self.journal.commit()
        self.begun.add(call_id)
        invocation, budgets = self._invocation(call, tool, cleared), self.rules.budgets
        if tool.name == RECALL:
            why = budgets.before_embedding(call_id, invocation.arguments, conversation.usage, conversation.model_calls)
            invocation = replace(invocation, no_embedding=why, key_quotas=self.run.key_quotas)
        with self.running.running(invocation):
            outcome = await self._attempt(invocation)
        if outcome.checked is not None and cleared.stage is Stage.RUN:
            # The tool itself wants an approval, and has not acted.
            self.begun.discard(call_id)
            return await self._ask(call, tool, outcome, outcome.checked, outcome.checked.reason)
        if cleared.stage.approved:
            executed = None if cleared.arguments == call.arguments else cleared.arguments
            outcome = replace(outcome, hooks=(*cleared.hooks, *outcome.hooks), arguments=executed)
        if outcome.started is not None:
            return ChildRunStarted(call_id, outcome.started, outcome.arguments, outcome.hooks)
        self._finish(call, outcome)
        if tool.name == RECALL:
            made = len(outcome.embeddings)
            budgets.after_embedding(call_id, outcome.usage, made, conversation.usage, conversation.model_calls)
        budgets.after_call(tool, call_id)
        return outcome.result

    async def _attempt(self, invocation: ToolInvocation) -> ToolOutcome:
        """Execute the call, and again while its error is retryable, it may be repeated, and the definition allows it (T8).

        The key of all attempts is the same. The backoff is spread by the call's id.
        """
        limit = self.rules.limit_of(invocation.tool)
        attempts = _AGENT_TOOL_ATTEMPTS if invocation.tool in AGENT_TOOLS else 1
        if limit is not None:
            attempts = limit.attempts
        policy = RetryPolicy(1 if invocation.effect is Effect.ONCE else attempts)
        attempt = 1
        while True:
            outcome = await contained(self.tools.run(invocation, self.journal.confirm_ownership))
            error = outcome.result.error
            settled = error is None or not error.retryable or error.type == CHILD_FAILED
            if settled or attempt == policy.attempts:
                break
            await self.clock.sleep(policy.delay(attempt, crc32(invocation.idempotency_key.encode()) / 2**32))
            attempt += 1
        if attempt == 1:
            return outcome
        metadata = {**outcome.result.metadata, "attempts": attempt}
        return replace(outcome, result=replace(outcome.result, metadata=metadata))

    def _invocation(self, call: ToolCall, tool: ToolDefinition, cleared: CallAllowed) -> ToolInvocation:
        limit = self.rules.limit_of(tool.name)
        own = limit.timeout if limit is not None else None
        conversation = self.journal.conversation
        return ToolInvocation(
            call_id=call.call_id,
            tool=tool.name,
            arguments=cleared.arguments,
            agent=self.run.agent,
            run_id=self.run.run_id,
            trigger=self.run.trigger.kind,
            effect=tool.effect,
            tool_class=tool.tool_class,
            timeout=own or tool.timeout or self.limits.tool_timeout,
            idempotency_key=self._idempotency_key(call),
            active_schedules=self.limits.active_schedules,
            timezone=self.timezone,
            stage=cleared.stage,
            approved_target=cleared.target,
            lineage=self.run.trigger.lineage,
            deadline=self.run.deadline,
            traceparent=str(call_span(self.run, call.call_id)),
            session=session_of(self.run),
            user=self.run.trigger.user,
            environment=conversation.environment,
            withheld_skills=conversation.withheld_skills if tool.name == LOAD_SKILL else (),
            states=self.states if tool.name == QUERY_STATE else EVERY_STATE,
            submitters=self.run.trigger.all_submitters,
        )

    def _finish(self, call: ToolCall, outcome: ToolOutcome) -> ToolResult:
        """Record the end of a call."""
        data = tool_finished(call, self._canonical(call), outcome)
        self.journal.record(EntryKind.TOOL_FINISHED, data)
        self.journal.audit(LedgerKind.TOOL_CALL, call.call_id, data)
        self.journal.audit_all(outcome.records)
        error, started = outcome.result.error, self._started_by(call)
        if started and error is not None and error.type != CHILD_FAILED and self._may_have_begun(call):
            self.abandoned.append(started)
        return outcome.result

    def _refuse(self, call: ToolCall, error: ToolError, metadata: JsonObject | None = None) -> ToolResult:
        return self._finish(call, ToolOutcome(ToolResult(call.call_id, None, error, metadata or {}), duration_ms=0))

    def _uncertain(self, call: ToolCall) -> ToolResult:
        message = (
            f"{self._canonical(call)} was interrupted: it may or may not have acted. It was not repeated. "
            "Check what happened before you call it again."
        )
        result = self._refuse(call, ToolError("uncertain", message))
        self._charge(call)
        return result

    def _forbidden(self, call: ToolCall, tool: ToolDefinition) -> ToolError | None:
        """Return which rule forbids the call by now: `uncertain`, if it may have been begun before a crash."""
        forbidden = self.rules.forbids(tool)
        if forbidden is None or call.call_id not in self.journal.conversation.interrupted or tool.effect is Effect.PURE:
            return forbidden
        self._charge(call)
        message = f"{tool.name} was interrupted: it may or may not have acted. It was not repeated: {forbidden.message}"
        return replace(forbidden, type="uncertain", message=message)

    def _charge(self, call: ToolCall) -> None:
        """Charge the budgets for a call that was made, or may have been."""
        tool = self.visible.by_wire_name.get(call.name)
        if tool is not None:
            self.rules.budgets.after_call(tool, call.call_id)

    def _withdraw(self, call: ToolCall) -> None:
        """Free what an admitted call reserved of budgets if it is not made now: its approval may take a day."""
        if call.call_id in self.admitted:
            self.admitted.discard(call.call_id)
            self.rules.budgets.give_back(call.call_id)

    def _limit_reached(self, call: ToolCall, tool: ToolDefinition) -> str:
        """Return which limit of its run keeps the call from being made; empty if none does.

        The first calls of the run to these tools are within it, in the model's order, whatever runs beside them.
        """
        conversation, limits = self.journal.conversation, self.limits
        for tools, limit, verb, noun in (
            (_SCHEDULING, limits.schedules_per_run, "make", "schedule"),
            (STARTING, limits.children_per_run, "start", "other"),
        ):
            if tool.name in tools:
                before = sum(
                    outcome.tool in tools and outcome.error != NOT_EXECUTED
                    for outcome in conversation.outcomes
                    if outcome.call_id not in conversation.calls
                )
                of_turn = [each for each in conversation.calls.values() if self._canonical(each) in tools]
                if before + of_turn.index(call) >= limit:
                    return f"a run may {verb} {counted(limit, noun)}, and this one has"
        return ""

    def _is_failed_write(self, call: ToolCall) -> bool:
        """Return whether the call writes, or may have written, and failed."""
        tool, conversation = self._known(call), self.journal.conversation
        writes = call.call_id in conversation.started if tool is None else tool.permission is Permission.WRITE
        return writes and conversation.results[call.call_id].is_error

    def _interrupted(self, call: ToolCall) -> bool:
        """Return whether the call was begun as one that must not be repeated, whatever its tool is by now."""
        conversation, call_id = self.journal.conversation, call.call_id
        over = call_id in conversation.results or call_id in conversation.awaited
        return call_id in conversation.started and not over

    def _may_have_begun(self, call: ToolCall) -> bool:
        conversation, call_id = self.journal.conversation, call.call_id
        return call_id in conversation.started | conversation.interrupted | conversation.awaited.keys() | self.begun

    def _started_by(self, call: ToolCall) -> RunId | None:
        """Return the run that the call starts once it is begun, if it does."""
        awaited = self.journal.conversation.awaited.get(call.call_id)
        if awaited is not None:
            return awaited.run_id
        return child_run_id(self._idempotency_key(call)) if self._canonical(call) in STARTING else None

    def _idempotency_key(self, call: ToolCall) -> str:
        return derived_id("call", self.run.run_id, call.call_id)

    def _canonical(self, call: ToolCall) -> str:
        tool = self.visible.by_wire_name.get(call.name)
        return tool.name if tool else shortened(call.name)

    def _known(self, call: ToolCall) -> ToolDefinition | None:
        """Return the tool that the call names, be it one that the run may not call."""
        return self.visible.by_wire_name.get(call.name) or self.visible.others.get(call.name)

    def _effect(self, call: ToolCall) -> Effect:
        if call.call_id in self.journal.conversation.started:
            return Effect.ONCE
        tool = self.visible.by_wire_name.get(call.name)
        return tool.effect if tool else Effect.PURE
