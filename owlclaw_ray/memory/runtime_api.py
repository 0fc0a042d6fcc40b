"""What agents remember, as HTTP, the CLI and tests ask for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, MemoryStats, Recall
from owlclaw_ray.ids import MemoryId


class IndexedMemory(Protocol):
    """The way to the processes that have an index, for one that has none.

    Raises RuntimeUnavailableError if they do not answer in time: then it may or may not have happened.
    """

    async def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """See MemoryStore.remember."""
        ...

    async def recall(self, agent: AgentRef, query: str, limit: int, tags: Sequence[str], timezone: str) -> Recall:
        """See MemoryStore.recall."""
        ...

    async def reindex(self, agent: AgentRef) -> int:
        """See MemoryStore.reindex."""
        ...

    async def refresh(self, agent: AgentRef) -> None:
        """See MemoryStore.refresh."""
        ...


class RuntimeMemory(Protocol):
    """The memories of all agents. Every method raises UnknownAgentError, and MemoryUnavailableError if the files cannot be used.

    What is written is on the disk when a method returns, whatever the agent does meanwhile, and the agent's next recall has it;
    what is changed or gone leaves the index soon after. Every change is in the ledger before it is made, with `by`, who says
    to make it: StoreUnavailableError if that cannot be, and nothing was changed.
    """

    async def memories(self, agent: AgentRef, *, archived: bool = False) -> Sequence[Memory]:
        """Return the active memories, or the archived ones instead, oldest first."""
        ...

    async def memory(self, agent: AgentRef, memory_id: MemoryId) -> Memory:
        """Return a memory, active or archived; raises NotFoundError."""
        ...

    async def search(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), *, archived: bool = False
    ) -> Recall:
        """Return what the agent would recall, or what its archive has of the words of the query; raises RuntimeUnavailableError."""
        ...

    async def remember(
        self,
        agent: AgentRef,
        content: str,
        tags: Sequence[str] = (),
        *,
        by: str = "",
        idempotency_key: str | None = None,
    ) -> Memory:
        """Store a memory and return what is stored; the same key again stores nothing. Raises RuntimeUnavailableError."""
        ...

    async def edit(
        self,
        agent: AgentRef,
        memory_id: MemoryId,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        by: str = "",
        old_content: str | None = None,
        old_tags: Sequence[str] | None = None,
    ) -> Memory:
        """See MemoryFiles.edit."""
        ...

    async def delete(self, agent: AgentRef, memory_id: MemoryId, *, by: str = "") -> Memory:
        """See MemoryFiles.delete."""
        ...

    async def archive(self, agent: AgentRef, memory_ids: Collection[MemoryId], *, by: str = "") -> Sequence[Memory]:
        """See MemoryFiles.archive."""
        ...

    async def reindex(self, agent: AgentRef, *, by: str = "") -> int:
        """See MemoryStore.reindex; raises RuntimeUnavailableError."""
        ...

    async def stats(self, agent: AgentRef) -> MemoryStats:
        """See MemoryFiles.stats."""
        ...
