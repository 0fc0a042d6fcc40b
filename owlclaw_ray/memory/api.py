"""Long-term memory of one agent after another: its files and its index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, MemoryStats, Recall
from owlclaw_ray.ids import MemoryId


class MemoryFiles(Protocol):
    """MEMORY.md and the archive beside it, of one agent after another: all that can be had without an index.

    Synchronous, and for any number of threads and processes; people may edit the files meanwhile. Every method may raise
    OSError for a file that is there and cannot be read or written; what was not changed then is as it was before.
    """

    def memories(self, agent: AgentRef) -> tuple[Memory, ...]:
        """Return all active memories in the order of MEMORY.md, oldest first unless people changed it."""
        ...

    def archived(self, agent: AgentRef) -> tuple[Memory, ...]:
        """Return what is in the archive, in the order of its archiving."""
        ...

    def search_archive(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), timezone: str = "UTC"
    ) -> Recall:
        """Return up to `limit` archived memories that share words with the query and carry all of `tags`, best first.

        The query's days are those of the IANA zone.
        """
        ...

    def edit(
        self,
        agent: AgentRef,
        memory_id: MemoryId,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        old_content: str | None = None,
        old_tags: Sequence[str] | None = None,
    ) -> Memory:
        """Give an active memory another content, other tags, or both; return it. Its id and time stay.

        Raises NotFoundError if there is no such active memory, and MemoryChangedError if it does not have `old_content` or
        `old_tags` (in any order), where they are given.
        """
        ...

    def delete(self, agent: AgentRef, memory_id: MemoryId) -> Memory:
        """Remove an active or archived memory for good; return it. Raises NotFoundError if there is none."""
        ...

    def archive(self, agent: AgentRef, memory_ids: Collection[MemoryId]) -> tuple[Memory, ...]:
        """Move these active memories to the archive; return those that there were. What is archived is not recalled."""
        ...

    def stats(self, agent: AgentRef) -> MemoryStats:
        """Return how much the agent remembers, and everything that is wrong with its files."""
        ...


class MemoryStore(Protocol):
    """What agents remember, with an index made from MEMORY.md. Synchronous: it runs inside a tool worker.

    For any number of threads and processes. All errors of the index stay inside: MEMORY.md is the truth, and the index is
    made again from it.
    """

    def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """Store the memory in MEMORY.md and return what is stored, fsynced; the index follows in its own time.

        A memory whose id is already there, in the archive too, is not stored again: the first is returned. One that is
        equal to an active memory but for its form is merged into it: tags united, the newer time, `count` raised, once for each
        id, and its text kept in `also`.
        """
        ...

    def recall(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), timezone: str = "UTC"
    ) -> Recall:
        """Return up to `limit` memories, best first, that carry all of `tags`, everything remembered before included.

        Days that the query names, such as "yesterday", are those of the IANA zone.
        An unusable index is no error: MEMORY.md is searched word by word and the recall is `degraded`. An agent without
        memories gives an empty recall.
        """
        ...

    def reindex(self, agent: AgentRef) -> int:
        """Throw the agent's index away, make it anew from MEMORY.md, and return how many memories it holds.

        Raises OwlClawError if that is not possible.
        """
        ...

    def refresh(self, agent: AgentRef) -> None:
        """Have the index follow soon what others than this object changed in MEMORY.md: what is gone there leaves it."""
        ...

    def search_archive(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), timezone: str = "UTC"
    ) -> Recall:
        """See MemoryFiles.search_archive."""
        ...

    def settle(self) -> None:
        """Return when the index holds all that was remembered through this object, or cannot."""
        ...
