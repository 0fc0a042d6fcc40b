"""Hooks of an application around its tools (T10). They run where tools run, in the same task, and cost nothing where none fits."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from enum import Enum
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import Permission, ToolClass, ToolDefinition, ToolError, ToolResult
from owlclaw_ray.domain.tool_call import Stage, ToolInvocation
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.tools.context import ToolContext
from owlclaw_ray.tools.deadline import DeadlineReachedError, call_within, run_within
from owlclaw_ray.tools.failure import short_message
from owlclaw_ray.tools.json_result import NotJsonError, to_json
from owlclaw_ray.tools.large_output import bounded
from owlclaw_ray.tools.tags import tags_problems

HOOK_SECONDS = 5.0
"""How long a hook may take; less if the call's own time is over sooner."""
_MIN_SECONDS = 0.5

_logger = logging.getLogger(__name__)


class HookPoint(Enum):
    """When a hook runs."""

    BEFORE = "before"
    AFTER = "after"


class ToolUse(Struct, frozen=True):
    """A call as a hook sees it."""

    tool: str
    """Canonical name."""
    permission: Permission
    tags: frozenset[str]
    arguments: JsonObject
    """As the model gave them, or as an earlier hook changed them."""
    context: ToolContext


class Deny(Struct, frozen=True):
    """The call must not run, or its result must not be seen. The model is told why."""

    reason: str


class Change(Struct, frozen=True):
    """Other arguments for the call, from a hook before it; or another content of its result, from one after it."""

    arguments: JsonObject | None = None
    result: JsonValue = None


Answer: TypeAlias = Deny | Change | None


class HookDeniedError(Exception):
    """A hook denied the call, or failed, which counts as denying it."""


class Hook(Struct, frozen=True):
    """A function of the application, and the calls that it sees."""

    name: str
    function: Callable[..., Any]
    moment: HookPoint
    names: tuple[str, ...]
    tags: frozenset[str]

    def sees(self, tool: ToolDefinition) -> bool:
        """Return whether calls of the tool go by this hook."""
        if not self.names and not self.tags:
            return True
        return bool(self.tags & tool.tags) or any(fnmatchcase(tool.name, name) for name in self.names)

    def ask(self, seconds: float, *given: object) -> Answer:
        """Return its answer; raises HookDeniedError for one that raises, is late, or says nothing that a hook can say."""
        within = run_within if inspect.iscoroutinefunction(self.function) else call_within
        try:
            answer = within(seconds, partial(self.function, *given))
        except DeadlineReachedError:
            raise HookDeniedError(f"the hook {self.name} did not answer within {seconds:g} s") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _logger.exception("the hook %s failed", self.name)
            raise HookDeniedError(f"the hook {self.name} failed with {type(error).__name__}") from error
        if answer is None or isinstance(answer, Deny | Change):
            return answer
        raise HookDeniedError(f"the hook {self.name} returned {type(answer).__name__}, not Deny, Change or None")


class HookFacts(Struct):
    """What hooks did to one call: for its journal entry and ledger record."""

    about: JsonObject = field(default_factory=dict)
    """Said with each of them."""
    told: list[JsonObject] = field(default_factory=list)

    def note(self, hook: Hook, verdict: str, **more: JsonValue) -> None:
        """Add what a hook did, of large values beginning and end."""
        told = {key: bounded(value) for key, value in more.items()}
        self.told.append({"hook": hook.name, "stage": hook.moment.value, "verdict": verdict, **self.about, **told})


