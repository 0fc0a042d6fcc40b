"""Where tools come from: one protocol for every source (T1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import orjson
from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.ids import TenantId
from owlclaw_ray.tools.failure import ToolFailureError


class CallTarget(Struct, frozen=True):
    """What one call acts on, and where it works, if that says more."""

    scope: str
    """Equal for calls that whoever allows one of them may allow together: a resolved path, a host, an executable with its folder."""
    cwd: str = ""


Target: TypeAlias = Sequence[str] | Callable[[JsonObject], CallTarget] | None
"""The names of the arguments that say it, a function of the arguments that does, or None: all arguments say it."""


def target_of(target: Target, arguments: JsonObject) -> CallTarget:
    """Return the target of a call with these arguments."""
    if callable(target):
        return target(arguments)
    names = arguments if target is None else target
    scope = {name: arguments.get(name) for name in names}
    return CallTarget(orjson.dumps(scope, option=orjson.OPT_SORT_KEYS).decode())


def check_target(target: Target, schema: JsonObject, where: str) -> None:
    """Raise ConfigurationError if the target names what the tool does not take."""
    known = schema.get("properties", {})
    unknown = [] if target is None or callable(target) else [name for name in target if name not in known]
    if unknown:
        what = f"names {', '.join(map(repr, unknown))}, which the tool does not take"
        raise ConfigurationError([Problem(f"{where}: target", what, f"use some of {', '.join(known) or 'none'}")])


class ToolSource(Protocol):
    """Knows tools."""

    @property
    def source(self) -> str:
        """What people call it in a problem, such as `the application 'shop'`."""
        ...

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the definitions of its tools: the same ones in every process, as long as its own input is the same.

        Names are canonical: dotted, but for the built-in tools. Schemas are within the subset of tool schemas.
        """
        ...


class ToolAdapter(ToolSource, Protocol):
    """Knows tools and runs them. Implement it for tools that are no functions, and register it with `OwlClaw.add_tools`.

    An adapter lives in every tool worker and keeps no state between calls that another worker would miss.
    """

    def run(self, invocation: ToolInvocation) -> Any:
        """Validate the arguments, execute the call, and return what it gave.

        That is a ToolOutcome, a ToolResult, anything with a JSON form, or a coroutine that gives one of them. Raise
        ToolArgumentsError for arguments that do not fit, ToolFailureError for failures that the model can act on; any other
        exception becomes an `execution_failed` error. What runs longer than `invocation.timeout` is interrupted.
        """
        ...


@runtime_checkable
class TargetsCalls(Protocol):
    """What an adapter implements besides, if it knows better than by all their arguments what calls act on (T7)."""

    def target(self, invocation: ToolInvocation) -> CallTarget:
        """Validate the arguments and return what the call would act on, in its normal form. Changes nothing.

        Raise what `run` would raise before it does anything: then nobody is asked about the call.
        """
        ...


@runtime_checkable
class ReportsOutcome(Protocol):
    """What an adapter of the runtime's own implements besides, if it knows itself that a call was not begun, or may have acted."""

    @property
    def own_errors(self) -> frozenset[str]:
        """The types among the reserved ones that errors of its calls may have."""
        ...


class DynamicTools(ToolAdapter, Protocol):
    """Knows tools that come and go while the runtime is up, and runs them."""

    def owns(self, tool: str) -> bool:
        """Return whether a tool of that canonical name can only be one of these, though it may not be there now."""
        ...

    def find(self, tool: str) -> ToolDefinition | None:
        """Return the definition that the tool of that canonical name has now."""
        ...

    def missing(self, tool: str, tenant: TenantId) -> ToolFailureError:
        """Return why one of these tools cannot be called that has no definition for the tenant now: of what only others have, it
        says what it says of what nobody has.
        """
        ...
