"""Which memories leave MEMORY.md when it grows too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from owlclaw_ray.memory.markdown import Block


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How much one agent keeps active."""

    memories: int = 10_000
    size: int = 10 * 1024 * 1024
    """Bytes of MEMORY.md."""
    stale_after: timedelta = timedelta(days=90)
    """A file that is too large first loses everything older than this."""


def choose_for_archive(blocks: Sequence[Block], size: int, now: datetime, limits: ArchiveLimits) -> frozenset[int]:
    """Return the positions of the blocks to archive so that both limits hold: none while they hold.

    The oldest leave first. A hundredth of a limit is freed beyond the need, so that the file is not rewritten for every
    new memory.
    """
    if size <= limits.size and sum(block.memory is not None for block in blocks) <= limits.memories:
        return frozenset()
    oldest_first = sorted(
        (block.memory.created_at, number) for number, block in enumerate(blocks) if block.memory is not None
    )
    surplus = len(oldest_first) - limits.memories
    count = surplus + limits.memories // 100 if surplus > 0 else 0
    chosen = {number for _, number in oldest_first[:count]}
    if size <= limits.size:
        return frozenset(chosen)
    chosen |= {number for created_at, number in oldest_first if now - created_at > limits.stale_after}
    remaining = size - sum(_size(blocks[number]) for number in chosen)
    for _, number in oldest_first:
        if remaining <= limits.size - limits.size // 100:
            break
        if number not in chosen:
            chosen.add(number)
            remaining -= _size(blocks[number])
    return frozenset(chosen)


def _size(block: Block) -> int:
    return len(block.text.encode("utf-8", "surrogateescape"))
