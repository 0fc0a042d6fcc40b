"""The retention of webhooks and callbacks."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ForgetWebhooks, WebhooksForgotten
from owlclaw_ray.store.queries import OldCallbacks, OldDeliveries
from owlclaw_ray.store.retention import limits_of_age, moment_of_sweep, note_sweep

_BATCH = 500

logger = logging.getLogger(__name__)


class WebhookExpiry:
    """Removes deliveries that are not waiting, and callbacks that are delivered or dead, when they are older than their tenant keeps
    them. `keep` is for tenants that say nothing of their own; None: for ever.
    """

    def __init__(self, store: Store, keep: timedelta | None, clock: Clock) -> None:
        self._store, self._keep, self._clock = store, keep, clock

    async def tick(self) -> int:
        """Remove what has expired; return how much that was. Raises StoreUnavailableError."""
        total, now = 0, await moment_of_sweep(self._store, Kept.WEBHOOKS, self._clock.now())
        async for tenant, before in limits_of_age(self._store, Kept.WEBHOOKS, self._keep, now):
            removed = await self._remove(tenant, before)
            if removed:
                logger.info(
                    "%d deliveries and callbacks of tenant %s from before %s were removed", removed, tenant, before
                )
            total += removed
        await note_sweep(self._store, Kept.WEBHOOKS, now)
        return total

    async def _remove(self, tenant: TenantId, before: datetime) -> int:
        removed, more = 0, True
        while more:
            deliveries = await self._store.read(OldDeliveries(tenant, before, _BATCH))
            callbacks = await self._store.read(OldCallbacks(tenant, before, _BATCH))
            if deliveries or callbacks:
                (outcome,) = await self._store.apply([ForgetWebhooks(tuple(deliveries), tuple(callbacks))])
                if not isinstance(outcome, WebhooksForgotten):
                    raise StoreUnavailableError(f"expired webhooks were not removed: {outcome}")
            removed += len(deliveries) + len(callbacks)
            more = _BATCH in {len(deliveries), len(callbacks)}
        return removed
