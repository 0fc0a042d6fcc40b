"""What the ledger learns of memories that people change and search: there is no run to account for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.entries import recall_records
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.memory import Recall
from owlclaw_ray.errors import OwlClawError, RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.ids import IdSource, MemoryId, RecordId, RunId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import AppendLedger, LedgerAppended

logger = logging.getLogger(__name__)


class MemoryLedger:
    """Commits records that belong to no run."""

    def __init__(self, store: CommandStore, clock: Clock, ids: IdSource) -> None:
        self._store, self._clock, self._ids = store, clock, ids

    @asynccontextmanager
    async def change(self, agent: AgentRef, what: str, by: str, data: JsonObject) -> AsyncIterator[None]:
        """Commit a record of the change before the block makes it, so that none is without; if it fails, another with the error.

        That one is `uncertain` if nobody knows whether the change was made all the same. Raises StoreUnavailableError: then
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
