"""Memories in the store: rows that every node reaches, changed in one transaction if nobody else changed them meanwhile.

A process keeps what it read, with the version of the agent's memory that it is of; the next look at it costs a question to the store
whose answer holds what was appended since. An operation is done on what was read and committed as one change of that version; if
another process was faster, all is read again and the operation begins again, as it does for files that somebody saves.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec.structs import replace
from typing_extensions import override

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import ACKNOWLEDGED, Memory, StoredDocument
from owlclaw_ray.errors import Problem, RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.ids import IdSource, MemoryId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.durable_files import FileChangedError
from owlclaw_ray.memory.acknowledged_record import (
    AcknowledgedEntry,
    acknowledged,
    changed,
    entries_of,
    followed,
    lacking,
    lines_of,
    put_back,
    recent,
)
from owlclaw_ray.memory.documents import (
    ACTIVE,
    ARCHIVE,
    ARCHIVE_HEADER,
    GENERATIONS,
    UNDATED,
    AgentDocuments,
    EntryDocument,
    MemoryHome,
    ids_in,
)
from owlclaw_ray.memory.lock import FileLock
from owlclaw_ray.memory.markdown import HEADER, MemoryBlock, MemoryDocument, begins_entry, parse, render
from owlclaw_ray.store.commands import (
    ChangeMemories,
    Command,
    DocumentChange,
    MemoriesChanged,
    MemoriesStored,
    Outcome,
    QuotaReached,
)
from owlclaw_ray.store.queries import AgentMemory, MemoryOfAgent, Query

logger = logging.getLogger(__name__)

MAX_DOCUMENT = 64 * 1024 * 1024
"""Bytes of a document in the store: an answer and a transaction hold all of it."""
_RECORD = ACKNOWLEDGED
_LARGE_RECORD = 256 * 1024
_TRIES = 100
"""At each of them but the last somebody else was faster, so all of them make progress."""
_PATIENCE = 5.0
"""For how long a Keeper that is being restarted is asked again, in seconds, and after how long each time."""
_PAUSE = 0.2
_T = TypeVar("_T")
_R = TypeVar("_R")


class MemoryStore(Protocol):
    """The store, as a thread reaches it."""

    def commit(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Return what the store answers to each command; raises StoreUnavailableError or RuntimeUnavailableError: it may have happened."""
        ...

    def read(self, query: Query[_T]) -> _T:
        """Return the answer of the store; raises StoreUnavailableError or RuntimeUnavailableError."""
        ...


class StoredHome(MemoryHome):
    """The tables `memories` and `memory_parts`. Writers of one node take turns at a lock below `data_dir`, so that few are too late.

    Who has that lock is waited for as long as `patience`, in seconds; None: however long.
    """

    def __init__(
        self, store: MemoryStore, data_dir: Path, clock: Clock, ids: IdSource, patience: float | None = None
    ) -> None:
        self._store, self._data_dir, self._clock, self._ids = store, data_dir, clock, ids
        self._patience = patience

    @override
    def documents(self, agent: AgentRef) -> AgentDocuments:
        lock = FileLock(self._data_dir / "agents" / agent.folder / ".lock", self._patience)
        return StoredDocuments(agent, self._store, lock, self._clock, self._ids)


class StoredDocuments(AgentDocuments):
    """The documents of one agent."""

    def __init__(self, agent: AgentRef, store: MemoryStore, lock: FileLock, clock: Clock, ids: IdSource) -> None:
        self.where = f"{ACTIVE} of {agent} in the store"
        self.transaction = DocumentTransaction(agent, store, clock, ids)
        self._lock = lock
        self.active = StoredEntries(ACTIVE, HEADER, self.transaction)
        self.archive = StoredEntries(ARCHIVE, ARCHIVE_HEADER, self.transaction)

    @override
    def read(self, document: EntryDocument) -> MemoryDocument:
        return document.load()

    @override
    def change(self, operation: Callable[[], _R]) -> _R:
        with self._lock:
            for _ in range(_TRIES):
                self.transaction.begin()
                try:
                    result = operation()
                    version = self.transaction.commit()
                except BaseException as error:
                    for each in (self.active, self.archive):
                        each.roll_back()
                    if not isinstance(error, FileChangedError):
                        raise
                else:
                    for each in (self.active, self.archive):
                        each.committed(version)
                    return result
                finally:
                    self.transaction.end()
        raise OSError(errno.EBUSY, "another process changes it at every try", self.where)

    @override
    def leftovers(self) -> Sequence[Problem]:
        return ()


