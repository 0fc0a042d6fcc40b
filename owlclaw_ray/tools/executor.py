"""The inside of a tool worker: a call becomes a result, whatever its handler does."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.tool import ToolError, ToolResult
from owlclaw_ray.errors import RetryableError, ToolArgumentsError, ToolTimeoutError
from owlclaw_ray.ports.artifacts import ArtifactStore
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.tools import ToolInvocation, ToolOutcome
from owlclaw_ray.tools.adapter import ToolAdapter
from owlclaw_ray.tools.deadline import DeadlineReachedError, call_within, run_within
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.json_result import NotJsonError, to_json
from owlclaw_ray.tools.large_output import INLINE_BYTES, INLINE_LIMIT, LargeOutput
from owlclaw_ray.tools.sources import ToolSources

_MESSAGE_CHARACTERS = 2_000
_logger = logging.getLogger(__name__)


class LocalExecutor:
    """Executes calls in this process. Implements ToolExecutor.

    In the process's main thread a call that passes its deadline is interrupted; in any other thread it is left behind in a
    thread of its own. What a handler raises, SystemExit included, becomes an error result: its type and message go to the
    model, its trace to the log. KeyboardInterrupt passes: it is how a worker is told to stop.
    """

    def __init__(self, sources: ToolSources, clock: Clock, artifacts: ArtifactStore | None = None) -> None:
        self._sources = sources
        self._clock = clock
        self._large = LargeOutput(artifacts)

    def run_all(self, invocations: Sequence[ToolInvocation]) -> list[ToolOutcome]:
        """Return one outcome a call, in order. Never raises for what a tool does."""
        return [self.run_one(invocation) for invocation in invocations]

    def run_one(self, invocation: ToolInvocation) -> ToolOutcome:
        """Return the outcome of one call."""
        started = self._clock.monotonic()
        outcome = self._contained(invocation)
        outcome = replace(outcome, result=self._large.fitted(invocation, outcome.result, self._limit(invocation)))
        return replace(outcome, duration_ms=round((self._clock.monotonic() - started) * 1000))

    def _limit(self, invocation: ToolInvocation) -> int:
        definition = self._sources.definition(invocation.tool)
        limit: int = definition.metadata.get(INLINE_LIMIT, INLINE_BYTES) if definition else INLINE_BYTES
        return limit

    def _contained(self, invocation: ToolInvocation) -> ToolOutcome:
        try:
            return self._execute(invocation)
        except ToolArgumentsError as error:
            return _failed(invocation, "invalid_arguments", str(error), details=list(error.details))
        except (DeadlineReachedError, ToolTimeoutError) as error:
            return _failed(invocation, "timeout", str(error) or _timeout_message(invocation), retryable=True)
        except ToolFailureError as error:
            return _failed(invocation, error.type, str(error), retryable=error.retryable, details=error.details)
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
        adapter = self._sources.adapter(invocation.tool)
        if adapter is None:
            message = f"this worker's application has no tool {invocation.tool!r}"
            return _failed(invocation, "tool_not_available", message)
        returned = _run(adapter, invocation)
        if isinstance(returned, ToolOutcome):
            return replace(returned, result=_result(invocation, returned.result))
        return ToolOutcome(_result(invocation, returned), duration_ms=0)


def _run(adapter: ToolAdapter, invocation: ToolInvocation) -> Any:
    returned = call_within(invocation.timeout, lambda: adapter.run(invocation))
    if inspect.iscoroutine(returned):
        return run_within(invocation.timeout, lambda: returned)
    return returned


def _result(invocation: ToolInvocation, returned: Any) -> ToolResult:
    """Return what a handler returned as the result of this call, as JSON."""
    given = returned if isinstance(returned, ToolResult) else ToolResult(invocation.call_id, content=returned)
    content, metadata = to_json(given.content), to_json(given.metadata)
    return replace(given, call_id=invocation.call_id, content=content, metadata=metadata)


def _failed(
    invocation: ToolInvocation, type_: str, message: str, *, retryable: bool = False, details: JsonValue = None
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
