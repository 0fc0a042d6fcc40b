"""The inside of a tool worker: a call becomes a result, whatever its handler does."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import ToolDefinition, ToolError, ToolResult
from owlclaw_ray.errors import RetryableError, ToolArgumentsError, ToolTimeoutError
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.tools import ToolInvocation, ToolOutcome
from owlclaw_ray.tools.arguments import decode_arguments
from owlclaw_ray.tools.context import ToolContext
from owlclaw_ray.tools.deadline import DeadlineReachedError, call_within, run_within
from owlclaw_ray.tools.json_result import NotJsonError, to_json, within_limit
from owlclaw_ray.tools.registry import RegisteredTool, ToolRegistry

_MESSAGE_CHARACTERS = 2_000
_logger = logging.getLogger(__name__)


class BuiltIns(Protocol):
    """The built-in tools, as the executor calls them."""

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the definitions of the seven."""
        ...

    def call(self, tool: str, arguments: JsonObject, invocation: ToolInvocation) -> ToolOutcome:
        """Validate the arguments and execute the tool; raises ToolArgumentsError and whatever stops the tool."""
        ...


class LocalExecutor:
    """Executes calls in this process. Implements ToolExecutor.

    In the process's main thread a call that passes its deadline is interrupted; in any other thread it is left behind in a
    thread of its own. What a handler raises, SystemExit included, becomes an error result: its type and message go to the
    model, its trace to the log. KeyboardInterrupt passes: it is how a worker is told to stop.
    """

    def __init__(self, registry: ToolRegistry, built_ins: BuiltIns, clock: Clock) -> None:
        self._registry = registry
        self._built_ins = built_ins
        self._built_in_names = frozenset(each.name for each in built_ins.definitions())
        self._clock = clock

    def run_all(self, invocations: Sequence[ToolInvocation]) -> list[ToolOutcome]:
        """Return one outcome a call, in order. Never raises for what a tool does."""
        return [self.run_one(invocation) for invocation in invocations]

    def run_one(self, invocation: ToolInvocation) -> ToolOutcome:
        """Return the outcome of one call."""
        started = self._clock.monotonic()
        outcome = self._contained(invocation)
        return replace(outcome, duration_ms=round((self._clock.monotonic() - started) * 1000))

    def _contained(self, invocation: ToolInvocation) -> ToolOutcome:
        try:
            return self._execute(invocation)
        except ToolArgumentsError as error:
            return _failed(invocation, "invalid_arguments", str(error), details=list(error.details))
        except (DeadlineReachedError, ToolTimeoutError) as error:
            return _failed(invocation, "timeout", str(error) or _timeout_message(invocation), retryable=True)
        except NotJsonError as error:
            _logger.exception("%s returned what is not JSON (run %s)", invocation.tool, invocation.run_id)
            return _failed(
                invocation, "execution_failed", f"{invocation.tool} ran, but its result cannot be passed on: {error}"
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _logger.exception("%s failed (run %s, call %s)", invocation.tool, invocation.run_id, invocation.call_id)
            retryable = isinstance(error, RetryableError | ConnectionError | TimeoutError)
            return _failed(invocation, "execution_failed", _told(error), retryable=retryable)

    def _execute(self, invocation: ToolInvocation) -> ToolOutcome:
        if invocation.tool in self._built_in_names:
            arguments = decode_arguments(invocation.tool, invocation.arguments)
            outcome: ToolOutcome = call_within(
                invocation.timeout, lambda: self._built_ins.call(invocation.tool, arguments, invocation)
            )
            return replace(outcome, result=_result(invocation, outcome.result))
        tool = self._registry.tool(invocation.tool)
        if tool is None:
            message = f"this worker's application has no tool {invocation.tool!r}"
            return _failed(invocation, "tool_not_available", message)
        return ToolOutcome(_result(invocation, _call(tool, invocation)), duration_ms=0)


def _call(tool: RegisteredTool, invocation: ToolInvocation) -> Any:
    context = ToolContext.of(invocation)

    def start() -> Any:
        return tool.call(tool.arguments.read(tool.definition.name, invocation.arguments), context)

    if tool.is_async:
        return run_within(invocation.timeout, start)
    return call_within(invocation.timeout, start)


def _result(invocation: ToolInvocation, returned: Any) -> ToolResult:
    """Return what a handler returned as the result of this call, as JSON and within the limit."""
    given = returned if isinstance(returned, ToolResult) else ToolResult(invocation.call_id, content=returned)
    content, cut = within_limit(to_json(given.content))
    return replace(given, call_id=invocation.call_id, content=content, metadata={**to_json(given.metadata), **cut})


def _failed(
    invocation: ToolInvocation, type_: str, message: str, *, retryable: bool = False, details: list[str] | None = None
) -> ToolOutcome:
    if len(message) > _MESSAGE_CHARACTERS:
        message = f"{message[:_MESSAGE_CHARACTERS]}…"
    error = ToolError(type_, message, retryable=retryable, details=details)
    return ToolOutcome(ToolResult(invocation.call_id, error=error), duration_ms=0)


def _timeout_message(invocation: ToolInvocation) -> str:
    return (
        f"{invocation.tool} did not finish within {invocation.timeout:g} s and was stopped; it may have done a part of its work. "
        "Ask for less, check what it did, or go on without it."
    )


def _told(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"SystemExit: the tool tried to end the process with code {error.code!r}"
    try:
        text = str(error).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 (an exception that cannot be told still has a type)
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
