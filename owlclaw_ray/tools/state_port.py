"""State of the business, as an agent asks for it."""

from __future__ import annotations

from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonValue


class States(Protocol):
    """The application's state providers by name. Synchronous: it is called from inside a tool worker."""

    def query(self, name: str, agent: AgentRef) -> JsonValue:
        """Return the present state of that name for the agent, as JSON.

        Raises NotFoundError, its message naming the states that exist, and whatever the provider raises.
        """
        ...
