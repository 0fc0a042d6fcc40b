"""Long-term memories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import MemoryId


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing that an agent chose to remember."""

    memory_id: MemoryId
    content: str
    tags: tuple[str, ...]
    created_at: datetime
    run_id: str = ""
    """The run that stored it; empty for one that a person wrote."""
    session: str = ""
    """The conversation it belongs to, if that is more than its run."""
    count: int = 1
    """How often it was remembered: near-duplicates are stored once."""
    merged: tuple[MemoryId, ...] = ()
    """The last near-duplicates that are counted here, so that each counts once."""


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


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """How much one agent remembers."""

    active: int
    archived: int
    file_bytes: int
    """Of MEMORY.md."""
    archive_bytes: int
    index_bytes: int
    oldest: datetime | None
    newest: datetime | None
    problems: tuple[Problem, ...]
    """Entries that could not be read as they were meant, each with its file and line. They are kept as they stand."""
