"""The way to the memory of agents, from a process that has no index: through the root of its node to a tool worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from actors.remote import ROOT, Named
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, Recall


class MemoryLink:
    """Implements IndexedMemory. The root asks, and not this process: tasks of its own would get cold workers of their own."""

    def __init__(self, namespace: str) -> None:
        self._root = Named(ROOT, namespace)

    async def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """See IndexedMemory.remember."""
        return cast("Memory", await self._ask("remember", agent, memory))

    async def recall(self, agent: AgentRef, query: str, limit: int, tags: Sequence[str]) -> Recall:
        """See IndexedMemory.recall."""
        return cast("Recall", await self._ask("recall", agent, query, limit, tuple(tags)))

    async def reindex(self, agent: AgentRef) -> int:
        """See IndexedMemory.reindex."""
        return cast("int", await self._ask("reindex", agent))

    async def _ask(self, method: str, *arguments: object) -> object:
        return await self._root.ask_packed("use_memory", method, arguments)
