"""All sources of a runtime's tools together: every name once, each with the source that runs it (T2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from owlclaw_ray.domain.agent import INTERNAL
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.ids import TenantId
from owlclaw_ray.tools.adapter import DynamicTools, ToolAdapter, ToolSource
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.names import BUILT_IN_NAMES, HIDDEN_NAMES, INTERNAL_NAMES, tool_name_problems, wire_name
from owlclaw_ray.tools.schema import plain_schema


def definitions_of(sources: Iterable[ToolSource]) -> tuple[ToolDefinition, ...]:
    """Return the definitions of all sources, in their order.

    Raises ConfigurationError with a problem for each bad name or schema and for each name that two tools share, which names
    both sources.
    """
    problems: list[Problem] = []
    found: dict[str, tuple[ToolDefinition, ToolSource]] = {}
    for source in sources:
        for definition in source.definitions():
            wire = wire_name(definition.name)
            if wire in found:
                other, owner = found[wire]
                what = f"is registered twice, by {owner.source} and by {source.source}"
                if definition.name != other.name:
                    what = (
                        f"of {source.source} cannot be told from {other.name!r} of {owner.source}: "
                        f"both are {wire!r} to model providers"
                    )
                problems.append(Problem(f"tool {definition.name!r}", what, "give one of them another name"))
                continue
            problems += _problems(definition, source)
            found[wire] = (definition, source)
    if problems:
        raise ConfigurationError(problems)
    return tuple(definition for definition, _ in found.values())


class ToolSources:
    """Finds the adapter of a tool. Raises ConfigurationError as `definitions_of`.

    What is none of the adapters' tools is looked for in `live`.
    """

    def __init__(self, adapters: Iterable[ToolAdapter], live: DynamicTools | None = None) -> None:
        adapters = tuple(adapters)
        self._live = live
        self._definitions = {each.name: each for each in definitions_of(adapters)}
        self._adapters = {each.name: adapter for adapter in adapters for each in adapter.definitions()}

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the definitions of the adapters' tools."""
        return tuple(self._definitions.values())

    def definition(self, tool: str, tenant: TenantId) -> ToolDefinition | None:
        """Return the definition of the tool of that canonical name, if there is one for the tenant."""
        found = self._definitions.get(tool)
        if found is None and self._live is not None:
            found = self._live.find(tool)
        return found if found is not None and found.is_for(tenant) else None

    def adapter(self, tool: str) -> ToolAdapter | None:
        """Return what runs the tool of that canonical name."""
        found = self._adapters.get(tool)
        return self._live if found is None and self._live is not None and self._live.owns(tool) else found

    def missing(self, tool: str, tenant: TenantId) -> ToolFailureError:
        """Return why a tool without a definition for the tenant cannot be called."""
        if self._live is not None and self._live.owns(tool):
            return self._live.missing(tool, tenant)
        return ToolFailureError("tool_not_available", f"this worker's application has no tool {tool!r}")


def _problems(definition: ToolDefinition, source: ToolSource) -> Iterator[Problem]:
    name = definition.name
    yield from tool_name_problems(name)
    if "." not in name and name not in BUILT_IN_NAMES:
        fix = "put its source's name and a dot before it, such as reports.write"
        yield Problem(f"tool {name!r}", f"of {source.source} has a name without a dot", fix)
    if name.startswith(INTERNAL) and name not in INTERNAL_NAMES | HIDDEN_NAMES:
        fix = "put its source's own name before the dot, such as reports.write"
        yield Problem(f"tool {name!r}", f"of {source.source} has a name of the runtime's own tools", fix)
    try:
        plain_schema(definition.input_schema, f"tool {name!r} of {source.source}: input_schema")
    except ConfigurationError as error:
        yield from error.problems
