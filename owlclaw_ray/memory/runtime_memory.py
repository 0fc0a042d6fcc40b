"""What agents remember, over their home and the processes that have an index of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.entries import recall_records
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.memory import Memory, MemoryStats, MemoryTextVersion, Recall
from owlclaw_ray.errors import (
    MemoryUnavailableError,
    NotFoundError,
    OwlClawError,
    RuntimeUnavailableError,
    StoreUnavailableError,
)
from owlclaw_ray.ids import IdSource, MemoryId, RecordId, RunId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.fair_order import Weights, equal_weights
from owlclaw_ray.kernel.fair_threads import FairThreads
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import AppendLedger, LedgerAppended

_T = TypeVar("_T")
_THREADS = 8
"""How many agents' files are read or written at once."""
_PATIENCE = 10.0
"""How long a call waits for its turn, in seconds."""

logger = logging.getLogger(__name__)


class IndexedMemory(Protocol):
    """The way to the processes that have an index, for one that has none.

    Raises RuntimeUnavailableError if they do not answer in time: then it may or may not have happened.
    """

    async def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """Store the memory in MEMORY.md as `LanceMemory.remember` does."""
        ...

    async def recall(self, agent: AgentRef, query: str, limit: int, tags: Sequence[str], timezone: str) -> Recall:
        """Return the best memories as `LanceMemory.recall` does."""
        ...

    async def reindex(self, agent: AgentRef) -> int:
        """Rebuild the agent's index as `LanceMemory.reindex` does."""
        ...

    async def refresh(self, agent: AgentRef) -> None:
        """Have the index follow soon what was changed in MEMORY.md."""
        ...


class MemoryLedger:
    """Commits records that belong to no run."""

    def __init__(self, store: CommandStore, clock: Clock, ids: IdSource) -> None:
        self._store, self._clock, self._ids = store, clock, ids

    @asynccontextmanager
    async def change(self, agent: AgentRef, what: str, by: str, data: JsonObject) -> AsyncIterator[None]:
        """Commit a record of the change before the block makes it, so that none is without; if it fails, another with the error.

        That one is `uncertain` if it is not known whether the change was made all the same. Raises StoreUnavailableError: then
        the block has not begun.
        """
        change: JsonObject = {"what": what, "by": by}
        await self._commit([self._record(agent, LedgerKind.MEMORY, {**change, **data})])
        try:
            yield
        except BaseException as error:
            certain = isinstance(error, OwlClawError) and not isinstance(error, RuntimeUnavailableError)
            failed: JsonObject = {**change, "memory_ids": data.get("memory_ids", [])}
            failed |= {"error": str(error) or type(error).__name__, "uncertain": not certain}
            await asyncio.shield(self._note([self._record(agent, LedgerKind.MEMORY, failed)]))
            raise

    async def merged(self, agent: AgentRef, by: str, memory_id: MemoryId, into: MemoryId) -> None:
        """Record that what was to become a memory of its own was one already."""
        data: JsonObject = {"what": "merge", "by": by, "memory_ids": [memory_id, into]}
        await self._note([self._record(agent, LedgerKind.MEMORY, data)])

    async def searched(self, agent: AgentRef, found: Recall) -> None:
        """Record what a person's search cost, and that it had no index; while the store is not there, the log has to do."""
        records = [self._record(agent, kind, data) for kind, _, data in recall_records(found)]
        if records:
            await self._note(records)

    async def _note(self, records: list[LedgerRecord]) -> None:
        try:
            await self._commit(records)
        except OwlClawError as error:
            logger.warning("the ledger lacks %s: %s", [each.data for each in records], error)

    async def _commit(self, records: list[LedgerRecord]) -> None:
        (outcome,) = await self._store.apply([AppendLedger(tuple(records))])
        if not isinstance(outcome, LedgerAppended):
            raise StoreUnavailableError(f"the ledger record was not stored: {outcome}")

    def _record(self, agent: AgentRef, kind: LedgerKind, data: JsonObject) -> LedgerRecord:
        return LedgerRecord(
            record_id=RecordId(self._ids.make("rec")),
            tenant=agent.tenant,
            agent_id=agent.agent_id,
            run_id=RunId(""),
            kind=kind,
            at=self._clock.now(),
            data=data,
        )


