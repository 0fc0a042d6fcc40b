"""remember, recall."""

from __future__ import annotations

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import MemoryId, derived_id
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.memory import MemoryStore
from owlclaw_ray.tools.builtin.arguments import Recall, Remember
from owlclaw_ray.tools.builtin.contract import Answer, Caller


class MemoryTools:
    """The agent's own long-term memory."""

    def __init__(self, memory: MemoryStore, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock

    def remember(self, arguments: Remember, caller: Caller) -> Answer:
        """Store a memory; a repeated call returns the first, and what says the same as an earlier one that one."""
        memory = Memory(
            memory_id=MemoryId(derived_id("mem", caller.idempotency_key)),
            content=arguments.content,
            tags=tuple(dict.fromkeys(arguments.tags)),
            created_at=self._clock.now(),
            run_id=caller.run_id,
        )
        try:
            stored = self._memory.remember(caller.agent, memory)
        except OSError as error:
            raise StoreUnavailableError(f"MEMORY.md cannot be written: {error.strerror or error}") from error
        return Answer(
            {
                "memory_id": stored.memory_id,
                "created_at": stored.created_at.isoformat(),
                "tags": list(stored.tags),
            }
        )

    def recall(self, arguments: Recall, caller: Caller) -> Answer:
        """Return what is found, best first, and whether the index was out of use."""
        found = self._memory.recall(caller.agent, arguments.query, arguments.limit, tuple(arguments.tags))
        memories = [
            {
                "memory_id": one.memory.memory_id,
                "content": one.memory.content,
                "tags": list(one.memory.tags),
                "created_at": one.memory.created_at.isoformat(),
                "score": round(one.score, 4),
            }
            for one in found.memories
        ]
        return Answer({"memories": memories, "count": len(memories), "degraded": found.degraded})
