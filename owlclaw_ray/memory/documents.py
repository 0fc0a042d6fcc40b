"""What an agent's memory is made of, wherever it is kept: MEMORY.md, its archive, and how they are changed together."""

from __future__ import annotations

import itertools
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.markdown import MemoryBlock, MemoryDocument

ACTIVE, ARCHIVE = "MEMORY.md", "MEMORY.archive.md"
ARCHIVE_HEADER = """# Archived memories

<!-- Moved out of MEMORY.md, oldest first. They are searched on request only. -->
"""
GENERATIONS = itertools.count(1)
"""Of all documents of this process."""
UNDATED = datetime.min.replace(tzinfo=UTC)
"""The time of entries without one in a document that has none."""
_IDS = re.compile(rb"^(?:## |merged: )(mem_.*)$", re.MULTILINE)
_ID = re.compile(rb"mem_[^\s,]+")
_R = TypeVar("_R")


class EntryDocument(Protocol):
    """MEMORY.md or its archive, read again only as far as it changed.

    `document` is what the last `load`, `append` or `rewrite` saw. Entries that are appended extend it; anything else makes
    another one, of another `generation`. Methods that write are for operations of AgentDocuments.change.
    """

    document: MemoryDocument
    generation: int

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call it: `MEMORY.md` or `MEMORY.archive.md`."""

    @property
    @abstractmethod
    def size(self) -> int:
        """In bytes, as it was loaded; 0 for one that is not there."""

    @abstractmethod
    def load(self) -> MemoryDocument:
        """Return what it says now; an absent one says nothing. Raises OSError if it cannot be read."""

    @abstractmethod
    def settle(self) -> None:
        """Load it, for a change; what people saved is made whole first: see ADR 23."""

    @abstractmethod
    def append(self, memories: Sequence[Memory]) -> None:
        """Put the memories at the end. It must have been loaded and must end with a whole entry.

        If it fails with OSError, it is as before.
        """

    @abstractmethod
    def append_unread(self, memories: Sequence[Memory]) -> bool:
        """Put the memories at the end without reading what is there.

        Returns False if that does not end with a whole entry, or is not as the runtime left it.
        """

    @abstractmethod
    def acknowledge(self, memory: Memory) -> None:
        """Return when what it says is durable, no matter which process wrote it, and it is recorded that this memory is in it."""

    @abstractmethod
    def forget(self) -> None:
        """Keep nothing of what was read."""

    @abstractmethod
    def rewrite(self, blocks: Sequence[MemoryBlock]) -> None:
        """Give the loaded document these blocks; a crash or an OSError leaves it as it was or as it is to be.

        An unfinished entry at its end is set aside.
        """

    @abstractmethod
    def overwrite(self, data: bytes) -> None:
        """Give the loaded document this content, which a person wrote from what it says now: what he deleted is deleted on purpose."""

    @abstractmethod
    def adopt(self, data: bytes) -> tuple[Memory, ...]:
        """Give the loaded document this content, which a person wrote from some copy of it; return what was put back.

        That is what was acknowledged in the last day and the copy lacks because it is older: see ADR 23.
        """

    @abstractmethod
    def forget_removed(self) -> None:
        """Leave nothing of what was removed beside the document, unless somebody saved it there since."""

    @abstractmethod
    def ids(self) -> AbstractSet[MemoryId]:
        """Return the ids in it now, merged ones included, without keeping what they say."""

    @abstractmethod
    def leftovers(self) -> Sequence[Problem]:
        """Return what lies beside it that people wrote and no agent reads."""

    def content(self) -> bytes:
        """Return the loaded document as it stands."""
        texts = (*(block.text for block in self.document.blocks), self.document.torn)
        return "".join(texts).encode("utf-8", "surrogateescape")


class AgentDocuments(Protocol):
    """The two documents of one agent. Not for several threads at once; other processes may use them meanwhile."""

    where: str
    """Names MEMORY.md in messages."""
    active: EntryDocument
    archive: EntryDocument

    @abstractmethod
    def read(self, document: EntryDocument) -> MemoryDocument:
        """Return what one of them says now; raises OSError if it cannot be read."""

    @abstractmethod
    def change(self, operation: Callable[[], _R]) -> _R:
        """Do what loads and changes them, alone among all writers, from the start again if others change them at the same moment.

        What it wrote is durable when this returns. Raises OSError if it cannot be written, and then all is as before, and
        RuntimeUnavailableError if it is not known whether it is.
        """

    @abstractmethod
    def leftovers(self) -> Sequence[Problem]:
        """Return what crashes left beside them."""


class MemoryHome(Protocol):
    """Where the documents of all agents are kept. For any number of threads."""

    @abstractmethod
    def documents(self, agent: AgentRef) -> AgentDocuments:
        """Return the agent's documents, for one thread at a time."""


def ids_in(data: bytes) -> set[MemoryId]:
    """Return the ids in the text of a document, merged ones included."""
    found = (each for line in _IDS.findall(data) for each in _ID.findall(line))
    return {MemoryId(each.decode("utf-8", "replace")) for each in found}
