"""What a server was started with, as operators may see it: its processes are told, for they read no settings themselves."""

from __future__ import annotations

from msgspec import Struct

from owlclaw_ray.configuration.setting_sources import SettingInForce
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import Problem


class ServerFacts(Struct, frozen=True):
    """What was known at the start."""

    settings: tuple[SettingInForce, ...] = ()
    tools: tuple[ToolDefinition, ...] = ()
    """All that agents can be given, but for those of MCP servers, which are known while these run."""
    problems: tuple[Problem, ...] = ()
    """Definitions that could not be used then, and what works, but not as its author meant."""


NO_FACTS = ServerFacts()