class AgentMemories:
    """The memories of all agents. Every method raises UnknownAgentError, and MemoryUnavailableError if the files cannot be used.

    What is written is on the disk when a method returns, whatever the agent does meanwhile, and the agent's next recall has it;
    what is changed or gone leaves the index soon after. Every change is in the ledger before it is made, with `by`, the caller
    who asked for it: StoreUnavailableError if that cannot be, and nothing was changed.

    Files are used in threads, which tenants get by weight and their agents in turns; who waits for ten seconds is told
    MemoryUnavailableError, and nothing was done.

    `require_known` raises UnknownAgentError; `behind` does what no caller waits for; `timezone_of` returns an agent's IANA zone.
    """

    def __init__(
        self,
        *,
        files: MemoryFolders,
        indexed: IndexedMemory,
        ledger: MemoryLedger,
        require_known: Callable[[AgentRef], Awaitable[None]],
        timezone_of: Callable[[AgentRef], Awaitable[str]],
        behind: Callable[[Coroutine[Any, Any, None]], None],
        clock: Clock,
        ids: IdSource,
        weight: Weights = equal_weights,
    ) -> None:
        self._threads = FairThreads("owlclaw-memories", _THREADS, 1, clock, weight)
        self._files, self._indexed, self._ledger = files, indexed, ledger
        self._require_known, self._timezone_of, self._behind = require_known, timezone_of, behind
        self._clock, self._ids = clock, ids

    async def memories(self, agent: AgentRef, *, archived: bool = False) -> Sequence[Memory]:
        """Return the active memories, or the archived ones instead, oldest first."""
        return await self._use(agent, lambda: (self._files.archived if archived else self._files.memories)(agent))

    async def memory(self, agent: AgentRef, memory_id: MemoryId) -> Memory:
        """Return a memory, active or archived; raises NotFoundError."""
        found = await self._first(agent, lambda each: each.memory_id == memory_id)
        if found is None:
            raise NotFoundError("memory", memory_id)
        return found

    async def search(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), *, archived: bool = False
    ) -> Recall:
        """Return what the agent would recall, or what its archive has of the words of the query; raises RuntimeUnavailableError."""
        await self._require_known(agent)
        timezone = await self._timezone_of(agent)
        if archived:
            return await self._use(agent, lambda: self._files.search_archive(agent, query, limit, tags, timezone))
        found = await self._indexed.recall(agent, query, limit, tags, timezone)
        await self._ledger.searched(agent, found)
        return found

    async def remember(
        self,
        agent: AgentRef,
        content: str,
        tags: Sequence[str] = (),
        *,
        by: str = "",
        idempotency_key: str | None = None,
    ) -> Memory:
        """Store a memory and return what is stored; the same key again stores nothing. Raises RuntimeUnavailableError."""
        await self._require_known(agent)
        key = self._ids.make("key") if idempotency_key is None else idempotency_key
        memory_id = MemoryId(derived_id("mem", agent.tenant, agent.agent_id, key, content, *tags))
        memory = Memory(memory_id, content, tuple(dict.fromkeys(tags)), self._clock.now())
        known = await self._first(agent, lambda each: memory_id in {each.memory_id, *each.merged})
        if known is not None:
            return known
        data: JsonObject = {"memory_ids": [memory_id], "content": content, "tags": list(memory.tags)}
        async with self._ledger.change(agent, "add", by, data):
            stored = await self._indexed.remember(agent, memory)
        if stored.memory_id != memory_id:
            await self._ledger.merged(agent, by, memory_id, stored.memory_id)
        return stored

    async def edit(
        self,
        agent: AgentRef,
        memory_id: MemoryId,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        by: str = "",
        old_content: str | None = None,
        old_tags: Sequence[str] | None = None,
    ) -> Memory:
        """Change an active memory as `MemoryFolders.edit` does."""
        if not await self._active(agent, {memory_id}):
            raise NotFoundError("memory", memory_id)
        new = {"content": content, "tags": None if tags is None else list(tags)}
        data = {"memory_ids": [memory_id], **{name: value for name, value in new.items() if value is not None}}
        async with self._ledger.change(agent, "edit", by, data):
            return await self._change(
                agent,
                lambda: self._files.edit(agent, memory_id, content, tags, old_content=old_content, old_tags=old_tags),
            )

    async def delete(self, agent: AgentRef, memory_id: MemoryId, *, by: str = "") -> Memory:
        """Remove an active or archived memory for good; return it. Raises NotFoundError."""
        await self.memory(agent, memory_id)
        async with self._ledger.change(agent, "delete", by, {"memory_ids": [memory_id]}):
            return await self._change(agent, lambda: self._files.delete(agent, memory_id))

    async def archive(self, agent: AgentRef, memory_ids: Collection[MemoryId], *, by: str = "") -> Sequence[Memory]:
        """Move these active memories to the archive; return those that there were."""
        chosen = await self._active(agent, memory_ids)
        if not chosen:
            return ()
        async with self._ledger.change(agent, "archive", by, {"memory_ids": chosen}):
            return await self._change(agent, lambda: self._files.archive(agent, chosen))

    async def text(self, agent: AgentRef) -> bytes:
        """Return MEMORY.md as it stands; empty if there is none."""
        return await self._use(agent, lambda: self._files.text(agent))

    async def put_text(
        self, agent: AgentRef, text: bytes, base: MemoryTextVersion | None = None, *, by: str = ""
    ) -> Sequence[Memory]:
        """Make this text MEMORY.md as `MemoryFolders.put_text` does, and return what was put back into it."""
        await self._require_known(agent)
        async with self._ledger.change(agent, "import", by, {"memory_ids": [], "bytes": len(text)}):
            return await self._change(agent, lambda: self._files.put_text(agent, text, base))

    async def archive_text(self, agent: AgentRef) -> bytes:
        """Return the archive as it stands; empty if there is none."""
        return await self._use(agent, lambda: self._files.archive_text(agent))

    async def put_archive_text(self, agent: AgentRef, text: bytes, *, by: str = "") -> Sequence[MemoryId]:
        """Have in the archive what this text has as `MemoryFolders.put_archive_text` does, and return the memories that are new in it."""
        await self._require_known(agent)
        async with self._ledger.change(agent, "import_archive", by, {"memory_ids": [], "bytes": len(text)}):
            return await self._use(agent, lambda: self._files.put_archive_text(agent, text))

    async def reindex(self, agent: AgentRef, *, by: str = "") -> int:
        """Rebuild the agent's index as `LanceMemory.reindex` does; raises RuntimeUnavailableError."""
        await self._require_known(agent)
        async with self._ledger.change(agent, "reindex", by, {"memory_ids": []}):
            return await self._indexed.reindex(agent)

    async def stats(self, agent: AgentRef) -> MemoryStats:
        """Return how much the agent remembers, and everything that is wrong with its files."""
        return await self._use(agent, lambda: self._files.stats(agent))

    async def _first(self, agent: AgentRef, is_it: Callable[[Memory], bool]) -> Memory | None:
        """Return the first memory that it is, of the active ones and then of the archived ones."""
        for kept in (self._files.memories, self._files.archived):
            for each in await self._use(agent, partial(kept, agent)):
                if is_it(each):
                    return each
        return None

    async def _active(self, agent: AgentRef, memory_ids: Collection[MemoryId]) -> list[MemoryId]:
        """Return those of the ids that are of active memories."""
        active = await self._use(agent, lambda: self._files.memories(agent))
        return [each.memory_id for each in active if each.memory_id in memory_ids]

    async def _change(self, agent: AgentRef, change: Callable[[], _T]) -> _T:
        """Make the change, and have the index follow when the caller has the answer."""
        try:
            changed = await self._use(agent, change)
        except asyncio.CancelledError:  # the thread goes on
            self._behind(self._refresh(agent))
            raise
        self._behind(self._refresh(agent))
        return changed

    async def _refresh(self, agent: AgentRef) -> None:
        try:
            await self._indexed.refresh(agent)
        except RuntimeUnavailableError as error:
            logger.warning("the index of %s follows at the next recall: %s", agent, error)

    async def _use(self, agent: AgentRef, work: Callable[[], _T]) -> _T:
        """Do it in a thread: they may be large, and another process may have them locked. One agent's calls are done one at a time."""
        await self._require_known(agent)
        try:
            return await self._threads.run((agent.tenant, agent.agent_id), work, _PATIENCE)
        except TimeoutError as error:
            message = f"the memory files of {agent} were used by other calls for {_PATIENCE:g} s"
            raise MemoryUnavailableError(message) from error
        except OSError as error:
            raise MemoryUnavailableError(f"the memory files of {agent} cannot be used: {error}") from error
