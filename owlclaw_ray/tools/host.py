"""Tools that work on the machine itself: which are turned on, and their adapters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.code.options import CodeOptions
from owlclaw_ray.tools.declarative.options import DeclarativeOptions

if TYPE_CHECKING:
    from owlclaw_ray.tools.adapter import ToolAdapter


class HostTools(Struct, frozen=True):
    """Plain facts: they travel to every worker."""

    code: CodeOptions | None = None
    """None: the code tools are off."""
    declarative: DeclarativeOptions | None = None
    """None: there is no tools folder."""
    agents: AgentOptions | None = None
    """None: the agent tools are off."""


class BrokenFilePolicy(Enum):
    """What to do about a file of a declarative tool that cannot be used."""

    REFUSE = "refuse"
    """Raise ConfigurationError with all problems: at the start."""
    LEAVE_OUT = "leave out"
    """Log it and go on with the others: in a worker that starts later, when an edit must not stop every other tool."""


def host_sources(tools: HostTools, environ: Mapping[str, str], broken: BrokenFilePolicy) -> tuple[ToolAdapter, ...]:
    """Return the adapters of what is turned on. `environ` is where programs get the variables from that they may see."""
    sources: list[ToolAdapter] = []
    if tools.code is not None:
        from owlclaw_ray.tools.code.toolset import CodeTools

        sources.append(CodeTools(tools.code, environ))
    if tools.declarative is not None:
        from owlclaw_ray.tools.declarative.loader import load_tools, load_usable_tools

        load = load_tools if broken is BrokenFilePolicy.REFUSE else load_usable_tools
        sources += load(tools.declarative, environ)
    return tuple(sources)
