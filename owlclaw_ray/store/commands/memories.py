"""The command about the documents of memories, and its outcomes."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef


class DocumentChange(Struct, frozen=True):
    """What becomes of one document: this text in the place of what it was, or after that."""

    document: str
    text: bytes
    appended: bool = False
    memories: int = 0
    """How many memories the document has then; how many more, if it is appended."""


class ChangeMemories(Struct, frozen=True):
    """Change documents of an agent's memory, all or none, if its version is the `expected` one (0: there is nothing yet).

    Outcome: MemoriesStored, MemoriesChanged, or QuotaReached if the tenant would have more than it may, and more than before.
    `change_id` names this change: the same one again changes nothing, unless there was another in between.
    """

    agent: AgentRef
    expected: int
    change_id: str
    changes: tuple[DocumentChange, ...]
    at: datetime


class MemoriesStored(Struct, frozen=True):
    """The change is durable, or was before: the memory has this version."""

    version: int


class MemoriesChanged(Struct, frozen=True):
    """Somebody else changed it: it has this version. Nothing was changed."""

    version: int
