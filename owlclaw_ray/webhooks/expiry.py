"""The retention of webhooks and callbacks."""

from __future__ import annotations

import logging
from datetime import timedelta

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ForgetWebhooks, WebhooksForgotten
from owlclaw_ray.store.queries import OldCallbacks, OldDeliveries

_BATCH = 500

logger = logging.getLogger(__name__)


class WebhookExpiry:
    """Removes deliveries that are not waiting, and callbacks that are delivered or dead, when they are older than `keep`."""

    def __init__(self, store: Store, keep: timedelta, clock: Clock) -> None:
        self._store, self._keep, self._clock = store, keep, clock

    async def tick(self) -> int:
        """Remove what has expired; return how much that was. Raises StoreUnavailableError."""
        before, removed, more = self._clock.now() - self._keep, 0, True
        while more:
            deliveries = await self._store.read(OldDeliveries(before, _BATCH))
            callbacks = await self._store.read(OldCallbacks(before, _BATCH))
            if deliveries or callbacks:
                (outcome,) = await self._store.apply([ForgetWebhooks(tuple(deliveries), tuple(callbacks))])
                if not isinstance(outcome, WebhooksForgotten):
                    raise StoreUnavailableError(f"expired webhooks were not removed: {outcome}")
            removed += len(deliveries) + len(callbacks)
            more = _BATCH in {len(deliveries), len(callbacks)}
        if removed:
            logger.info("%d deliveries and callbacks older than %s were removed", removed, self._keep)
        return removed
