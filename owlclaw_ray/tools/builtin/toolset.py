"""BuiltInTools: the seven tools behind one call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import asdict

from owlclaw_ray.domain.entries import tool_finished
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.tool import QUERY_STATE, RECALL, REMEMBER, ToolCall, ToolDefinition, ToolError, ToolResult
from owlclaw_ray.domain.tool_call import ToolInvocation, ToolOutcome
from owlclaw_ray.errors import (
    OwlClawError,
    QuotaReachedError,
    RetryableError,
    ToolArgumentsError,
    ToolExecutionError,
    ToolTimeoutError,
    UserError,
)
from owlclaw_ray.ids import RecordId, ToolCallId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.schedules.api import Schedules
from owlclaw_ray.tools.arguments import decode_arguments
from owlclaw_ray.tools.builtin.arguments import parse
from owlclaw_ray.tools.builtin.contract import (
    BuiltInOutcome,
    Caller,
    ForbiddenError,
    LimitReachedError,
)
from owlclaw_ray.tools.builtin.declarations import (
    CANCEL_SCHEDULE,
    DECLARATIONS,
    LOG_DECISION,
    SCHEDULE_CRON,
    SCHEDULE_ONCE,
)
from owlclaw_ray.tools.builtin.memory import MemoryTools
from owlclaw_ray.tools.builtin.observation import ObservingTools
from owlclaw_ray.tools.builtin.schedules import SchedulingTools
from owlclaw_ray.tools.deadline import DeadlineReachedError, call_within
from owlclaw_ray.tools.states import States

_ARGUMENTS = {each.name: each.arguments for each in DECLARATIONS}


class UnknownBuiltInToolError(UserError, ValueError):
    """There is no built-in tool of that name."""


class BuiltInTools:
    """Runs built-in tools. Implements ToolAdapter. Synchronous and stateless: a worker makes one and keeps it.

    Everything that a call makes has an id derived from the call's idempotency key, so a repeated call makes nothing new.
    Deadlines of `run` and `call` are the host's business; a TimeoutError or ToolTimeoutError that strikes inside a call becomes its
    outcome. Those of `execute`, which has no host, are `timeout_seconds`, and `ledger` gets its records.
    """

    source: ClassVar[str] = "the built-in tools"
    own_errors: ClassVar[frozenset[str]] = frozenset({"tool_not_available", "limit_reached", "denied"})

    def __init__(
        self,
        *,
        schedules: Schedules,
        memory: LanceMemory,
        states: States,
        clock: Clock,
        raise_errors: bool = False,
        timeout_seconds: float = 30.0,
        ledger: Callable[[Sequence[LedgerRecord]], object] | None = None,
    ) -> None:
        self._timeout, self._ledger = timeout_seconds, ledger
        scheduling = SchedulingTools(schedules, clock)
        remembering = MemoryTools(memory, clock)
        observing = ObservingTools(states, clock)
        self._clock = clock
        self._raise_errors = raise_errors
        self._perform: Mapping[str, Callable[[Any, Caller], BuiltInOutcome]] = {
            SCHEDULE_ONCE: scheduling.schedule_once,
            SCHEDULE_CRON: scheduling.schedule_cron,
            CANCEL_SCHEDULE: scheduling.cancel_schedule,
            REMEMBER: remembering.remember,
            RECALL: remembering.recall,
            QUERY_STATE: observing.query_state,
            LOG_DECISION: observing.log_decision,
        }

    @staticmethod
    def definitions() -> tuple[ToolDefinition, ...]:
        """Return the definitions of all seven, in a fixed order."""
        return tuple(declaration.definition() for declaration in DECLARATIONS)

    def run(self, invocation: ToolInvocation) -> ToolOutcome:
        """See ToolAdapter.run."""
        return self.call(invocation.tool, decode_arguments(invocation.tool, invocation.arguments), invocation)

    def call(self, tool: str, arguments: JsonObject, invocation: ToolInvocation) -> ToolOutcome:
        """Validate, run, and return the outcome with the ledger records that the tool makes; a failure is an outcome too.

        The record of the call itself is the host's to make.
        """
        started = self._clock.monotonic()
        try:
            answer = self._answer(tool, arguments, invocation)
            result, records, made = ToolResult(invocation.call_id, answer.content), answer.records, answer.embeddings
        except Exception as error:  # noqa: BLE001 - providers raise anything, and the model is told what
            result, records, made = ToolResult(invocation.call_id, error=_as_tool_error(tool, error)), (), ()
        return ToolOutcome(result, round((self._clock.monotonic() - started) * 1_000), records, made)

    def execute(self, tool_name: str, arguments: JsonObject, context: Caller) -> JsonValue:
        """Run a tool outside the runtime, for `timeout_seconds` at most, and return its content.

        Every call, refused and failed ones too, is a `tool_call` record for the ledger, with what the tool itself records; the same
        idempotency key gives the same records. A failure returns `{"error": {type, message, retryable, details}}`, or, with
        `raise_errors`, raises ValueError (wrong arguments, no such tool), ToolTimeoutError or ToolExecutionError.
        """
        started = self._clock.monotonic()
        call_id = ToolCallId(derived_id("call", context.idempotency_key))
        call = ToolCall(call_id, tool_name, json.dumps(arguments, default=repr, ensure_ascii=False))
        try:
            try:
                answer: BuiltInOutcome = call_within(self._timeout, lambda: self._answer(tool_name, arguments, context))
            except DeadlineReachedError:
                raise ToolTimeoutError(f"{tool_name} did not finish within {self._timeout:g} s") from None
        except Exception as error:
            told = _as_tool_error(tool_name, error)
            self._record(call, context, self._outcome(ToolResult(call_id, error=told), started))
            if not self._raise_errors:
                return {"error": asdict(told)}
            if isinstance(error, ValueError | ToolExecutionError) and isinstance(error, UserError | ToolExecutionError):
                raise
            kind = ToolTimeoutError if isinstance(error, TimeoutError) else ToolExecutionError
            raise kind(told.message) from error
        self._record(call, context, self._outcome(ToolResult(call_id, answer.content), started, answer))
        return answer.content

    def _record(self, call: ToolCall, context: Caller, outcome: ToolOutcome) -> None:
        if self._ledger is None:
            return
        agent, record_id = context.agent, RecordId(derived_id("rec", "execute", context.idempotency_key))
        data, kind, at = tool_finished(call, call.name, outcome), LedgerKind.TOOL_CALL, self._clock.now()
        own = LedgerRecord(record_id, agent.tenant, agent.agent_id, context.run_id, kind, at, data)
        self._ledger((own, *outcome.records))

    def _outcome(self, result: ToolResult, started: float, answer: BuiltInOutcome | None = None) -> ToolOutcome:
        duration_ms = round((self._clock.monotonic() - started) * 1_000)
        return ToolOutcome(result, duration_ms, () if answer is None else answer.records)

    def _answer(self, tool: str, arguments: JsonObject, caller: Caller) -> BuiltInOutcome:
        perform = self._perform.get(tool)
        if perform is None:
            raise UnknownBuiltInToolError(f"there is no built-in tool {tool!r}; there are {', '.join(self._perform)}")
        return perform(parse(tool, _ARGUMENTS[tool], arguments), caller)


def _as_tool_error(tool: str, error: Exception) -> ToolError:
    match error:
        case ForbiddenError():
            return ToolError("denied", str(error))
        case ToolArgumentsError():
            return ToolError("invalid_arguments", str(error), details=list(error.details))
        case UnknownBuiltInToolError():
            return ToolError("tool_not_available", str(error))
        case LimitReachedError() | QuotaReachedError():
            return ToolError("limit_reached", str(error))
        case ToolTimeoutError() | TimeoutError():
            return ToolError("timeout", str(error) or f"{tool} did not finish in time", retryable=True)
        case OwlClawError():
            return ToolError("execution_failed", f"{tool} failed: {error}", retryable=isinstance(error, RetryableError))
        case _:
            return ToolError("execution_failed", f"{tool} failed: {type(error).__name__}: {error}")
