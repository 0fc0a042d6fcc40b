"""The inside of a tool worker: a call becomes a result, whatever its handler does."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import orjson
from msgspec.structs import replace

from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.tool import ToolDefinition, ToolError, ToolResult
from owlclaw_ray.domain.tool_call import CheckedCall, Stage, ToolInvocation, ToolOutcome
from owlclaw_ray.errors import ApprovalNeededError, NotFoundError, RetryableError, ToolArgumentsError, ToolTimeoutError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.log_context import about
from owlclaw_ray.policy.permission import DENIED
from owlclaw_ray.tools.adapter import CallTarget, ReportsOutcome, TargetsCalls, ToolAdapter, target_of
from owlclaw_ray.tools.arguments import Arguments, as_object, decode_arguments
from owlclaw_ray.tools.artifact_home import ArtifactHome
from owlclaw_ray.tools.deadline import DeadlineReachedError, call_within, run_within
from owlclaw_ray.tools.failure import ToolFailureError, plain_error, short_message
from owlclaw_ray.tools.hooks import HookDeniedError, HookFacts, HookPoint, Hooks, use_of
from owlclaw_ray.tools.json_result import NotJsonError, to_json
from owlclaw_ray.tools.large_output import INLINE_BYTES, INLINE_LIMIT, LargeOutput
from owlclaw_ray.tools.secrets import ToolSecrets
from owlclaw_ray.tools.sources import ToolSources

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


class LocalExecutor:
    """Executes calls in this process, one after another, each within its own deadline.

    In the process's main thread a call that passes its deadline is interrupted; in any other thread it is left behind in a
    thread of its own. What a handler raises, SystemExit included, becomes an error result: its type and message go to the
    model, its trace to the log. KeyboardInterrupt passes: it is how a worker is told to stop.
    """

    def __init__(
        self,
        sources: ToolSources,
        clock: Clock,
        artifacts: ArtifactHome | None = None,
        hooks: Hooks | None = None,
        secrets: ToolSecrets | None = None,
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._large = LargeOutput(artifacts)
        self._hooks = hooks or Hooks()
        self._secrets = secrets or ToolSecrets(_no_secret, clock)

    def run_all(self, invocations: Sequence[ToolInvocation]) -> list[ToolOutcome]:
        """Return one outcome a call, in order. Never raises for what a tool does."""
        return [self.run_one(invocation) for invocation in invocations]

    def run_one(self, invocation: ToolInvocation) -> ToolOutcome:
        """Return the outcome of one call."""
        started = self._clock.monotonic()
        with about(invocation.run_id, invocation.agent.agent_id), self._secrets.given():
            outcome = self._contained(invocation, lambda: self._fitted(invocation, started))
        return replace(outcome, duration_ms=round((self._clock.monotonic() - started) * 1000))

    def _fitted(self, invocation: ToolInvocation, started: float) -> ToolOutcome:
        definition = self._sources.definition(invocation.tool, invocation.agent.tenant)
        if definition is None:
            # It is not called, even if it is there by now: no rule has judged the call.
            error = self._sources.missing(invocation.tool, invocation.agent.tenant)
            outcome = _failed(invocation, error.type, str(error), retryable=error.retryable, details=error.details)
        elif invocation.stage is Stage.RUN and not self._hooks.see(definition):
            outcome = self._contained(invocation, lambda: self._execute(invocation))
        else:
            outcome = self._hooked(invocation, definition, started)
        limit: int = definition.metadata.get(INLINE_LIMIT, INLINE_BYTES) if definition else INLINE_BYTES
        result = self._secrets.redacted(invocation.agent.tenant, outcome.result)
        return replace(outcome, result=self._large.fitted(invocation, result, limit))

    def _hooked(self, invocation: ToolInvocation, definition: ToolDefinition, started: float) -> ToolOutcome:
        facts = HookFacts({"edited": True} if invocation.stage is Stage.EDITED else {})
        left = invocation

        def prepare() -> ToolOutcome:
            nonlocal left
            left = self._before(definition, invocation, started, facts)
            if invocation.stage is not Stage.CHECK:
                return self._execute(left)
            # What a person may be asked about; it raises what the call would raise before it does anything.
            target: CallTarget = call_within(left.timeout, lambda: self._target(definition, left))
            checked = CheckedCall(left.arguments, target.scope, target.cwd)
            return ToolOutcome(ToolResult(left.call_id), 0, checked=checked)

        outcome = self._contained(invocation, prepare)
        error = outcome.result.error
        ran = error is None or error.type not in {DENIED, "invalid_arguments", "tool_not_available"}
        over = outcome.checked is None and outcome.started is None
        if ran and over and self._hooks.of(definition, HookPoint.AFTER):
            use = use_of(definition, decode_arguments(definition.name, left.arguments), invocation)
            time_left = partial(self._time_left, invocation, started)
            result = self._hooks.after(use, definition, outcome.result, time_left, facts)
            outcome = replace(outcome, result=result)
        if left.arguments != invocation.arguments:
            checked = outcome.checked and replace(outcome.checked, arguments=left.arguments)
            outcome = replace(outcome, arguments=left.arguments, checked=checked)
        return replace(outcome, hooks=tuple(facts.told))

    def _before(
        self, definition: ToolDefinition, invocation: ToolInvocation, started: float, facts: HookFacts
    ) -> ToolInvocation:
        """Return the call as the hooks before it left it, with what is left of its time; raises HookDeniedError."""
        if invocation.stage is Stage.APPROVED:
            return invocation
        arguments = decode_arguments(definition.name, invocation.arguments)
        time_left = partial(self._time_left, invocation, started)
        left = self._hooks.before(definition, arguments, invocation, time_left, facts)
        text = invocation.arguments if left == arguments else orjson.dumps(left).decode()
        return replace(invocation, arguments=text, timeout=time_left())

    def _time_left(self, invocation: ToolInvocation, started: float) -> float:
        return max(invocation.timeout - (self._clock.monotonic() - started), 0.0)

    def _target(self, definition: ToolDefinition, invocation: ToolInvocation) -> CallTarget:
        adapter = self._sources.adapter(definition.name)
        if isinstance(adapter, TargetsCalls):
            return _failing_plainly(lambda: adapter.target(invocation), _own_errors(adapter))
        arguments = decode_arguments(definition.name, invocation.arguments)
        Arguments(definition.input_schema, as_object).read_object(definition.name, arguments)
        return target_of(None, arguments)

    def _contained(self, invocation: ToolInvocation, execute: Callable[[], ToolOutcome]) -> ToolOutcome:
        try:
            return execute()
        except (HookDeniedError, ApprovalNeededError) as error:
            if isinstance(error, HookDeniedError):
                return _failed(invocation, DENIED, f"{invocation.tool} must not be called like this: {error}")
            if invocation.stage.approved:
                return _failed(invocation, DENIED, f"{invocation.tool} asks for more than was approved: {error}")
            checked = CheckedCall(invocation.arguments, error.target, reason=error.reason)
            return replace(_failed(invocation, DENIED, str(error)), checked=checked)
        except ToolArgumentsError as error:
            return _failed(invocation, "invalid_arguments", str(error), details=list(error.details))
        except (DeadlineReachedError, ToolTimeoutError) as error:
            message = str(error) or (
                f"{invocation.tool} did not finish within {invocation.timeout:g} s and was stopped; "
                "it may have done a part of its work. Ask for less, check what it did, or go on without it."
            )
            return _failed(invocation, "timeout", message, retryable=True)
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
            raise self._sources.missing(invocation.tool, invocation.agent.tenant)
        own = _own_errors(adapter)
        returned = _failing_plainly(lambda: _run(adapter, invocation), own)
        if isinstance(returned, ToolOutcome):
            return replace(returned, result=_result(invocation, returned.result, own))
        return ToolOutcome(_result(invocation, returned, own), duration_ms=0)


def _no_secret(_tenant: TenantId, name: str) -> str:
    raise NotFoundError("secret", name)


def _run(adapter: ToolAdapter, invocation: ToolInvocation) -> Any:
    returned = call_within(invocation.timeout, lambda: adapter.run(invocation))
    if inspect.iscoroutine(returned):
        return run_within(invocation.timeout, lambda: returned)
    return returned


def _own_errors(adapter: ToolAdapter | None) -> frozenset[str]:
    return adapter.own_errors if isinstance(adapter, ReportsOutcome) else frozenset()


def _result(invocation: ToolInvocation, returned: Any, own: frozenset[str]) -> ToolResult:
    """Return what a handler returned as the result of this call, as JSON."""
    given = returned if isinstance(returned, ToolResult) else ToolResult(invocation.call_id, content=returned)
    content, metadata = to_json(given.content), to_json(given.metadata)
    error = given.error and plain_error(given.error, own)
    return replace(given, call_id=invocation.call_id, content=content, error=error, metadata=metadata)


def _failing_plainly(call: Callable[[], _T], own: frozenset[str]) -> _T:
    """Return what the call returns; a ToolFailureError is raised in a form that can be passed on."""
    try:
        return call()
    except ToolFailureError as failure:
        error = ToolError(failure.type, str(failure), retryable=failure.retryable, details=failure.details)
        plain = plain_error(error, own)
        raise ToolFailureError(plain.type, plain.message, retryable=plain.retryable, details=plain.details) from failure


def _failed(
    invocation: ToolInvocation, type_: str, message: str, *, retryable: bool = False, details: JsonValue = None
) -> ToolOutcome:
    error = ToolError(type_, short_message(message), retryable=retryable, details=details)
    return ToolOutcome(ToolResult(invocation.call_id, error=error), duration_ms=0)


def _told(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"SystemExit: the tool tried to end the process with code {error.code!r}"
    try:
        text = str(error).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 (an exception that cannot be told still has a type)
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
