"""What agents remember, over their files and the processes that have an index of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, MemoryStats, Recall
from owlclaw_ray.errors import MemoryUnavailableError, NotFoundError
from owlclaw_ray.ids import IdSource, MemoryId, derived_id
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.memory import MemoryFiles
from owlclaw_ray.ports.runtime_memory import IndexedMemory

_T = TypeVar("_T")


class AgentMemories:
    """Implements RuntimeMemory. `require_known` raises UnknownAgentError."""

    def __init__(
        self,
        files: MemoryFiles,
        indexed: IndexedMemory,
        require_known: Callable[[AgentRef], object],
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._files, self._indexed, self._require_known = files, indexed, require_known
        self._clock, self._ids = clock, ids

    async def memories(self, agent: AgentRef, *, archived: bool = False) -> Sequence[Memory]:
        """See RuntimeMemory.memories."""
        return await self._use(agent, lambda: (self._files.archived if archived else self._files.memories)(agent))

    async def memory(self, agent: AgentRef, memory_id: MemoryId) -> Memory:
        """See RuntimeMemory.memory."""
        everything = await self._use(agent, lambda: (*self._files.memories(agent), *self._files.archived(agent)))
        found = next((each for each in everything if each.memory_id == memory_id), None)
        if found is None:
            raise NotFoundError("memory", memory_id)
        return found

    async def search(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), *, archived: bool = False
    ) -> Recall:
        """See RuntimeMemory.search."""
        if archived:
            return await self._use(agent, lambda: self._files.search_archive(agent, query, limit, tags))
        self._require_known(agent)
        return await self._indexed.recall(agent, query, limit, tags)

    async def remember(
        self, agent: AgentRef, content: str, tags: Sequence[str] = (), *, idempotency_key: str | None = None
    ) -> Memory:
        """See RuntimeMemory.remember."""
        self._require_known(agent)
        key = self._ids.make("key") if idempotency_key is None else idempotency_key
        memory_id = MemoryId(derived_id("mem", agent.tenant, agent.agent_id, key, content, *tags))
        memory = Memory(memory_id, content, tuple(dict.fromkeys(tags)), self._clock.now())
        return await self._indexed.remember(agent, memory)

    async def edit(
        self,
        agent: AgentRef,
        memory_id: MemoryId,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        old_content: str | None = None,
        old_tags: Sequence[str] | None = None,
    ) -> Memory:
        """See RuntimeMemory.edit."""
        return await self._use(
            agent,
            lambda: self._files.edit(agent, memory_id, content, tags, old_content=old_content, old_tags=old_tags),
        )

    async def delete(self, agent: AgentRef, memory_id: MemoryId) -> Memory:
        """See RuntimeMemory.delete."""
        return await self._use(agent, lambda: self._files.delete(agent, memory_id))

    async def archive(self, agent: AgentRef, memory_ids: Collection[MemoryId]) -> Sequence[Memory]:
        """See RuntimeMemory.archive."""
        return await self._use(agent, lambda: self._files.archive(agent, memory_ids))

    async def reindex(self, agent: AgentRef) -> int:
        """See RuntimeMemory.reindex."""
        self._require_known(agent)
        return await self._indexed.reindex(agent)

    async def stats(self, agent: AgentRef) -> MemoryStats:
        """See RuntimeMemory.stats."""
        return await self._use(agent, lambda: self._files.stats(agent))

    async def _use(self, agent: AgentRef, work: Callable[[], _T]) -> _T:
        """Do it in a thread: they may be large, and another process may have them locked."""
        self._require_known(agent)
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise MemoryUnavailableError(f"the memory files of {agent} cannot be used: {error}") from error
