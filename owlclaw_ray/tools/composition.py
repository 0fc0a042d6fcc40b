"""Which tools there are, and the sources that run them: of the application, built-in ones and those of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.tools.adapter import DynamicTools, ToolAdapter, ToolSource
from owlclaw_ray.tools.agents.toolset import DeclaredAgentTools
from owlclaw_ray.tools.artifact_home import ArtifactHome
from owlclaw_ray.tools.builtin import BuiltInTools
from owlclaw_ray.tools.hooks import Hooks
from owlclaw_ray.tools.host import BrokenFilePolicy, HostTools, host_sources
from owlclaw_ray.tools.internal.artifacts import ArtifactTools
from owlclaw_ray.tools.internal.results import ResultTools
from owlclaw_ray.tools.internal.skills import SkillTools
from owlclaw_ray.tools.sources import ToolSources, definitions_of

_NO_HOST_TOOLS = HostTools()
_NO_HOOKS = Hooks()


def tools_of(
    built_ins: BuiltInTools,
    application: Sequence[ToolAdapter],
    host: HostTools,
    environ: Mapping[str, str],
    artifacts: ArtifactHome,
    *,
    agents_dir: Path,
    live: DynamicTools | None = None,
) -> ToolSources:
    """Return all tools that can be used now, ready to run; raises ConfigurationError as `definitions_of`.

    What cannot be used any more, though it was declared, is not available.
    """
    fixed: tuple[ToolAdapter, ...] = (
        built_ins,
        ArtifactTools(artifacts),
        SkillTools(agents_dir),
        *application,
        *host_sources(host, environ, BrokenFilePolicy.LEAVE_OUT),
    )
    return ToolSources(fixed, live)


def declared_tools(
    application: Sequence[ToolAdapter], host: HostTools = _NO_HOST_TOOLS, hooks: Hooks = _NO_HOOKS
) -> tuple[ToolDefinition, ...]:
    """Return the definitions of all tools that agents can be given, for a process that runs none of them.

    Those that hooks see have a task for each call. Raises ConfigurationError as `definitions_of`, and for files of declarative
    tools that cannot be used.
    """
    others = () if host.agents is None else (DeclaredAgentTools,)
    sources: tuple[ToolSource, ...] = (
        BuiltInTools,
        ArtifactTools,
        ResultTools,
        SkillTools,
        *others,
        *application,
        *host_sources(host, {}, BrokenFilePolicy.REFUSE),
    )
    return hooks.apart(definitions_of(sources))
