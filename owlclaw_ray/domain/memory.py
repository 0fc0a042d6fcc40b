"""Long-term memories."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import asdict

from owlclaw_ray.domain.embedding import EmbeddedCall
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import MemoryId


class MemoryHomeKind(Enum):
    """Where the truth about what agents remember is."""

    FILES = "files"
    """MEMORY.md and its archive, in the data folder."""
    DATABASE = "database"
    """Rows of the store, which every node reaches."""


class Memory(Struct, frozen=True):
    """One thing that an agent chose to remember."""

    memory_id: MemoryId
    content: str
    tags: tuple[str, ...]
    created_at: datetime
    run_id: str = ""
    """The run that stored it; empty for one that a person wrote."""
    session: str = ""
    """The conversation it belongs to, if that is more than its run: as people say in MEMORY.md, nothing else knows."""
    count: int = 1
    """How often it was remembered: duplicates are stored once."""
    merged: tuple[MemoryId, ...] = ()
    """The last duplicates that are counted here, so that each counts once."""
    also: tuple[str, ...] = ()
    """The texts of duplicates that were written in other ways than `content`."""


class ScoreParts(Struct, frozen=True):
    """What a score is made of: word_share x words + (1 - word_share) x meaning + neighbours + day + newer."""

    words: float
    """How well its words fit, 0 to 1: against the best of this recall, or against a full match if none comes near one."""
    meaning: float
    """How near its meaning is, between the farthest and the nearest of this recall: 0 to 1."""
    word_share: float
    """The weight of words: less for a query in Chinese, Japanese or Korean, 1 without an embedder."""
    neighbours: float
    """What it gains from the memories beside it in its session."""
    bm25: float | None
    """The score by words as it was; None if the search by words did not find it."""
    cosine: float | None
    """The cosine as it was; None if the search by meaning did not find it, or there was none."""
    day: float = 0.0
    """What it gains for having been stored on a day that the query names."""
    newer: float = 0.0
    """What raises it to the score of an older memory that it replaces: on what was asked it says something else."""

    @property
    def score(self) -> float:
        """The whole."""
        relevance = self.word_share * self.words + (1 - self.word_share) * self.meaning
        return relevance + self.neighbours + self.day + self.newer

    def as_json(self) -> JsonObject:
        """Return every part by its name, rounded for people."""
        return {name: None if value is None else round(value, 4) for name, value in asdict(self).items()}


class ScoredMemory(Struct, frozen=True):
    """A memory that a query found. Scores compare within one recall only; the best is first."""

    memory: Memory
    parts: ScoreParts

    @property
    def score(self) -> float:
        """How well it fits."""
        return self.parts.score


class Recall(Struct, frozen=True):
    """What a query found."""

    memories: tuple[ScoredMemory, ...]
    degraded: bool = False
    """Whether the index was unusable and MEMORY.md was searched word by word instead."""
    reason: str = ""
    """Why it is degraded."""
    embeddings: tuple[EmbeddedCall, ...] = ()
    """Calls of a provider's model that were made for it."""


class MemoryStats(Struct, frozen=True):
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
    """Each with its file: entries that could not be read as they were meant, which are kept as they stand; memories that were
    put back because an older copy of the file was saved; and files that hold what somebody wrote and no agent reads."""


ACKNOWLEDGED = ".MEMORY.md.acknowledged"
"""The document that says what MEMORY.md had when: it is of the runtime, and counts for no quota."""


class StoredDocument(Struct, frozen=True):
    """A document of an agent's memory in the store. Versions are those of the whole memory."""

    begun: int
    """The version in which it was written as a whole; what came later is appended to that."""
    changed: int
    """The version in which it was changed last."""
    size: int
    """In bytes."""
    at: datetime
    """When it was changed last."""
    memories: int | None = None
    """How many memories it has; None: a runtime that did not count them has changed it."""


class MemoryLimits(Struct, frozen=True):
    """How much one agent keeps active, and how long it keeps anything."""

    memories: int = 10_000
    size: int = 10 * 1024 * 1024
    """Bytes of MEMORY.md."""
    stale_after: timedelta = timedelta(days=90)
    """A file that is too large first loses everything older than this."""
    retention: timedelta | None = None
    """What is older is removed for good, from the archive too; None: nothing is."""


class MemoryTextVersion(Struct, frozen=True):
    """What tells one text of MEMORY.md from another, and whether a later one only goes on after it."""

    size: int
    digest: str

    @classmethod
    def of(cls, text: bytes) -> MemoryTextVersion:
        """Return the version that is this text."""
        return cls(len(text), blake2b(text, digest_size=16).hexdigest())

    def begins(self, text: bytes) -> bool:
        """Return whether the text is this version, or this version and something after it."""
        return len(text) >= self.size and MemoryTextVersion.of(text[: self.size]) == self
