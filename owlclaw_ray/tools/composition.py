"""The one place where a runtime's tools come together: actors, ingress and tests take them from here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.tools.adapter import ToolAdapter, ToolSource
from owlclaw_ray.tools.builtin import BuiltInTools
from owlclaw_ray.tools.host import HostTools, host_sources
from owlclaw_ray.tools.sources import ToolSources, definitions_of

_S = TypeVar("_S", bound=ToolSource)


_NO_HOST_TOOLS = HostTools()


def tools_of(
    built_ins: BuiltInTools, application: Sequence[ToolAdapter], host: HostTools, environ: Mapping[str, str]
) -> ToolSources:
    """Return all tools, ready to run; raises ConfigurationError as `definitions_of` and `host_sources`."""
    return ToolSources(_all(built_ins, application, host, environ))


def declared_tools(application: Sequence[ToolAdapter], host: HostTools = _NO_HOST_TOOLS) -> tuple[ToolDefinition, ...]:
    """Return the definitions of all tools that agents can be given, for a process that runs none of them."""
    return definitions_of(_all(BuiltInTools, application, host, {}))


def _all(
    built_ins: _S, application: Sequence[ToolAdapter], host: HostTools, environ: Mapping[str, str]
) -> tuple[_S | ToolAdapter, ...]:
    return (built_ins, *application, *host_sources(host, environ))