class Hooks:
    """All hooks of an application, in the order of their registration."""

    def __init__(self) -> None:
        self._hooks: list[Hook] = []
        self._seen: dict[tuple[str, HookPoint], tuple[Hook, ...]] = {}

    def add(self, function: Callable[..., Any], moment: HookPoint, names: tuple[str, ...], tags: Iterable[str]) -> None:
        """Register a hook; raises ConfigurationError if the function cannot be one, or the tags are none."""
        name = f"{function.__module__}.{function.__qualname__}"
        problems = tags_problems(f"hook {name}", tags)
        if problems:
            raise ConfigurationError(problems)
        wanted = 1 if moment is HookPoint.BEFORE else 2
        try:
            inspect.signature(function).bind(*range(wanted))
        except TypeError as error:
            what = f"cannot be called with {'a ToolUse' if wanted == 1 else 'a ToolUse and a ToolResult'}: {error}"
            raise ConfigurationError([Problem(f"hook {name}", what, "give it these parameters")]) from error
        self._hooks.append(Hook(name, function, moment, names, frozenset(tags)))
        self._seen.clear()

    def see(self, tool: ToolDefinition) -> bool:
        """Return whether any hook sees the tool's calls."""
        return bool(self.of(tool, HookPoint.BEFORE) or self.of(tool, HookPoint.AFTER))

    def of(self, tool: ToolDefinition, moment: HookPoint) -> tuple[Hook, ...]:
        """Return the hooks that see the tool's calls at that moment."""
        key = (tool.name, moment)
        found = self._seen.get(key)
        if found is None:
            found = tuple(hook for hook in self._hooks if hook.moment is moment and hook.sees(tool))
            self._seen[key] = found
        return found

    def apart(self, tools: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
        """Return the definitions, those that hooks see with a task for each call: hooks are the application's code."""
        return tuple(
            replace(tool, tool_class=ToolClass.ALONE) if any(hook.sees(tool) for hook in self._hooks) else tool
            for tool in tools
        )

    def before(
        self,
        tool: ToolDefinition,
        arguments: JsonObject,
        invocation: ToolInvocation,
        left: Callable[[], float],
        facts: HookFacts,
    ) -> JsonObject:
        """Return the arguments that are left when all hooks before the call were asked; raises HookDeniedError.

        `left` says how many seconds the call still has. Arguments that a person edited are not changed: a hook that would
        change them denies.
        """
        for hook in self.of(tool, HookPoint.BEFORE):
            answer = self._asked(hook, min(HOOK_SECONDS, left()), facts, use_of(tool, arguments, invocation))
            if isinstance(answer, Change):
                changed = _changed_arguments(hook, answer, facts)
                if invocation.stage is not Stage.EDITED:
                    arguments = changed
                    facts.note(hook, "changed", arguments=arguments)
                elif changed == arguments:
                    facts.note(hook, "allowed")
                else:
                    reason = f"the hook {hook.name} would change what a person wrote"
                    facts.note(hook, "denied", reason=reason)
                    raise HookDeniedError(reason)
        return arguments

    def after(
        self, use: ToolUse, tool: ToolDefinition, result: ToolResult, left: Callable[[], float], facts: HookFacts
    ) -> ToolResult:
        """Return the result that is left when all hooks after the call were asked. They have a moment, however late it is."""
        for hook in self.of(tool, HookPoint.AFTER):
            seconds = min(HOOK_SECONDS, max(_MIN_SECONDS, left()))
            try:
                answer = self._asked(hook, seconds, facts, deepcopy(use), deepcopy(result))
                changed = _changed_result(hook, answer, result, facts)
            except HookDeniedError as error:
                facts.note(hook, "withheld", original=_told(result))
                message = short_message(f"{tool.name} ran, but its result is withheld: {error}")
                return ToolResult(result.call_id, error=ToolError("denied", message))
            if changed is not result:
                facts.note(hook, "changed", original=_told(result))
                result = changed
        return result

    def _asked(self, hook: Hook, seconds: float, facts: HookFacts, *given: object) -> Answer:
        try:
            answer = hook.ask(seconds, *given)
        except HookDeniedError as error:
            facts.note(hook, "failed", reason=str(error))
            raise
        if isinstance(answer, Deny):
            reason = short_message(str(answer.reason))
            facts.note(hook, "denied", reason=reason)
            raise HookDeniedError(reason)
        if answer is None:
            facts.note(hook, "allowed")
        return answer


def use_of(tool: ToolDefinition, arguments: JsonObject, invocation: ToolInvocation) -> ToolUse:
    """Return a call as hooks are shown it."""
    return ToolUse(tool.name, tool.permission, tool.tags, deepcopy(arguments), ToolContext.of(invocation))


def _changed_arguments(hook: Hook, answer: Change, facts: HookFacts) -> JsonObject:
    with suppress(NotJsonError):
        arguments = to_json(answer.arguments)
        if isinstance(arguments, dict):
            return arguments
    reason = f"the hook {hook.name} changed the arguments to what is no JSON object"
    facts.note(hook, "failed", reason=reason)
    raise HookDeniedError(reason)


def _changed_result(hook: Hook, answer: Answer, result: ToolResult, facts: HookFacts) -> ToolResult:
    if not isinstance(answer, Change):
        return result
    try:
        content = to_json(answer.result)
    except NotJsonError as error:
        reason = f"the hook {hook.name} changed the result to what is no JSON"
        facts.note(hook, "failed", reason=reason)
        raise HookDeniedError(reason) from error
    return replace(result, content=content, error=None)


def _told(result: ToolResult) -> JsonObject:
    if result.error is not None:
        return {"error": {"type": result.error.type, "message": result.error.message}}
    return {"content": result.content}