class DocumentTransaction:
    """What an operation reads and changes of the documents of one agent, until it is committed."""

    def __init__(self, agent: AgentRef, store: MemoryStore, clock: Clock, ids: IdSource) -> None:
        self._agent, self._store, self._clock, self._ids = agent, store, clock, ids
        self._changes: dict[str, DocumentChange] = {}
        self._memory: AgentMemory | None = None
        self._is_open = False
        self._at = clock.now()

    def begin(self) -> None:
        """Begin a transaction."""
        self._changes, self._memory, self._is_open, self._at = {}, None, True, self._clock.now()

    def end(self) -> None:
        """Be without a transaction."""
        self._changes, self._memory, self._is_open = {}, None, False

    @property
    def began(self) -> datetime:
        """When it began, in whole seconds: the time of entries that have none."""
        return self._at.replace(microsecond=0)

    @property
    def at(self) -> int:
        """When it began, in nanoseconds."""
        return int(self._at.timestamp() * 1_000_000) * 1_000

    @property
    def version(self) -> int | None:
        """The version that it is made from, once anything was read; None outside of one."""
        return None if self._memory is None else self._memory.version

    def stored(self, document: str) -> StoredDocument | None:
        """Return what there is of a document."""
        memory = self._memory if self._memory is not None else self.read()
        return memory.documents.get(document)

    def read(self, document: str = "", after: int = 0) -> AgentMemory:
        """Return the memory, with what a document says since a version.

        Raises OSError if the store does not answer, and FileChangedError if the transaction has read another version.
        """
        query = MemoryOfAgent(self._agent, {document: after} if document else {})
        try:
            found = _patiently(lambda: self._store.read(query))
        except (StoreUnavailableError, RuntimeUnavailableError) as error:
            raise OSError(errno.EAGAIN, f"the store does not answer: {error}", document or ACTIVE) from error
        if self._is_open:
            if self._memory is not None and found.version != self._memory.version:
                raise FileChangedError
            self._memory = found
        return found

    def text_of(self, document: str) -> bytes:
        """Return what a document says, with what the transaction has changed of it."""
        change = self._changes.get(document)
        if change is not None and not change.appended:
            return change.text
        found = self.read(document).texts.get(document)
        return (b"" if found is None else found.text) + (b"" if change is None else change.text)

    def size_of(self, document: str) -> int:
        """Return how many bytes a document has, with what the transaction has changed of it."""
        change, stored = self._changes.get(document), self.stored(document)
        before = stored.size if stored is not None and (change is None or change.appended) else 0
        return before + (0 if change is None else len(change.text))

    def write(self, document: str, text: bytes, memories: int = 0) -> None:
        """Have the document say this from the commit on, which is so many memories. Raises OSError if it is too large."""
        self._check(document, len(text))
        self._changes[document] = DocumentChange(document, text, memories=memories)

    def append(self, document: str, text: bytes, memories: int = 0) -> None:
        """Have the document say this too, which is so many more memories. Raises OSError if it becomes too large."""
        self._check(document, self.size_of(document) + len(text))
        before = self._changes.get(document) or DocumentChange(document, b"", appended=True)
        self._changes[document] = replace(before, text=before.text + text, memories=before.memories + memories)

    def commit(self) -> int:
        """Return the version that is durable now.

        Raises FileChangedError if another process changed the memory meanwhile, and QuotaReachedError.
        """
        if not self._changes:
            return self.version or 0
        assert self._memory is not None
        changes = tuple(self._changes.values())
        command = ChangeMemories(self._agent, self._memory.version, self._ids.make("change"), changes, self._at)
        try:
            (outcome,) = _patiently(lambda: self._store.commit([command]))
        except (StoreUnavailableError, RuntimeUnavailableError) as error:
            message = f"it is not known whether the memory of {self._agent} was changed: {error}"
            raise RuntimeUnavailableError(message) from error
        match outcome:
            case MemoriesStored(version):
                return version
            case MemoriesChanged():
                raise FileChangedError
            case QuotaReached() as reached:
                raise reached.error(self._clock.now())
        raise OSError(errno.EIO, f"the store did not take it: {outcome}", ACTIVE)

    def _check(self, document: str, size: int) -> None:
        if size > MAX_DOCUMENT and document != _RECORD:
            reason = f"it would have {size:,} bytes, and the store takes {MAX_DOCUMENT:,}: delete what is not needed"
            raise OSError(errno.EFBIG, reason, document)


