"""The registry of one application: its tools and its states (T1, T2)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.governance import RISK_TAG, Risk
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.principal import tenants_problem
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition, ToolOrigin
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.ids import TenantId
from owlclaw_ray.tools.adapter import CallTarget, Target, check_target, target_of
from owlclaw_ray.tools.arguments import Arguments, HandlerArguments, as_model, as_object, decode_arguments
from owlclaw_ray.tools.context import ToolContext
from owlclaw_ray.tools.hooks import Hooks
from owlclaw_ray.tools.names import canonical_name, namespace_problems, tool_name_problems, wire_name
from owlclaw_ray.tools.schema import plain_schema
from owlclaw_ray.tools.signature import (
    Parameters,
    arguments_of_function,
    parse_docstring,
    read_parameters,
    schema_of_model,
)
from owlclaw_ray.tools.states import StateProviders
from owlclaw_ray.tools.tags import tags_problems


class RegisteredTool(Struct, frozen=True):
    """A tool with what it takes to execute it."""

    definition: ToolDefinition
    function: Callable[..., Any]
    arguments: Arguments
    context_parameter: str | None
    target: Target = None
    """What says what a call acts on."""
    documented: bool = True
    """Whether its description is more than its name."""

    def call(self, given: HandlerArguments, context: ToolContext) -> Any:
        """Call the function."""
        by_name = dict(given.by_name)
        if self.context_parameter is not None:
            by_name[self.context_parameter] = context
        return self.function(*given.positional, **by_name)


class ToolOptions(Struct, frozen=True):
    """What a decorator says of a tool beside its function."""

    permission: str | Permission
    effect: str | Effect
    description: str | None = None
    timeout: float | None = None
    tags: Iterable[str] = ()
    arguments: type[BaseModel] | None = None
    """A model that the function takes as its one parameter, in the place of typed parameters."""
    input_schema: JsonObject | None = None
    """A JSON schema of the object that the function takes as its one parameter."""
    target: Target = None
    """What says what a call acts on."""
    tenants: Sequence[str] | None = None
    """Whose agents have it; None: those of all tenants."""


class ToolRegistry:
    """Every tool and state of an application. Implements ToolAdapter and TargetsCalls.

    Names are unique: registering one twice is an error.
    """

    def __init__(self, namespace: str, monotonic: Callable[[], float]) -> None:
        problems = namespace_problems(namespace)
        if problems:
            raise ConfigurationError(problems)
        self.namespace = namespace
        self.state_providers = StateProviders(monotonic)
        self.event_sources = StateProviders(monotonic, "event source")
        self.hooks = Hooks()
        self.origin = ToolOrigin.APPLICATION
        """Who vouches for the tools that are being registered."""
        self._tools: dict[str, RegisteredTool] = {}
        self._canonical: dict[str, str] = {}

    def add(self, name: str, function: Callable[..., Any], options: ToolOptions) -> RegisteredTool:
        """Register a tool and return it. Raises ConfigurationError with every problem; then nothing is registered."""
        canonical = canonical_name(name, self.namespace)
        where = f"tool {canonical!r}"
        problems = [*tool_name_problems(canonical), *self._taken(canonical), *_option_problems(where, options)]
        if problems:
            raise ConfigurationError(problems)
        parameters = read_parameters(function, where)
        arguments = _arguments(function, parameters, options, where)
        check_target(options.target, arguments.schema, where)
        described = options.description or parse_docstring(inspect.getdoc(function) or "").summary
        tool = RegisteredTool(
            definition=ToolDefinition(
                name=canonical,
                description=described or name.rpartition(".")[2].replace("_", " "),
                input_schema=arguments.schema,
                permission=Permission(options.permission),
                effect=Effect(options.effect),
                tool_class=ToolClass.ALONE,
                tags=frozenset(options.tags),
                timeout=options.timeout,
                metadata={"raw_name": name, "function": f"{function.__module__}.{function.__qualname__}"},
                origin=self.origin,
                tenants=frozenset(map(TenantId, options.tenants or ())),
            ),
            function=function,
            arguments=arguments,
            context_parameter=parameters.context,
            target=options.target,
            documented=bool(described),
        )
        self._tools[canonical] = tool
        self._canonical[wire_name(canonical)] = canonical
        return tool

    @property
    def source(self) -> str:
        """See ToolSource.source."""
        return f"the application {self.namespace!r}"

    def run(self, invocation: ToolInvocation) -> Any:
        """See ToolAdapter.run; the coroutine of an async tool is not begun."""
        tool = self._tools[invocation.tool]
        return tool.call(tool.arguments.read(tool.definition.name, invocation.arguments), ToolContext.of(invocation))

    def target(self, invocation: ToolInvocation) -> CallTarget:
        """See TargetsCalls.target."""
        tool = self._tools[invocation.tool]
        arguments = decode_arguments(invocation.tool, invocation.arguments)
        tool.arguments.read_object(invocation.tool, arguments)
        return target_of(tool.target, arguments)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the definitions of all tools, by name."""
        return tuple(self._tools[name].definition for name in sorted(self._tools))

    def undocumented(self) -> Iterator[Problem]:
        """Yield a problem for each tool of which models learn its name only."""
        for name, tool in sorted(self._tools.items()):
            if not tool.documented:
                code = getattr(inspect.unwrap(tool.function), "__code__", None)
                place = f"{code.co_filename}:{code.co_firstlineno}" if code else tool.definition.metadata["function"]
                fix = "write one whose first paragraph says what it does and when to use it, or give description="
                what = "has no docstring: models are told its name only"
                yield Problem(f"tool {name!r} ({place})", what, fix)

    def tool(self, name: str) -> RegisteredTool | None:
        """Return the tool of that canonical or wire name."""
        return self._tools.get(self._canonical.get(name, name))

    def states(self) -> tuple[str, ...]:
        """Return the names of all states, sorted."""
        return self.state_providers.names

    def query(self, name: str, agent: AgentRef) -> JsonValue:
        """Return a state as JSON; see StateProviders.query."""
        return self.state_providers.query(name, agent)

    def _taken(self, canonical: str) -> list[Problem]:
        where = f"tool {canonical!r}"
        if canonical in self._tools:
            return [Problem(where, "is registered twice", "give one of them another name")]
        other = self._canonical.get(wire_name(canonical))
        if other is not None:
            what = f"cannot be told from {other!r}: both are {wire_name(canonical)!r} to model providers"
            return [Problem(where, what, "rename one of them")]
        return []


