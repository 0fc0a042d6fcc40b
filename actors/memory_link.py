"""The way to the memory of agents, from a process that has no index: through the root of its node to a tool worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from actors.remote import ROOT, NamedActor
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, Recall
from owlclaw_ray.errors import RuntimeUnavailableError

if TYPE_CHECKING:  # the type of what the tool workers hold, whose index this process does without
    from owlclaw_ray.memory.lance import LanceMemory

R = TypeVar("R")

SECONDS = 30.0
"""A call may take with all its waiting, as tools do unless their definition says otherwise."""
REINDEX_SECONDS = 300.0
"""What the answer to a reindexing may take: rows without vectors, which follow later."""
_TRANSFER_SECONDS = 5.0


class _MemoryMethods:
    """Stands for a LanceMemory: has each of its methods, which returns its name and the arguments that it is to get behind the agent."""

    def __getattr__(self, method: str) -> Callable[..., tuple[str, tuple[object, ...]]]:
        return lambda _, *arguments: (method, arguments)


class MemoryLink:
    """Implements IndexedMemory. The root asks, and not this process: tasks of its own would get cold workers of their own."""

    def __init__(self, namespace: str, seconds: float = SECONDS, on_the_way: float = _TRANSFER_SECONDS) -> None:
        self._root = NamedActor(ROOT, namespace)
        self._seconds, self._transfer_seconds = seconds, on_the_way

    async def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """See IndexedMemory.remember."""
        return await self._ask(agent, lambda worker: worker.remember(agent, memory), self._seconds)

    async def recall(self, agent: AgentRef, query: str, limit: int, tags: Sequence[str], timezone: str) -> Recall:
        """See IndexedMemory.recall."""
        return await self._ask(
            agent, lambda worker: worker.recall(agent, query, limit, tuple(tags), timezone), self._seconds
        )

    async def reindex(self, agent: AgentRef) -> int:
        """See IndexedMemory.reindex."""
        return await self._ask(agent, lambda worker: worker.reindex(agent), REINDEX_SECONDS)

    async def refresh(self, agent: AgentRef) -> None:
        """See IndexedMemory.refresh."""
        await self._ask(agent, lambda worker: worker.refresh(agent), self._seconds)

    async def _ask(self, agent: AgentRef, question: Callable[[LanceMemory], R], seconds: float) -> R:
        """Return the answer of a worker to the one method that `question` calls; the worker is ended if it takes longer.

        The root is waited for a little longer than that.
        """
        method, arguments = cast("tuple[str, tuple[object, ...]]", question(cast("LanceMemory", _MemoryMethods())))
        limit = seconds + self._transfer_seconds
        try:
            async with asyncio.timeout(limit):
                return cast("R", await self._root.call.use_memory(agent, method, arguments, seconds))
        except TimeoutError:
            raise RuntimeUnavailableError(f"{method} of a memory: no answer within {limit:g} s") from None
