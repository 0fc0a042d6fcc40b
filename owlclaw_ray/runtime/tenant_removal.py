"""Deleting tenants: their runs end, then their rows go, then their files, then their ledgers are sealed."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.tenant import Tenant, TenantStatus
from owlclaw_ray.errors import OwlClawError, RetryableError, StoreUnavailableError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    EndRun,
    RemoveTenantRows,
    RunIsOver,
    SealTenant,
    TenantLeft,
    TenantRowsRemoved,
    TenantSealed,
)
from owlclaw_ray.store.queries import TenantPage
from owlclaw_ray.store.tenant_rows import OpenRuns

FILES_AFTER = timedelta(seconds=60)
"""How long after a deletion was requested files are removed: what was executed then has ended, and writes none any more."""
_RUNS_AT_ONCE = 100
_TENANTS_AT_ONCE = 1_000

logger = logging.getLogger(__name__)


class TenantFiles(Struct, frozen=True):
    """Files of a tenant that were removed, or are there, in some place."""

    number: int
    unreached: tuple[str, ...] = ()
    """Nodes that could not be asked."""


class TenantPlace(Protocol):
    """Where tenants have files, beside the store. Used from threads."""

    name: str

    @abstractmethod
    def remove(self, tenant: TenantId) -> TenantFiles:
        """Remove all files of the tenant, as far as they can be reached. Raises OSError, RetryableError."""

    @abstractmethod
    def left(self, tenant: TenantId) -> TenantFiles:
        """Return which are there. Raises as `remove`."""


class TenantRemoval:
    """Goes on with all deletions. Whatever is killed meanwhile, the next tick, of whichever process, goes on where the store says."""

    def __init__(
        self,
        store: Store,
        places: Sequence[TenantPlace],
        cancel: Callable[[AgentRef, RunId], Awaitable[object]],
        clock: Clock,
    ) -> None:
        """`cancel` tells the host of an agent that a run of it ends."""
        self._store, self._places, self._cancel, self._clock = store, places, cancel, clock

    async def tick(self) -> int:
        """Go on with each deletion as far as it goes now; return how many tenants were deleted to the end."""
        sealed, after = 0, ""
        while page := await self._store.read(TenantPage(after, _TENANTS_AT_ONCE, TenantStatus.DELETING)):
            for tenant in page:
                try:
                    sealed += await self._delete(tenant)
                except (OwlClawError, OSError) as error:
                    logger.warning("the deletion of tenant %s is not over, it goes on: %s", tenant.tenant, error)
            after = page[-1].tenant
        return sealed

    async def _delete(self, tenant: Tenant) -> bool:
        """Return whether the tenant is deleted."""
        assert tenant.deletion is not None
        await self._end_runs(tenant.tenant)
        await self._remove_rows(tenant.tenant)
        if self._clock.now() - tenant.deletion.requested_at < FILES_AFTER:
            return False
        left, unreached = dict[str, int](), list[str]()
        for place in self._places:
            removed = await asyncio.to_thread(place.remove, tenant.tenant)
            if removed.number:
                await self._store.apply([RemoveTenantRows(tenant.tenant, {place.name: removed.number})])
            found = await asyncio.to_thread(place.left, tenant.tenant)
            left[place.name] = found.number
            unreached += [*removed.unreached, *found.unreached]
        seal = SealTenant(tenant.tenant, self._clock.now(), left, tuple(dict.fromkeys(unreached)))
        match (await self._store.apply([seal]))[0]:
            case TenantSealed():
                logger.info("tenant %s is deleted, its ledger is sealed", tenant.tenant)
                return True
            case TenantLeft(found_left):
                logger.warning("of tenant %s there is left: %s; it is tried again", tenant.tenant, dict(found_left))
                return False
            case other:
                raise StoreUnavailableError(f"the ledger was not sealed: {other}")

    async def _end_runs(self, tenant: TenantId) -> None:
        """End what is queued, executed or waits, and tell the hosts, who would learn it with the next fact that they store."""
        while found := await self._store.read(OpenRuns(tenant, _RUNS_AT_ONCE)):
            now = self._clock.now()
            for outcome in await self._store.apply([EndRun(each.agent, each.run_id, now) for each in found]):
                if not isinstance(outcome, RunIsOver):
                    raise StoreUnavailableError(f"a run was not ended: {outcome}")
            for each in found:
                if not each.queued:
                    try:
                        await self._cancel(each.agent, each.run_id)
                    except RetryableError as error:
                        logger.warning(
                            "the host of %s was not told that %s is over: %s", each.agent, each.run_id, error
                        )

    async def _remove_rows(self, tenant: TenantId) -> None:
        while True:
            match (await self._store.apply([RemoveTenantRows(tenant)]))[0]:
                case TenantRowsRemoved(removed) if not removed:
                    return
                case TenantRowsRemoved():
                    continue
                case other:
                    raise StoreUnavailableError(f"its rows were not removed: {other}")
