"""The way to the memory of agents, from a process that has no index: through the root of its node to a tool worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from actors.remote import ROOT, NamedActor
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, Recall
from owlclaw_ray.errors import RuntimeUnavailableError

SECONDS = 30.0
"""A call may take with all its waiting, as tools do unless their definition says otherwise."""
REINDEX_SECONDS = 300.0
"""What the answer to a reindexing may take: rows without vectors, which follow later."""
_TRANSFER_SECONDS = 5.0


class MemoryLink:
    """Implements IndexedMemory. The root asks, and not this process: tasks of its own would get cold workers of their own."""

    def __init__(self, namespace: str, seconds: float = SECONDS, on_the_way: float = _TRANSFER_SECONDS) -> None:
        self._root = NamedActor(ROOT, namespace)
        self._seconds, self._transfer_seconds = seconds, on_the_way

    async def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """See IndexedMemory.remember."""
        return cast("Memory", await self._ask("remember", agent, memory))

    async def recall(self, agent: AgentRef, query: str, limit: int, tags: Sequence[str], timezone: str) -> Recall:
        """See IndexedMemory.recall."""
        return cast("Recall", await self._ask("recall", agent, query, limit, tuple(tags), timezone))

    async def reindex(self, agent: AgentRef) -> int:
        """See IndexedMemory.reindex."""
        return cast("int", await self._ask_with_limit(REINDEX_SECONDS, "reindex", agent))

    async def refresh(self, agent: AgentRef) -> None:
        """See IndexedMemory.refresh."""
        await self._ask("refresh", agent)

    async def _ask(self, method: str, *arguments: object) -> object:
        return await self._ask_with_limit(self._seconds, method, *arguments)

    async def _ask_with_limit(self, seconds: float, method: str, *arguments: object) -> object:
        """Return the answer of a worker, who is ended if it takes longer; the root is waited for a little longer than that."""
        limit = seconds + self._transfer_seconds
        try:
            async with asyncio.timeout(limit):
                return await self._root.call.use_memory(method, arguments, seconds)
        except TimeoutError:
            raise RuntimeUnavailableError(f"{method} of a memory: no answer within {limit:g} s") from None
