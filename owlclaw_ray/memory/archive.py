"""Which memories leave MEMORY.md when it grows too large, and which leave for good."""

from __future__ import annotations

from datetime import datetime

from owlclaw_ray.domain.memory import Memory, MemoryLimits
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.markdown import MemoryBlock, MemoryDocument


def choose_for_archive(document: MemoryDocument, size: int, now: datetime, limits: MemoryLimits) -> frozenset[MemoryId]:
    """Return the memories to archive so that both limits hold: none while they hold.

    The oldest leave first. A hundredth of a limit is freed beyond the need, so that the file is not rewritten for every
    new memory.
    """
    surplus = len(document.by_id) - limits.memories
    if size <= limits.size and surplus <= 0:
        return frozenset()
    sizes = {block.memory.memory_id: _size(block) for block in document.blocks if block.memory is not None}
    oldest_first = sorted(document.by_id.values(), key=lambda memory: memory.created_at)
    count = surplus + limits.memories // 100 if surplus > 0 else 0
    chosen = {memory.memory_id for memory in oldest_first[:count]}
    if size <= limits.size:
        return frozenset(chosen)
    chosen |= {memory.memory_id for memory in oldest_first if now - memory.created_at > limits.stale_after}
    remaining = size - sum(sizes[memory_id] for memory_id in chosen)
    for memory in oldest_first:
        if remaining <= limits.size - limits.size // 100:
            break
        if memory.memory_id not in chosen:
            chosen.add(memory.memory_id)
            remaining -= sizes[memory.memory_id]
    return frozenset(chosen)


def is_expired(memory: Memory, now: datetime, limits: MemoryLimits) -> bool:
    """Return whether the memory is to be removed for good: counted in whole days, so that files change once a day."""
    return limits.retention is not None and memory.created_at.date() < (now - limits.retention).date()


def _size(block: MemoryBlock) -> int:
    return len(block.text.encode("utf-8", "surrogateescape"))
