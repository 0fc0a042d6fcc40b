"""Agent definitions and the tool catalog, as an actor host asks for them."""

from __future__ import annotations

from typing import Protocol

from owlclaw_ray.domain.agent import AgentDefinition


class Definitions(Protocol):
    """Where definitions come from."""

    async def get(self, name: str) -> AgentDefinition:
        """Return the present version; raises UnknownAgentError or DefinitionError."""
        ...
