"""BuiltInTools: the seven tools behind one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import RECALL, REMEMBER, ToolDefinition, ToolError, ToolResult
from owlclaw_ray.errors import (
    OwlClawError,
    RetryableError,
    ToolArgumentsError,
    ToolExecutionError,
    ToolTimeoutError,
    UserError,
)
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.memory import MemoryStore
from owlclaw_ray.ports.schedules import Schedules
from owlclaw_ray.ports.states import States
from owlclaw_ray.ports.tools import ToolInvocation, ToolOutcome
from owlclaw_ray.tools.arguments import decode_arguments
from owlclaw_ray.tools.builtin import arguments as models
from owlclaw_ray.tools.builtin.contract import Answer, AnyOperation, Caller, LimitReachedError, Operation
from owlclaw_ray.tools.builtin.declarations import (
    CANCEL_SCHEDULE,
    DECLARATIONS,
    LOG_DECISION,
    QUERY_STATE,
    SCHEDULE_CRON,
    SCHEDULE_ONCE,
)
from owlclaw_ray.tools.builtin.memory import MemoryTools
from owlclaw_ray.tools.builtin.observing import ObservingTools
from owlclaw_ray.tools.builtin.scheduling import SchedulingTools


class UnknownBuiltInToolError(UserError, ValueError):
    """There is no built-in tool of that name."""


class BuiltInTools:
    """Runs built-in tools. Implements ToolAdapter. Synchronous and stateless: a worker makes one and keeps it.

    Everything that a call makes has an id derived from the call's idempotency key, so a repeated call makes nothing new.
    Deadlines are the caller's business; a TimeoutError or ToolTimeoutError that strikes inside a call becomes its outcome.
    """

    source: ClassVar[str] = "the built-in tools"
    own_errors: ClassVar[frozenset[str]] = frozenset({"tool_not_available", "limit_reached"})

    def __init__(
        self,
        *,
        schedules: Schedules,
        memory: MemoryStore,
        states: States,
        clock: Clock,
        raise_errors: bool = False,
    ) -> None:
        scheduling = SchedulingTools(schedules, clock)
        remembering = MemoryTools(memory, clock)
        observing = ObservingTools(states, clock)
        self._clock = clock
        self._raise_errors = raise_errors
        self._operations: Mapping[str, AnyOperation] = {
            SCHEDULE_ONCE: Operation(models.ScheduleOnce, scheduling.schedule_once),
            SCHEDULE_CRON: Operation(models.ScheduleCron, scheduling.schedule_cron),
            CANCEL_SCHEDULE: Operation(models.CancelSchedule, scheduling.cancel_schedule),
            REMEMBER: Operation(models.Remember, remembering.remember),
            RECALL: Operation(models.Recall, remembering.recall),
            QUERY_STATE: Operation(models.QueryState, observing.query_state),
            LOG_DECISION: Operation(models.LogDecision, observing.log_decision),
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
        """Run a tool outside the runtime and return its content; nothing is written to the ledger.

        A failure returns `{"error": {type, message, retryable, details}}`, or, with `raise_errors`, raises ValueError
        (wrong arguments, no such tool), ToolTimeoutError or ToolExecutionError.
        """
        try:
            return self._answer(tool_name, arguments, context).content
        except Exception as error:
            if not self._raise_errors:
                told = _as_tool_error(tool_name, error)
                return {
                    "error": {
                        "type": told.type,
                        "message": told.message,
                        "retryable": told.retryable,
                        "details": told.details,
                    }
                }
            if isinstance(error, ValueError | ToolExecutionError) and isinstance(error, UserError | ToolExecutionError):
                raise
            kind = ToolTimeoutError if isinstance(error, TimeoutError) else ToolExecutionError
            raise kind(_as_tool_error(tool_name, error).message) from error

    def _answer(self, tool: str, arguments: JsonObject, caller: Caller) -> Answer:
        operation = self._operations.get(tool)
        if operation is None:
            raise UnknownBuiltInToolError(
                f"there is no built-in tool {tool!r}; there are {', '.join(self._operations)}"
            )
        return operation(tool, arguments, caller)


def _as_tool_error(tool: str, error: Exception) -> ToolError:
    match error:
        case ToolArgumentsError():
            return ToolError("invalid_arguments", str(error), details=list(error.details))
        case UnknownBuiltInToolError():
            return ToolError("tool_not_available", str(error))
        case LimitReachedError():
            return ToolError("limit_reached", str(error))
        case ToolTimeoutError() | TimeoutError():
            return ToolError("timeout", str(error) or f"{tool} did not finish in time", retryable=True)
        case OwlClawError():
            return ToolError("execution_failed", f"{tool} failed: {error}", retryable=isinstance(error, RetryableError))
        case _:
            return ToolError("execution_failed", f"{tool} failed: {type(error).__name__}: {error}")