def _option_problems(where: str, options: ToolOptions) -> list[Problem]:
    problems = []
    for key, value, kind in (("permission", options.permission, Permission), ("effect", options.effect, Effect)):
        values = [each.value for each in kind]
        if not isinstance(value, kind) and value not in values:
            problems.append(Problem(f"{where}: {key}", f"is {value!r}", f"use one of {', '.join(values)}"))
    timeout = options.timeout
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        problems.append(Problem(f"{where}: timeout", f"is {timeout}", "it must be more than 0 seconds, or None"))
    risks = {f"{RISK_TAG}{risk.value}" for risk in Risk}
    if options.tenants is not None:
        text = isinstance(options.tenants, str)
        if what := f"is the text {options.tenants!r}" if text else tenants_problem(options.tenants):
            problems.append(Problem(f"{where}: tenants", what, 'write tenants=["acme"]'))
    problems += tags_problems(where, options.tags)
    problems += [
        Problem(f"{where}: tags", f"has {tag!r}", f"use one of {', '.join(sorted(risks))}")
        for tag in options.tags
        if isinstance(tag, str) and tag.startswith(RISK_TAG) and tag not in risks
    ]
    if options.arguments is not None and options.input_schema is not None:
        problems.append(Problem(where, "has both arguments= and input_schema=", "give one of them"))
    return problems


def _arguments(function: Callable[..., Any], parameters: Parameters, options: ToolOptions, where: str) -> Arguments:
    if options.arguments is None and options.input_schema is None:
        return arguments_of_function(function, parameters, where)
    if len(parameters.for_model) != 1:
        what = f"takes {counted(len(parameters.for_model), 'parameter')}"
        fix = "with arguments= or input_schema= a function takes one: the model's instance or the JSON object"
        raise ConfigurationError([Problem(where, what, fix)])
    if options.arguments is not None:
        return Arguments(schema_of_model(options.arguments, where), as_model(options.arguments))
    return Arguments(plain_schema(options.input_schema or {}, where), as_object)
