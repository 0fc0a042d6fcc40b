"""The order in which a turn's tool calls execute (T6), and what is said of each in journal and ledger.

Consecutive readonly calls run in parallel, and so do consecutive calls of agent tools. A write call is a barrier: it runs alone, in
the model's order. When a call that writes fails or is denied, what comes after its group in the turn is not executed; a readonly
one stops nothing. Every call gets exactly one result, paired by its id. A call that needs an approval stops the turn where
it stands: the run waits, and `execute` goes on from there when everything is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

from owlclaw_ray.domain.agent import Limits
from owlclaw_ray.domain.approval import ApprovalRequest
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.tool import Effect, Permission, ToolCall, ToolDefinition, ToolError, ToolResult
from owlclaw_ray.engine.catalog import VisibleTools, shortened
from owlclaw_ray.engine.containment import contained
from owlclaw_ray.engine.conversation import NOT_EXECUTED
from owlclaw_ray.engine.entries import tool_finished
from owlclaw_ray.engine.permission import Cleared, PermissionGate, Refused, Unclear, refusal
from owlclaw_ray.engine.retry import RetryPolicy
from owlclaw_ray.engine.run_journal import RunJournal
from owlclaw_ray.engine.turn_order import Lane, groups, lane_of
from owlclaw_ray.ids import ToolCallId, derived_id
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.governing import RunRules
from owlclaw_ray.ports.tools import CheckedCall, Stage, ToolInvocation, ToolOutcome, ToolRunner

_SCHEDULING = frozenset({"schedule_once", "schedule_cron"})


@dataclass(frozen=True, slots=True)
class ToolDispatch:
    """Executes the calls of one run's turns."""

    run: Run
    visible: VisibleTools
    limits: Limits
    tools: ToolRunner
    journal: RunJournal
    rules: RunRules
    clock: Clock
    gate: PermissionGate
    begun: set[ToolCallId] = field(default_factory=set)
    """Calls that were handed to `tools`."""
    admitted: set[ToolCallId] = field(default_factory=set)
    """Calls that the rules admitted; they are not asked twice about one that waits for an approver in this process."""

    async def execute(self, calls: Sequence[ToolCall]) -> tuple[ApprovalRequest, ...]:
        """Execute those of a turn's calls that have no result yet, and record every result.

        Return what has to be approved before the turn can go on: then the calls of that group that need no approval are done,
        and those after the group are not begun.

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
            needed = tuple(answer for answer in answers if isinstance(answer, ApprovalRequest))
            if needed:
                return needed
            stopped_by = self._failed_write(group)
        if any(self._effect(call) is Effect.ONCE for call in calls):
            await self.journal.commit()
        return ()

    def refuse_all(self, calls: Sequence[ToolCall], message: str) -> None:
        """Record that those of these calls that have no result were not executed."""
        for call in calls:
            if call.call_id not in self.journal.conversation.results:
                self._refuse(call, NOT_EXECUTED, message)

    def close(self, why: str) -> None:
        """Record what became of the calls that have no result at the end of their run, which ends because of `why`."""
        conversation = self.journal.conversation
        for call in conversation.unanswered():
            if call.call_id not in conversation.started | conversation.interrupted | self.begun:
                self._refuse(call, NOT_EXECUTED, why)
            elif self._effect(call) is Effect.PURE:
                self._abort(call, "cancelled", f"it was stopped: {why}", why)
            else:
                self._abort(call, "uncertain", f"it may or may not have acted: it was stopped, because {why}", why)

    def _abort(self, call: ToolCall, type_: str, message: str, why: str) -> None:
        metadata = {"aborted": True, "abort_reason": why}
        result = ToolResult(call.call_id, error=ToolError(type_, message), metadata=metadata)
        self._finish(call, self._canonical(call), ToolOutcome(result, duration_ms=0))

    async def _together(self, calls: Sequence[ToolCall]) -> Sequence[ToolResult | ApprovalRequest]:
        if len(calls) == 1:
            return [await self._one(calls[0])]
        tasks = [asyncio.create_task(self._one(call)) for call in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _one(self, call: ToolCall) -> ToolResult | ApprovalRequest:
        recorded = self.journal.conversation.results.get(call.call_id)
        if recorded is not None:
            return recorded
        tool = self.visible.by_wire_name.get(call.name)
        if tool is None:
            return self._refuse(call, "tool_not_available", self.visible.unknown(call.name))
        limit = self.limits.schedules_per_run
        if tool.name in _SCHEDULING and self._schedules_made() >= limit:
            return self._refuse(call, "limit_reached", f"a run may make {limit} schedules, and this one has")
        if tool.effect is Effect.ONCE and call.call_id in self.journal.conversation.started:
            message = (
                f"{tool.name} was interrupted: it may or may not have acted. It was not repeated. "
                "Check what happened before you call it again."
            )
            result = self._refuse(call, "uncertain", message)
            self.rules.ended(tool, call.call_id)
            return result
        match self.gate.clear(call, tool):
            case Unclear(reason):
                return await self._check(call, tool, reason)
            case clearance:
                return await self._pass(call, tool, clearance)

    async def _check(self, call: ToolCall, tool: ToolDefinition, reason: str) -> ToolResult | ApprovalRequest:
        """Look at what a call would do, its hooks included, before anybody is asked about it."""
        invocation = self._invocation(call, tool, Cleared(call.arguments, Stage.CHECK))
        outcome = await contained(self.tools.run(replace(invocation, effect=Effect.PURE)))
        if outcome.checked is None:
            return self._finish(call, tool.name, outcome)
        return await self._ask(call, tool, outcome, outcome.checked, reason)

    async def _ask(
        self, call: ToolCall, tool: ToolDefinition, outcome: ToolOutcome, checked: CheckedCall, reason: str
    ) -> ToolResult | ApprovalRequest:
        return await self._pass(call, tool, await self.gate.ask(call, tool, checked, reason, outcome.hooks))

    async def _pass(
        self, call: ToolCall, tool: ToolDefinition, clearance: Cleared | Refused | ApprovalRequest
    ) -> ToolResult | ApprovalRequest:
        match clearance:
            case Cleared():
                return await self._run(call, tool, clearance)
            case Refused():
                return self._finish(call, tool.name, refusal(call, clearance))
            case ApprovalRequest():
                return clearance

    async def _run(self, call: ToolCall, tool: ToolDefinition, cleared: Cleared) -> ToolResult | ApprovalRequest:
        refused = None if call.call_id in self.admitted else await self.rules.admit(tool, call.call_id)
        if refused is not None:
            return self._end(call, ToolResult(call.call_id, error=refused))
        self.admitted.add(call.call_id)
        if tool.effect is Effect.ONCE:
            self.journal.record(EntryKind.TOOL_STARTED, {"call_id": call.call_id, "tool": tool.name})
            await self.journal.commit()
        self.begun.add(call.call_id)
        outcome = await self._attempt(self._invocation(call, tool, cleared))
        if outcome.checked is not None and cleared.stage is Stage.RUN:
            self.begun.discard(call.call_id)
            return await self._ask(call, tool, outcome, outcome.checked, outcome.checked.reason)
        if cleared.stage is Stage.APPROVED:
            executed = None if cleared.arguments == call.arguments else cleared.arguments
            outcome = replace(outcome, hooks=(*cleared.hooks, *outcome.hooks), arguments=executed)
        self._finish(call, tool.name, outcome)
        self.rules.ended(tool, call.call_id)
        return outcome.result

    async def _attempt(self, invocation: ToolInvocation) -> ToolOutcome:
        """Execute the call, again while its error may pass, it may be repeated, and the definition allows it (T8).

        The key of all attempts is the same. The waits are spread by the call's id.
        """
        limit = self.rules.limit_of(invocation.tool)
        policy = RetryPolicy(limit.attempts if limit is not None and invocation.effect is not Effect.ONCE else 1)
        attempt = 1
        while True:
            outcome = await contained(self.tools.run(invocation))
            error = outcome.result.error
            if error is None or not error.retryable or attempt == policy.attempts:
                return _counted(outcome, attempt)
            await self.clock.sleep(policy.delay(attempt, crc32(invocation.idempotency_key.encode()) / 2**32))
            attempt += 1

    def _invocation(self, call: ToolCall, tool: ToolDefinition, cleared: Cleared) -> ToolInvocation:
        limit = self.rules.limit_of(tool.name)
        own = limit.timeout if limit is not None else None
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
            idempotency_key=derived_id("call", self.run.run_id, call.call_id),
            active_schedules=self.limits.active_schedules,
            stage=cleared.stage,
            approved_target=cleared.target,
        )

    def _refuse(self, call: ToolCall, type_: str, message: str) -> ToolResult:
        return self._end(call, ToolResult(call.call_id, error=ToolError(type_, message)))

    def _end(self, call: ToolCall, result: ToolResult) -> ToolResult:
        return self._finish(call, self._canonical(call), ToolOutcome(result, duration_ms=0))

    def _finish(self, call: ToolCall, tool: str, outcome: ToolOutcome) -> ToolResult:
        data = tool_finished(call, tool, outcome)
        self.journal.record(EntryKind.TOOL_FINISHED, data)
        self.journal.audit(LedgerKind.TOOL_CALL, call.call_id, data)
        self.journal.audit_all(outcome.records)
        return outcome.result

    def _schedules_made(self) -> int:
        return sum(tool in _SCHEDULING for tool in self.journal.conversation.tools_called)

    def _canonical(self, call: ToolCall) -> str:
        tool = self.visible.by_wire_name.get(call.name)
        return tool.name if tool else shortened(call.name)

    def _lane(self, call: ToolCall) -> Lane:
        return lane_of(self.visible.by_wire_name.get(call.name))

    def _failed_write(self, calls: Sequence[ToolCall]) -> str:
        """Return the tool of the first of these calls that writes and failed; empty if there is none."""
        for call in calls:
            tool = self.visible.by_wire_name.get(call.name)
            writes = tool is not None and tool.permission is Permission.WRITE
            if writes and self.journal.conversation.results[call.call_id].is_error:
                return self._canonical(call)
        return ""

    def _effect(self, call: ToolCall) -> Effect:
        tool = self.visible.by_wire_name.get(call.name)
        return tool.effect if tool else Effect.PURE


def _counted(outcome: ToolOutcome, attempts: int) -> ToolOutcome:
    """Return the outcome with the number of its attempts, if it took more than one."""
    if attempts == 1:
        return outcome
    result = replace(outcome.result, metadata={**outcome.result.metadata, "attempts": attempts})
    return replace(outcome, result=result)
