"""What may wait for an agent outside the runtime's own queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject, JsonValue


class Rows(Protocol):
    """Databases of the application. Synchronous: they are asked from inside a tool worker."""

    def __call__(self, url: str, query: str, limit: int) -> Sequence[JsonObject]:
        """Return the first rows of a query that changes nothing."""
        ...


class EventSources(Protocol):
    """The application's event sources. Synchronous: they are asked from inside a tool worker."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        ...

    def query(self, name: str, agent: AgentRef) -> JsonValue:
        """Return what is pending by one of them; raises whatever it raises."""
        ...
