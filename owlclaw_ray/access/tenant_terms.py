"""What counts of tenants where their runs are executed: weights, asked for at each place that is shared out, and quotas."""

from __future__ import annotations

import asyncio
import logging
from math import inf

from owlclaw_ray.domain.quota import NO_QUOTAS, Quotas
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.errors import OwlClawError, RetryableError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import QueryFunction, QueryStore
from owlclaw_ray.store.queries import TenantById, TenantPage

FRESH_SECONDS = 5.0
"""After how long the tenants are read again, when somebody asks for one."""
_PAGE = 1_000

logger = logging.getLogger(__name__)


class TenantTerms:
    """Says of tenants what was read last. A runtime with the default tenant alone reads nothing."""

    def __init__(self, store: QueryStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._tenants: dict[TenantId, Tenant] = {}
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    def weight(self, tenant: TenantId) -> float:
        """Return the weight, at once: 1 before the tenants were read first."""
        if tenant == DEFAULT_TENANT:
            return 1.0
        self._refresh()
        found = self._tenants.get(tenant)
        return 1.0 if found is None else float(found.weight)

    async def quotas(self, tenant: TenantId) -> Quotas:
        """Return the quotas, once the tenants were read; without any as long as they cannot be."""
        if tenant == DEFAULT_TENANT:
            return NO_QUOTAS
        reading = self._refresh()
        if reading is not None:
            await asyncio.shield(reading)
        found = self._tenants.get(tenant)
        return NO_QUOTAS if found is None else found.quotas

    def _refresh(self) -> asyncio.Task[None] | None:
        stale = self._read_at is None or self._clock.monotonic() - self._read_at >= FRESH_SECONDS
        if stale and self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return self._reading

    async def _read(self) -> None:
        try:
            found: dict[TenantId, Tenant] = {}
            after = ""
            while True:
                page = await self._store.read(TenantPage(after, _PAGE))
                found |= {each.tenant: each for each in page}
                if len(page) < _PAGE:
                    break
                after = page[-1].tenant
            self._tenants = found
        except OwlClawError as error:
            logger.warning("the tenants could not be read, their weights and quotas stay as they were: %s", error)
        finally:
            self._read_at, self._reading = self._clock.monotonic(), None


class QuotasNow:
    """The quotas of tenants, for code in threads that is not asynchronous: as they were read last."""

    def __init__(self, read: QueryFunction, clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._known: dict[TenantId, tuple[float, Quotas]] = {}
        """Each with the time when it was asked for."""

    def quotas(self, tenant: TenantId) -> Quotas:
        """Return them; none as long as they could not be read."""
        if tenant == DEFAULT_TENANT:
            return NO_QUOTAS
        now = self._clock.monotonic()
        asked_at, known = self._known.get(tenant, (-inf, NO_QUOTAS))
        if now - asked_at < FRESH_SECONDS:
            return known
        try:
            found = self._read(TenantById(tenant))
            known = NO_QUOTAS if found is None else found.quotas
        except RetryableError as error:
            logger.warning("the quotas of %s could not be read, they stay as they were: %s", tenant, error)
        self._known[tenant] = now, known
        return known