class StoredEntries(EntryDocument):
    """A document in the store. All that is there was written whole, and nobody changes it but in a transaction.

    What was acknowledged of MEMORY.md is a document beside it; the archive has none, for nobody saves copies of it.
    """

    def __init__(self, name: str, header: str, transaction: DocumentTransaction) -> None:
        self._name, self._header, self._transaction = name, header, transaction
        self.document, self.generation = MemoryDocument(), 0
        self._version = 0
        """Of the memory, when the document was read last; 0: it was not."""
        self._size = 0
        self._is_changed = self._is_appended_unread = self._is_forgotten = False
        self._ids: set[MemoryId] = set()
        self._ids_version = 0
        self._large_record = _LARGE_RECORD

    @property
    @override
    def name(self) -> str:
        return self._name

    @property
    @override
    def size(self) -> int:
        return self._size

    @override
    def load(self) -> MemoryDocument:
        assert not self._is_appended_unread
        if self._is_changed or (self._version and self._version == self._transaction.version):
            return self.document
        found = self._transaction.read(self._name, self._version)
        stored, text = found.documents.get(self._name), found.texts.get(self._name)
        if stored is None or text is None:
            if self._size:
                self._begin(b"", MemoryDocument())
        elif text.whole:
            self._begin(text.text, parse(text.text, stored.at.replace(microsecond=0)))
        elif text.text:
            self._go_on(text.text, stored.at.replace(microsecond=0))
        self._version = found.version
        return self.document

    @override
    def settle(self) -> None:
        self.load()

    @override
    def append(self, memories: Sequence[Memory]) -> None:
        texts = [render(memory) for memory in memories]
        entries = "".join(texts)
        if not self._size:
            self._write((self._header + entries).encode())
        else:
            last = self.document.blocks[-1].text if self.document.blocks else ""
            data = (entries if not last or last.endswith("\n") else "\n" + entries).encode()
            self._transaction.append(self._name, data, len(memories))
            self._is_changed = True
            self._go_on(data, self._transaction.began)
        at = self._transaction.at
        self._record([acknowledged(each, text, at) for each, text in zip(memories, texts, strict=True)])

    @override
    def append_unread(self, memories: Sequence[Memory]) -> bool:
        if self._is_changed or not self._transaction.size_of(self._name):
            return False
        self._transaction.append(self._name, "".join(map(render, memories)).encode(), len(memories))
        self._is_appended_unread = True
        return True

    @override
    def acknowledge(self, memory: Memory) -> None:
        """Whatever was read is durable, and on record."""

    @override
    def forget(self) -> None:
        self._is_forgotten = self._is_changed
        if not self._is_changed:
            self._begin(b"", MemoryDocument())
            self._version = 0

    @override
    def rewrite(self, blocks: Sequence[MemoryBlock]) -> None:
        before = self.document
        if not self._size and not blocks:
            return
        ended = [
            block if block.text.endswith("\n") else MemoryBlock(block.text + "\n", block.memory) for block in blocks
        ]
        data = "".join(block.text for block in ended).encode("utf-8", "surrogateescape")
        self._write(data, None if before.is_relative else MemoryDocument.of(ended))
        self._record(list(changed(before, blocks, self._transaction.at)))

    @override
    def overwrite(self, data: bytes) -> None:
        self._write(_ended(data))
        self._keep_record(followed(self._recorded(), self.document))

    @override
    def adopt(self, data: bytes) -> tuple[Memory, ...]:
        entries = self._recorded()
        self._write(_ended(data))
        missing = lacking(entries, self.document, self._transaction.at)
        if missing:
            self.rewrite(put_back(self.document, missing, self._transaction.began))
            logger.warning("%s was saved from an older copy: %d memories were put back", self._name, len(missing))
        self._keep_record(followed(entries, self.document))
        return missing

    @override
    def forget_removed(self) -> None:
        if self._name == ACTIVE and self._transaction.size_of(_RECORD):
            self._keep_record(self._recorded().values())

    @override
    def ids(self) -> AbstractSet[MemoryId]:
        stored = self._transaction.stored(self._name)
        if stored is None:
            self._ids, self._ids_version = set(), 0
        elif stored.changed > self._ids_version:
            found = self._transaction.read(self._name, self._ids_version)
            text = found.texts[self._name]
            self._ids = ids_in(text.text) | (set() if text.whole else self._ids)
            self._ids_version = found.version
        return self._ids

    @override
    def leftovers(self) -> Sequence[Problem]:
        return ()

    def committed(self, version: int) -> None:
        """Take note that what the document says now is durable as of this version."""
        if self._is_changed:
            self._version = version
        self._settled()
        if self._is_forgotten:
            self.forget()

    def roll_back(self) -> None:
        """Forget what the document was to say."""
        was_changed = self._is_changed
        self._settled()
        if was_changed:
            self.forget()

    def _settled(self) -> None:
        self._is_changed = self._is_appended_unread = False

    def _write(self, data: bytes, document: MemoryDocument | None = None) -> None:
        written = parse(data, self._transaction.began) if document is None else document
        self._transaction.write(self._name, data, len(written.by_id))
        self._is_changed = True
        self._begin(data, written)

    def _begin(self, data: bytes, document: MemoryDocument) -> None:
        self._size, self.document, self.generation = len(data), document, next(GENERATIONS)

    def _go_on(self, added: bytes, at: datetime) -> None:
        """Take in what was appended at a time."""
        if self.document.is_undated or not begins_entry(added):
            data = self.content() + added
            self._begin(data, parse(data, at))
        else:
            self.document.extend(added, at)
            self._size += len(added)

    def _recorded(self) -> dict[MemoryId, AcknowledgedEntry]:
        return entries_of(self._transaction.text_of(_RECORD))

    def _record(self, entries: Sequence[AcknowledgedEntry]) -> None:
        if self._name != ACTIVE:
            return
        self._transaction.append(_RECORD, lines_of(entries))
        if self._transaction.size_of(_RECORD) > self._large_record:
            self._keep_record(self._recorded().values())
            self._large_record = max(_LARGE_RECORD, 2 * self._transaction.size_of(_RECORD))

    def _keep_record(self, entries: Iterable[AcknowledgedEntry]) -> None:
        if self._name != ACTIVE:
            return
        self._transaction.write(_RECORD, lines_of(recent(entries, self._transaction.at)))


def _ended(data: bytes) -> bytes:
    """Return what a person wrote with its last entry ended: nobody was interrupted in writing it."""
    data = data.rstrip(b"\0")
    if data and not data.endswith(b"\n"):
        data += b"\n"
    document = parse(data, UNDATED)
    return data + b"\n---\n" if document.torn or document.unfinished else data


def _patiently(call: Callable[[], _R]) -> _R:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return call()
        except (StoreUnavailableError, RuntimeUnavailableError):
            if time.monotonic() >= until:
                raise
        time.sleep(_PAUSE)
