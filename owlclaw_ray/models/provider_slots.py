"""Which of the calls that wait for a provider may run now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.concurrency_limit import ConcurrencyLimit
from owlclaw_ray.errors import ModelOverloadedError, ModelTimeoutError, NoSlotError, OwlClawError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.fair_order import Owner, Weights, equal_weights
from owlclaw_ray.kernel.fair_queue import FairQueue
from owlclaw_ray.models.adaptive_limit import AdaptiveLimit
from owlclaw_ray.models.api import Waiting

_KEPT = 4
"""Of so many slots one is kept for other definitions: their calls find one even when all that one definition makes hang."""
_TIMEOUT_SECONDS = 2.0
"""A call gives up its wait when its provider answered nothing for so many times the time that the call itself would have."""
_LOOK_SECONDS = 1.0


class SlotCounts(Struct, frozen=True):
    """How the calls of one provider stand."""

    provider: str
    """Its name; with its address, if that is not the provider's own."""
    limit: int
    running: int
    waiting: int


class _Wait(Struct, eq=False):
    """A call that waits for a slot."""

    since: float
    patience: float
    scope: asyncio.Timeout


class ProviderSlots:
    """The slots of one provider, as many as its limit says, shared out fairly: to tenants by weight, then definitions, then agents."""

    def __init__(self, provider: str, limit: AdaptiveLimit, clock: Clock, weight: Weights = equal_weights) -> None:
        self._provider, self._limit, self._clock = provider, limit, clock
        self._queue = FairQueue(limit.now, _share(limit.now), weight)
        self._waits: dict[_Wait, None] = {}
        self._heard_at = self._look_at = clock.monotonic()

    @property
    def counts(self) -> SlotCounts:
        """How its calls stand."""
        return SlotCounts(self._provider, self._limit.now, self._queue.held, len(self._waits))

    @property
    def learned(self) -> ConcurrencyLimit:
        """How many there are, for who begins after this one."""
        return self._limit.learned

    @asynccontextmanager
    async def slot(self, owner: Owner, model: str, seconds: float, waiting: Waiting) -> AsyncIterator[None]:
        """Hold a slot for the block, one attempt of so many seconds, and learn from its end. The owner is (tenant, definition, agent).

        Raises NoSlotError when the provider has gone silent while the call waited. Cancelling the wait gives up the turn.
        """
        async with AsyncExitStack() as stack:
            place = self._queue.place(owner)
            if self._queue.has_place(owner):
                await stack.enter_async_context(place)
            else:
                async with self._wait(seconds, waiting):
                    await stack.enter_async_context(place)
            began, group = self._clock.monotonic(), self._limit.began(model, self._queue.held)
            try:
                yield
            except asyncio.CancelledError:
                self._reject_waiting(self._clock.monotonic())
                raise
            except OwlClawError as error:
                now = self._clock.monotonic()
                if isinstance(error, ModelTimeoutError):
                    self._limit.timed_out(model, began, now)
                    self._reject_waiting(now)
                else:
                    self._heard_at = now
                    if isinstance(error, ModelOverloadedError):
                        self._limit.refused(began, now)
                raise
            else:
                self._heard_at = now = self._clock.monotonic()
                self._limit.answered(model, group, now - began, self._queue.held)
            finally:
                self._limit.ended(model, group)
                self._queue.resize(self._limit.now, _share(self._limit.now))

    @asynccontextmanager
    async def _wait(self, seconds: float, waiting: Waiting) -> AsyncIterator[None]:
        waiting(True)
        since = self._clock.monotonic()
        try:
            async with asyncio.timeout(None) as scope:
                wait = _Wait(since, _TIMEOUT_SECONDS * seconds, scope)
                self._waits[wait] = None
                try:
                    yield
                finally:
                    del self._waits[wait]
        except TimeoutError:
            silent = self._clock.monotonic() - max(since, self._heard_at)
            raise NoSlotError(
                f"no free slot: {self._provider} has answered none of its {counted(self._queue.held, 'call')} for {silent:.0f} s"
            ) from None
        finally:
            waiting(False)

    def _reject_waiting(self, now: float) -> None:
        """End the waits for a provider that has gone silent. Calls that hold a slot go on: they show when it answers again."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        for wait in self._waits:
            if now - max(wait.since, self._heard_at) >= wait.patience:
                wait.scope.reschedule(asyncio.get_running_loop().time())


def _share(limit: int) -> int:
    """Return how many of the slots one definition may hold."""
    return limit - limit // _KEPT
