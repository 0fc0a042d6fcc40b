"""What an application is written against."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from pydantic import BaseModel

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.tools.adapter import Target, ToolAdapter
from owlclaw_ray.tools.hooks import HookPoint
from owlclaw_ray.tools.registry import ToolOptions, ToolRegistry
from owlclaw_ray.tools.sources import definitions_of
from owlclaw_ray.tools.tags import kept_tags

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Mask = TypeVar("_Mask", bound=Callable[[JsonValue], JsonValue])
PermissionName = Literal["readonly", "write"]
EffectName = Literal["pure", "idempotent", "once"]


class ToolKeywords(TypedDict, total=False):
    """What `handler` and `tool` take beside a name."""

    description: str | None
    permission: PermissionName
    effect: EffectName
    timeout: float | None
    tags: Iterable[str]
    tenants: Sequence[str] | None
    arguments: type[BaseModel] | None
    input_schema: JsonObject | None
    target: Target


class OwlClaw:
    """An application: business handlers, state providers and tools, registered by decorators that return the function itself.

    `@app.tool`, `@app.handler`, `@app.state` and `@app.event_source` without a name take the function's.

    `name` is the first part of the canonical name of every tool that is registered without a dot: `write_report` of the
    application `host_watch` is `host_watch.write_report`. Registration raises ConfigurationError.
    """

    def __init__(self, name: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.plugins: set[str] = set()
        """Entry points that have added their tools."""
        self.registry = ToolRegistry(name, monotonic)
        self.trace_mask: Callable[[JsonValue], JsonValue] | None = None
        """What `mask_traces` registered."""
        self._adapters: list[ToolAdapter] = []

    @overload
    def handler(self, name: _Function, /) -> _Function: ...

    @overload
    def handler(self, name: str | None = None, **options: Unpack[ToolKeywords]) -> Callable[[_Function], _Function]: ...

    def handler(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        description: str | None = None,
        permission: PermissionName = "write",
        effect: EffectName = "once",
        timeout: float | None = None,
        tags: Iterable[str] = (),
        tenants: Sequence[str] | None = None,
        arguments: type[BaseModel] | None = None,
        input_schema: JsonObject | None = None,
        target: Target = None,
    ) -> Callable[..., Any]:
        """Register a business capability, sync or async: by default it changes the world and is never silently repeated.

        Models see its typed parameters as a schema, with descriptions from `Annotated[..., Field(description=…)]` or the
        docstring. A parameter annotated ToolContext is given by the runtime. With `arguments` (a pydantic model) or
        `input_schema` (JSON Schema) the function takes one parameter, the model's instance or the JSON object. `timeout`
        in seconds; None takes the agent's `limits.tool_timeout`. `tenants` names those whose agents alone have it; None: all
        have it. `target` names the arguments that say what a call acts on, such as a recipient, or is a function of them
        that returns a CallTarget: where calls ask, people may allow that target for the session.
        """
        options = ToolOptions(
            permission, effect, description, timeout, kept_tags(tags), arguments, input_schema, target, tenants
        )
        return _registered(name, lambda known, function: self.registry.add(known, function, options))

    @overload
    def tool(self, name: _Function, /) -> _Function: ...

    @overload
    def tool(self, name: str | None = None, **options: Unpack[ToolKeywords]) -> Callable[[_Function], _Function]: ...

    def tool(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        description: str | None = None,
        permission: PermissionName = "readonly",
        effect: EffectName = "pure",
        timeout: float | None = None,
        tags: Iterable[str] = (),
        tenants: Sequence[str] | None = None,
        arguments: type[BaseModel] | None = None,
        input_schema: JsonObject | None = None,
        target: Target = None,
    ) -> Callable[..., Any]:
        """Register a tool that only looks or computes: as `handler`, but it may run in parallel and be repeated freely."""
        options = ToolOptions(
            permission, effect, description, timeout, kept_tags(tags), arguments, input_schema, target, tenants
        )
        return _registered(name, lambda known, function: self.registry.add(known, function, options))

    @overload
    def state(self, name: _Function, /) -> _Function: ...

    @overload
    def state(self, name: str | None = None, *, ttl: float | None = None) -> Callable[[_Function], _Function]: ...

    def state(self, name: str | Callable[..., Any] | None = None, *, ttl: float | None = None) -> Callable[..., Any]:
        """Register a state provider for query_state: sync or async, with no parameter or with the asking agent's AgentRef.

        An answer is kept for `ttl` seconds in each process (for each agent, if the provider takes one).
        """
        return _registered(name, lambda known, function: self.registry.state_providers.add(known, function, ttl))

    @overload
    def event_source(self, name: _Function, /) -> _Function: ...

    @overload
    def event_source(self, name: str | None = None) -> Callable[[_Function], _Function]: ...

    def event_source(self, name: str | Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Register an event source, which the heartbeats of agents ask: sync or async, with no parameter or with the agent's AgentRef.

        It returns what is pending, as JSON; nothing, an empty text, list or object, 0 or False means that nothing is. The same
        answer again does not wake an agent that dealt with it, so it should not say how old things are.
        """
        return _registered(name, lambda known, function: self.registry.event_sources.add(known, function, None))

    def add_tools(self, adapter: ToolAdapter) -> None:
        """Register the tools of another source. Raises ConfigurationError, and registers none of them, if one has a bad name
        or schema, or the name of another tool: the problem names both sources.
        """
        definitions_of((*self.sources(), adapter))
        self._adapters.append(adapter)

    def sources(self) -> tuple[ToolAdapter, ...]:
        """Return what runs the application's tools: its registry, then what was added."""
        return (self.registry, *self._adapters)

    def before_tool(self, *names: str, tags: Iterable[str] = ()) -> Callable[[_Function], _Function]:
        """Register a hook that sees calls before they run, and before anybody is asked to approve them (T10).

        It sees those whose tool has one of these names (patterns with `*`) or tags; with neither, all. Sync or async, it takes a
        ToolUse and returns None to let the call pass, `Deny(reason)`, or `Change(arguments=…)`. Hooks run in the order of
        their registration, in the tool's worker; one that raises, or is late, denies.
        """
        return self._hooking(HookPoint.BEFORE, names, tags)

    def after_tool(self, *names: str, tags: Iterable[str] = ()) -> Callable[[_Function], _Function]:
        """Register a hook that sees results before anybody else does: as `before_tool`, with the ToolResult as second parameter.

        It may withhold the result by `Deny(reason)` or put another in its place by `Change(result=…)`; what the tool did is done.
        """
        return self._hooking(HookPoint.AFTER, names, tags)

    def mask_traces(self, function: _Mask) -> _Mask:
        """Register what every prompt, reply, argument, result and error message goes through before it leaves in a trace.

        It takes a JSON value and returns what may be exported of it. Where it raises, nothing of the value is. Secrets are taken
        out in any case, after it. Raises ConfigurationError for a second one.
        """
        if self.trace_mask is not None:
            raise ConfigurationError([Problem("mask_traces", "is registered twice", "make one function of the two")])
        self.trace_mask = function
        return function

    def _hooking(
        self, moment: HookPoint, names: tuple[str, ...], tags: Iterable[str]
    ) -> Callable[[_Function], _Function]:
        kept = kept_tags(tags)

        def register(function: _Function) -> _Function:
            self.registry.hooks.add(function, moment, names, kept)
            return function

        return register

    def __repr__(self) -> str:
        return f"OwlClaw({self.name!r})"


def _registered(
    given: str | Callable[..., Any] | None, register: Callable[[str, Callable[..., Any]], object]
) -> Callable[..., Any]:
    """Return the function that was given, registered under its name, or the decorator that registers one."""
    if not (given is None or isinstance(given, str) or callable(given)):
        fix = "give it a name, such as @app.tool('price'), or nothing"
        raise ConfigurationError([Problem("decorator", f"is given {given!r}, which is no name", fix)])

    def decorate(function: _Function) -> _Function:
        name = given if isinstance(given, str) else getattr(function, "__name__", repr(function))
        register(name, function)
        return function

    return decorate(given) if callable(given) else decorate
