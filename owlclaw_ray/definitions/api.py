"""Agent definitions and the tool catalog, as an actor host asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId


def plain_name(name: str) -> str:
    """Return a definition's name without the tenant that a qualified name has."""
    return name.rpartition("/")[2]


class Definitions(Protocol):
    """Where definitions come from."""

    async def get(self, name: str) -> AgentDefinition:
        """Return the present version; raises UnknownAgentError or DefinitionError. `name`: see AgentRef.qualified_definition."""
        ...


class NamedDefinitions(Definitions, Protocol):
    """Definitions that can be listed."""

    async def names(self, tenant: TenantId = DEFAULT_TENANT) -> Sequence[str]:
        """Return the names of all definitions that the tenant may use, sorted."""
        ...

    async def own(self) -> Mapping[TenantId, Sequence[str]]:
        """Return the names of the definitions that tenants have of their own, sorted; tenants without any may be there."""
        ...

    async def reload(self, name: str) -> None:
        """Have the definition read again, even if its files look unchanged, wherever it is cached.

        Raises UnknownAgentError, DefinitionError.
        """
        ...
