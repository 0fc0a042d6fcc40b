"""The weights of tenants, where places are shared out: asked for at each place, so they are read now and then, and never waited for."""

from __future__ import annotations

import asyncio
import logging

from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import TenantPage

FRESH_SECONDS = 5.0
"""After how long a weight is read again, when somebody asks for it."""
_PAGE = 1_000

logger = logging.getLogger(__name__)


class TenantWeights:
    """Says the weight of a tenant as it was read last; 1 before that. A runtime with the default tenant alone reads nothing."""

    def __init__(self, store: QueryStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._weights: dict[TenantId, float] = {}
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    def __call__(self, tenant: TenantId) -> float:
        """Return the weight, at once."""
        if tenant == DEFAULT_TENANT:
            return 1.0
        stale = self._read_at is None or self._clock.monotonic() - self._read_at >= FRESH_SECONDS
        if stale and self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return self._weights.get(tenant, 1.0)

    async def _read(self) -> None:
        try:
            found: dict[TenantId, float] = {}
            after = ""
            while True:
                page = await self._store.read(TenantPage(after, _PAGE))
                found |= {each.tenant: float(each.weight) for each in page}
                if len(page) < _PAGE:
                    break
                after = page[-1].tenant
            self._weights = found
        except OwlClawError as error:
            logger.warning("the weights of tenants could not be read, they stay as they were: %s", error)
        finally:
            self._read_at, self._reading = self._clock.monotonic(), None
