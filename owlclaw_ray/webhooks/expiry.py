"""The end of webhooks and callbacks that are kept for a time only."""

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
    """Removes deliveries that wait for nothing, and callbacks that are delivered or dead, when they are older than `keep`."""

    def __init__(self, store: Store, keep: timedelta, clock: Clock) -> None:
        self._store, self._keep, self._clock = store, keep, clock

    async def tick(self) -> int:
        """Remove what is too old; return how much that was. Raises StoreUnavailableError if the store does not remove it."""
        before, removed, more = self._clock.now() - self._keep, 0, True
        while more:
            deliveries = await self._store.read(OldDeliveries(before, _BATCH))
            callbacks = await self._store.read(OldCallbacks(before, _BATCH))
            if deliveries or callbacks:
                await self._forget(ForgetWebhooks(tuple(deliveries), tuple(callbacks)))
            removed += len(deliveries) + len(callbacks)
            more = _BATCH in {len(deliveries), len(callbacks)}
        if removed:
            logger.info("%d deliveries and callbacks older than %s were removed", removed, self._keep)
        return removed

    async def _forget(self, command: ForgetWebhooks) -> None:
        outcome = (await self._store.apply([command]))[0]
        if not isinstance(outcome, WebhooksForgotten):
            raise StoreUnavailableError(f"what is too old was not removed: {outcome}")
