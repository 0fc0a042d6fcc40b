"""Agent definitions and the tool catalog, as an actor host asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from owlclaw_ray.domain.agent import AgentDefinition


class Definitions(Protocol):
    """Where definitions come from."""

    async def get(self, name: str) -> AgentDefinition:
        """Return the present version; raises UnknownAgentError or DefinitionError."""
        ...


class NamedDefinitions(Definitions, Protocol):
    """Definitions that can be listed."""

    async def names(self) -> Sequence[str]:
        """Return the names of all definitions, sorted."""
        ...

    async def reload(self, name: str) -> None:
        """Have the definition read again, even if its files look unchanged, wherever it is cached.

        Raises UnknownAgentError, DefinitionError.
        """
        ...
