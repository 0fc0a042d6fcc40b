"""Long-term memories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from owlclaw_ray.ids import MemoryId


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing that an agent chose to remember."""

    memory_id: MemoryId
    content: str
    tags: tuple[str, ...]
    created_at: datetime
    run_id: str = ""
    """The run that stored it; empty for one that a person wrote. Memories of one run are each other's session."""


@dataclass(frozen=True, slots=True)
class ScoredMemory:
    """A memory that a query found. Scores compare within one recall only; the best is first."""

    memory: Memory
    score: float


@dataclass(frozen=True, slots=True)
class Recall:
    """What a query found."""

    memories: tuple[ScoredMemory, ...]
    degraded: bool = False
    """Whether the index was unusable and MEMORY.md was searched word by word instead."""
    reason: str = ""
    """Why it is degraded."""
