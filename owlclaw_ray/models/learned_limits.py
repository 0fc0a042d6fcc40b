"""What is learned of providers outlives the gateway that learned it.

TCP does the same for connections to one host (RFC 9040, "TCP Control Block Interdependence": a new one begins with the congestion
state of one that has ended). Without it, a cluster that takes over from another lets most of the calls that were under way wait
for slots again, for as many rounds of answers as the first one needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NoReturn

from owlclaw_ray.domain.concurrency_limit import KEPT, ConcurrencyLimit, limit_to_begin_with
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ConcurrencyLimitsNoted, NoteConcurrencyLimits
from owlclaw_ray.store.queries import ConcurrencyLimits

NOTE_SECONDS = 5.0
"""How often limits are noted that have changed."""
_ANSWER_SECONDS = 2.0
"""For how long a call waits for what was noted; without it its provider begins anew."""
_CHANGED = 0.1
"""A limit has changed by this share of what was noted."""
_REFRESH_SECONDS = KEPT.total_seconds() / 5
"""After that one that has not changed is noted again, as long as it is used."""

logger = logging.getLogger(__name__)


class LearnedLimits:
    """The limits of one node's gateway, in the store. Providers are named by digests: addresses and tenants are not told there."""

    def __init__(self, store: Store, node_id: str, clock: Clock) -> None:
        self._store, self._node_id, self._clock = store, node_id, clock
        self._noted: dict[str, tuple[ConcurrencyLimit, float]] = {}
        """What is in the store, and since when."""

    async def limit(self, provider: str) -> ConcurrencyLimit | None:
        """Return what to begin with: what was learned here, or elsewhere, in the last minutes. None: nobody knows, or says so in time."""
        try:
            async with deadline(self._clock, _ANSWER_SECONDS):
                since = self._clock.now() - KEPT
                noted = await self._store.read(ConcurrencyLimits(_digest(provider), since))
        except (OwlClawError, TimeoutError) as error:
            logger.warning(
                "what %s bore before is not known, its slots begin anew: %s", provider, str(error) or "no answer"
            )
            return None
        return limit_to_begin_with(noted, self._node_id)

    async def keep(self, present: Callable[[], Mapping[str, ConcurrencyLimit]]) -> NoReturn:
        """Note again and again what has changed of the limits that are in use."""
        while True:
            await self._clock.sleep(NOTE_SECONDS)
            try:
                await self.note(present())
            except OwlClawError as error:
                logger.info("the limits of model providers were not noted: %s", error)

    async def note(self, present: Mapping[str, ConcurrencyLimit]) -> None:
        """Note those that differ from what was noted, or were noted long ago. Raises StoreUnavailableError."""
        now = self._clock.monotonic()
        changed = {provider: limit for provider, limit in present.items() if self._is_news(provider, limit, now)}
        if not changed:
            return
        limits = {_digest(provider): limit for provider, limit in changed.items()}
        (outcome,) = await self._store.apply([NoteConcurrencyLimits(self._node_id, self._clock.now(), limits)])
        if isinstance(outcome, ConcurrencyLimitsNoted):
            self._noted |= {provider: (limit, now) for provider, limit in changed.items()}

    def _is_news(self, provider: str, limit: ConcurrencyLimit, now: float) -> bool:
        if provider not in self._noted:
            return True
        before, at = self._noted[provider]
        changed = abs(limit.calls - before.calls) > _CHANGED * before.calls
        cut = (limit.threshold is None) != (before.threshold is None)
        return changed or cut or now - at >= _REFRESH_SECONDS


def _digest(provider: str) -> str:
    return blake2b(provider.encode(), digest_size=16).hexdigest()
