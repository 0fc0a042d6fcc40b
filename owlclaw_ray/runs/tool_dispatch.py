"""The order in which a turn's tool calls execute (T6), and what is said of each in journal and ledger.

Consecutive readonly calls run in parallel, and so do consecutive calls of agent tools. A write call is a barrier: it runs alone, in
the model's order. When a call that writes fails or is denied, what comes after its group in the turn is not executed; a readonly
one stops nothing. Every call gets exactly one result, paired by its id. A call that needs an approval, or that started a run
of another agent, stops the turn where it stands: the run waits, and `execute` goes on from there when everything is decided,
or every started run is over. Then a call that started one is made again, and gets what came of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.lineage import child_run_id
from owlclaw_ray.domain.run import Run, Usage
from owlclaw_ray.domain.skill import LOAD_SKILL
from owlclaw_ray.domain.tool import (
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
from owlclaw_ray.runs.child_run_started import ChildRunStarted
from owlclaw_ray.runs.conversation import NOT_EXECUTED
from owlclaw_ray.runs.run_journal import RunJournal
from owlclaw_ray.runs.running_calls import RunningCalls
from owlclaw_ray.runs.turn_order import CallLane, groups, lane_of

_AGENT_TOOL_ATTEMPTS = 5
"""Of agent tools that nothing is configured for: what fails there is the way to the store, and they may be repeated."""
_SCHEDULING = frozenset({"schedule_once", "schedule_cron"})

Answer: TypeAlias = ToolResult | ApprovalRequest | ChildRunStarted


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
    """Has the rules be those of the present definition, after somebody in this process was asked."""

    async def execute(self, calls: Sequence[ToolCall]) -> tuple[ApprovalRequest | ChildRunStarted, ...]:
        """Execute those of a turn's calls that have no result yet, and record every result.

        Return what has to be approved, or to be over, before the turn can go on: then the calls of that group that need
        nothing are done, and those after the group are not begun.

        Durable when this returns if any of them has the effect `once`; else with the run's next commit. Calls that were
        begun before a crash are not begun again if their effect is `once`: they become `uncertain`. If this does not
        return, none of the calls goes on.
        """
        stopped_by = ""
        for group in groups(calls, self._lane):
            if stopped_by:
                self.refuse_all(group, f"{stopped_by} failed before it, in the same turn")
                continue
            answers = await self._together(group)
            needed = tuple(answer for answer in answers if not isinstance(answer, ToolResult))
            if needed:
                return needed
            stopped_by = self._failed_write(group)
        if any(self._effect(call) is Effect.ONCE for call in calls):
            await self.journal.commit()
        return ()

    def refuse_all(self, calls: Sequence[ToolCall], message: str) -> None:
        """Record that those of these calls that have no result are not executed: uncertain, where they were begun before."""
        for call in calls:
            if self._interrupted(call):
                self._uncertain(call)
            elif call.call_id not in self.journal.conversation.results:
                self._refuse(call, NOT_EXECUTED, message)

    def close(self, why: str) -> Sequence[RunId]:
        """Record what became of the calls that have no result at the end of their run, which ends because of `why`.

        Return the runs that these calls may have started: they have nobody to report to any more.
        """
        for call in self.journal.conversation.unanswered():
            known = self._may_have_begun(call)
            if known and self._started_by(call) is not None:
                self._abort(call, "cancelled", f"what it started was cancelled: {why}", why)
            elif not known:
                self._refuse(call, NOT_EXECUTED, why)
            elif self._effect(call) is Effect.PURE:
                self._abort(call, "cancelled", f"it was stopped: {why}", why)
            else:
                self._abort(call, "uncertain", f"it may or may not have acted: it was stopped, because {why}", why)
        return self.drain_abandoned()

    def _may_have_begun(self, call: ToolCall) -> bool:
        conversation, call_id = self.journal.conversation, call.call_id
        return call_id in conversation.started | conversation.interrupted | conversation.awaited.keys() | self.begun

    def _started_by(self, call: ToolCall) -> RunId | None:
        """Return the run that the call starts once it is begun, if it does."""
        awaited = self.journal.conversation.awaited.get(call.call_id)
        if awaited is not None:
            return awaited.run_id
        return child_run_id(self._idempotency_key(call)) if self._canonical(call) in STARTING else None

    def _abort(self, call: ToolCall, type_: str, message: str, why: str) -> None:
        metadata = {"aborted": True, "abort_reason": why}
        result = ToolResult(call.call_id, error=ToolError(type_, message), metadata=metadata)
        self._finish(call, self._canonical(call), ToolOutcome(result, duration_ms=0))
        self._ended(call)

    def _ended(self, call: ToolCall) -> None:
        tool = self.visible.by_wire_name.get(call.name)
        if tool is not None:
            self.rules.budgets.after_call(tool, call.call_id)

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
        recorded = self.journal.conversation.results.get(call.call_id)
        if recorded is not None:
            return recorded
        if self._interrupted(call):
            return self._uncertain(call)
        tool = self.visible.by_wire_name.get(call.name)
        if tool is None:
            return self._refuse(call, "tool_not_available", self.visible.unknown(call.name))
        awaited = self.journal.conversation.awaited.get(call.call_id)
        if awaited is not None:
            return await self._fetch(call, tool, awaited)
        return await self._make(call, tool)

    def _interrupted(self, call: ToolCall) -> bool:
        """Return whether the call was begun as one that must not be repeated, whatever has become of its tool since."""
        conversation, call_id = self.journal.conversation, call.call_id
        over = call_id in conversation.results or call_id in conversation.awaited
        return call_id in conversation.started and not over

    def _uncertain(self, call: ToolCall) -> ToolResult:
        message = (
            f"{self._canonical(call)} was interrupted: it may or may not have acted. It was not repeated. "
            "Check what happened before you call it again."
        )
        result = self._refuse(call, "uncertain", message)
        self._ended(call)
        return result

    async def _make(self, call: ToolCall, tool: ToolDefinition) -> Answer:
        limit = self._limit_reached(call, tool)
        if limit:
            return self._refuse(call, "limit_reached", limit)
        match self.gate.clear(call, tool):
            case CallNeedsCheck(reason):
                forbidden = self._forbidden(call, tool)
                if forbidden is not None:
                    return self._end(call, ToolResult(call.call_id, error=forbidden))
                return await self._check(call, tool, reason)
            case clearance:
                return await self._pass(call, tool, clearance)

    async def _fetch(self, call: ToolCall, tool: ToolDefinition, awaited: ChildRunStarted) -> Answer:
        """Make a call again that started a run: it was permitted, and admitted, and passed its hooks."""
        self.admitted.add(call.call_id)
        arguments = call.arguments if awaited.executed is None else awaited.executed
        return await self._run(call, tool, CallAllowed(arguments, Stage.APPROVED, awaited.hooks))

    async def _check(self, call: ToolCall, tool: ToolDefinition, reason: str) -> Answer:
        """Look at what a call would do, its hooks included, before anybody is asked about it."""
        invocation = self._invocation(call, tool, CallAllowed(call.arguments, Stage.CHECK))
        outcome = await contained(self.tools.run(replace(invocation, effect=Effect.PURE)))
        if outcome.checked is None:
            return self._finish(call, tool.name, outcome)
        return await self._ask(call, tool, outcome, outcome.checked, reason)

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
        match clearance:
            case CallAllowed():
                return await self._run(call, tool, clearance)
            case CallDenied():
                self._withdraw(call)
                return self._finish(call, tool.name, refusal(call, clearance))
            case ApprovalRequest():
                self._withdraw(call)
                return clearance

    def _withdraw(self, call: ToolCall) -> None:
        """Have an admitted call hold nothing of budgets that is not made now: who decides about it may take a day."""
        if call.call_id in self.admitted:
            self.admitted.discard(call.call_id)
            self.rules.budgets.give_back(call.call_id)

    async def _run(self, call: ToolCall, tool: ToolDefinition, cleared: CallAllowed) -> Answer:
        refused = await self._refused(call, tool)
        if refused is not None:
            return self._end(call, ToolResult(call.call_id, error=refused))
        self.admitted.add(call.call_id)
        if tool.effect is Effect.ONCE:
            self.journal.record(EntryKind.TOOL_STARTED, {"call_id": call.call_id, "tool": tool.name})
            await self.journal.commit()
        self.begun.add(call.call_id)
        invocation = self._invocation(call, tool, cleared)
        if tool.name == RECALL:
            why = self.rules.budgets.before_embedding(call.call_id, invocation.arguments, *self._used())
            invocation = replace(invocation, no_embedding=why)
        with self.running.running(invocation):
            outcome = await self._attempt(invocation)
        if outcome.checked is not None and cleared.stage is Stage.RUN:
            self.begun.discard(call.call_id)
            return await self._ask(call, tool, outcome, outcome.checked, outcome.checked.reason)
        if cleared.stage.approved:
            executed = None if cleared.arguments == call.arguments else cleared.arguments
            outcome = replace(outcome, hooks=(*cleared.hooks, *outcome.hooks), arguments=executed)
        if outcome.started is not None:
            return ChildRunStarted(call.call_id, outcome.started, outcome.arguments, outcome.hooks)
        self._finish(call, tool.name, outcome)
        if tool.name == RECALL:
            self.rules.budgets.after_embedding(call.call_id, outcome.usage, len(outcome.embeddings), *self._used())
        self.rules.budgets.after_call(tool, call.call_id)
        return outcome.result

    async def _refused(self, call: ToolCall, tool: ToolDefinition) -> ToolError | None:
        """Return why the rules, as they are now, keep the call from being executed; one that only fetches what it started is not asked."""
        awaited = call.call_id in self.journal.conversation.awaited
        forbidden = None if awaited else self._forbidden(call, tool)
        if forbidden is not None:
            self._withdraw(call)
            return forbidden
        return None if call.call_id in self.admitted else await self.rules.admit(tool, call.call_id)

    def _forbidden(self, call: ToolCall, tool: ToolDefinition) -> ToolError | None:
        """Return which rule forbids the call by now: then it is uncertain what came of it, if it may have been begun before a crash."""
        forbidden = self.rules.forbids(tool)
        if forbidden is None or call.call_id not in self.journal.conversation.interrupted or tool.effect is Effect.PURE:
            return forbidden
        self._ended(call)
        message = f"{tool.name} was interrupted: it may or may not have acted. It was not repeated: {forbidden.message}"
        return replace(forbidden, type="uncertain", message=message)

    def _used(self) -> tuple[Usage, int]:
        """Return what the run used of models so far, in how many calls."""
        return self.journal.conversation.usage, self.journal.conversation.model_calls

    async def _attempt(self, invocation: ToolInvocation) -> ToolOutcome:
        """Execute the call, again while its error may pass, it may be repeated, and the definition allows it (T8).

        The key of all attempts is the same. The waits are spread by the call's id.
        """
        policy = RetryPolicy(self._attempts(invocation))
        attempt = 1
        while True:
            outcome = await contained(self.tools.run(invocation))
            error = outcome.result.error
            settled = error is None or not error.retryable or error.type == CHILD_FAILED
            if settled or attempt == policy.attempts:
                return _counted(outcome, attempt)
            await self.clock.sleep(policy.delay(attempt, crc32(invocation.idempotency_key.encode()) / 2**32))
            attempt += 1

    def _attempts(self, invocation: ToolInvocation) -> int:
        if invocation.effect is Effect.ONCE:
            return 1
        limit = self.rules.limit_of(invocation.tool)
        if limit is not None:
            return limit.attempts
        return _AGENT_TOOL_ATTEMPTS if invocation.tool in AGENT_TOOLS else 1

    def drain_abandoned(self) -> Sequence[RunId]:
        """Return the runs that calls started, or may have, though they failed: nobody will hear of what comes of these."""
        taken = tuple(self.abandoned)
        self.abandoned.clear()
        return taken

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
        )

    def _idempotency_key(self, call: ToolCall) -> str:
        return derived_id("call", self.run.run_id, call.call_id)

    def _refuse(self, call: ToolCall, type_: str, message: str) -> ToolResult:
        return self._end(call, ToolResult(call.call_id, error=ToolError(type_, message)))

    def _end(self, call: ToolCall, result: ToolResult) -> ToolResult:
        return self._finish(call, self._canonical(call), ToolOutcome(result, duration_ms=0))

    def _finish(self, call: ToolCall, tool: str, outcome: ToolOutcome) -> ToolResult:
        data = tool_finished(call, tool, outcome)
        self.journal.record(EntryKind.TOOL_FINISHED, data)
        self.journal.audit(LedgerKind.TOOL_CALL, call.call_id, data)
        self.journal.audit_all(outcome.records)
        error, started = outcome.result.error, self._started_by(call)
        if started and error is not None and error.type != CHILD_FAILED and self._may_have_begun(call):
            self.abandoned.append(started)
        return outcome.result

    def _limit_reached(self, call: ToolCall, tool: ToolDefinition) -> str:
        """Return which limit of its run keeps the call from being made; empty if none does."""
        limits = self.limits
        if tool.name in _SCHEDULING and not self._is_within_limit(call, _SCHEDULING, limits.schedules_per_run):
            return f"a run may make {counted(limits.schedules_per_run, 'schedule')}, and this one has"
        if tool.name in STARTING and not self._is_within_limit(call, STARTING, limits.children_per_run):
            return f"a run may start {counted(limits.children_per_run, 'other')}, and this one has"
        return ""

    def _is_within_limit(self, call: ToolCall, tools: frozenset[str], limit: int) -> bool:
        """Return whether the call is among the first of its run to these tools, in the model's order: whatever runs beside it."""
        conversation = self.journal.conversation
        before = sum(
            outcome.tool in tools and outcome.error != NOT_EXECUTED
            for outcome in conversation.outcomes
            if outcome.call_id not in conversation.calls
        )
        of_turn = [each for each in conversation.calls.values() if self._canonical(each) in tools]
        return before + of_turn.index(call) < limit

    def _canonical(self, call: ToolCall) -> str:
        tool = self.visible.by_wire_name.get(call.name)
        return tool.name if tool else shortened(call.name)

    def _lane(self, call: ToolCall) -> CallLane:
        return lane_of(self._known(call))

    def _known(self, call: ToolCall) -> ToolDefinition | None:
        """Return the tool that the call names, be it one that the run may not call."""
        return self.visible.by_wire_name.get(call.name) or self.visible.others.get(call.name)

    def _failed_write(self, calls: Sequence[ToolCall]) -> str:
        """Return the tool of the first of these calls that writes, or may have written, and failed; empty if there is none."""
        for call in calls:
            tool = self._known(call)
            gone = tool is None and call.call_id in self.journal.conversation.started
            writes = gone or (tool is not None and tool.permission is Permission.WRITE)
            if writes and self.journal.conversation.results[call.call_id].is_error:
                return self._canonical(call)
        return ""

    def _effect(self, call: ToolCall) -> Effect:
        if call.call_id in self.journal.conversation.started:
            return Effect.ONCE
        tool = self.visible.by_wire_name.get(call.name)
        return tool.effect if tool else Effect.PURE


def _counted(outcome: ToolOutcome, attempts: int) -> ToolOutcome:
    """Return the outcome with the number of its attempts, if it took more than one."""
    if attempts == 1:
        return outcome
    result = replace(outcome.result, metadata={**outcome.result.metadata, "attempts": attempts})
    return replace(outcome, result=result)
