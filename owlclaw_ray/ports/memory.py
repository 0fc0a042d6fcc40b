"""Long-term memory of one agent after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory, Recall


class MemoryStore(Protocol):
    """MEMORY.md and its index. Synchronous: it runs inside a tool worker.

    An agent has one writer at a time (its runs are serial), so writes need no lock across processes; readers may come
    at any time.
    """

    def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """Append the memory durably to MEMORY.md (fsynced), then index it; return what is stored.

        A memory whose id is already there is not stored twice: the first is returned. If the index fails, the memory is
        stored all the same, and indexed at the next opportunity.
        """
        ...

    def recall(self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = ()) -> Recall:
        """Return up to `limit` memories, best first, that carry all of `tags`.

        An unusable index is no error: MEMORY.md is searched word by word and the recall is `degraded`. An agent without
        memories gives an empty recall.
        """
        ...

    def memories(self, agent: AgentRef) -> tuple[Memory, ...]:
        """Return all active memories as MEMORY.md has them, oldest first."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors of a fixed dimension, near in angle where the meaning is near."""

    @property
    def id(self) -> str:
        """The model and its version: vectors of different ids do not compare."""
        ...

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        ...

    def embed_queries(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector a text, for texts that ask. Any text is accepted; a very long one may be cut."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector a text, for texts that are searched."""
        ...
