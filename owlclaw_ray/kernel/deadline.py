"""Time limits on the injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from owlclaw_ray.kernel.clock import Clock, Timer

_INSTANT = 1e-6


@asynccontextmanager
async def deadline(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds` of the clock and raise TimeoutError in its place.

    A cancellation from outside passes as it is, as with asyncio.timeout.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(seconds, lambda: scope.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()


class ActiveTime:
    """A time limit that can be paused, on the injected clock. `used` seconds of it have passed when the block begins."""

    def __init__(self, clock: Clock, limit: float, *, used: float, every: float) -> None:
        self._clock, self._limit, self._every = clock, limit, every
        self._used, self._beat_at = used, used + every
        self._beat: Callable[[], None] | None = None
        self.paused = 0.0
        """How many seconds of the block it was paused, until it last resumed."""
        self._running: bool = False
        self._since = 0.0
        self._scope: asyncio.Timeout | None = None
        self._timer: Timer | None = None

    @property
    def used(self) -> float:
        """How many seconds have passed."""
        return self._used + (self._clock.monotonic() - self._since if self._running else 0.0)

    @asynccontextmanager
    async def limited(self, beat: Callable[[], None]) -> AsyncIterator[None]:
        """Cancel the block when the limit has passed and raise TimeoutError in its place; `beat` every `every` seconds of it."""
        self._beat, self._since = beat, self._clock.monotonic()
        async with asyncio.timeout(None) as scope:
            self._scope = scope
            self._resume_timer()
            try:
                yield
            finally:
                self._pause_timer()
                self._beat = self._scope = None

    def pause(self, paused: bool) -> None:  # noqa: FBT001 - it is a Waiting
        """Pause or resume; without effect if it is so already."""
        if paused and self._running:
            self._pause_timer()
        elif not paused and not self._running:
            self._resume_timer()

    def _resume_timer(self) -> None:
        now = self._clock.monotonic()
        self.paused += now - self._since
        self._running, self._since = True, now
        self._set_timer()

    def _pause_timer(self) -> None:
        self._used, self._since, self._running = self.used, self._clock.monotonic(), False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        seconds = min(self._limit, self._beat_at) - self.used
        self._timer = self._clock.call_later(seconds, self._expire)

    def _expire(self) -> None:
        """End the block if the limit has passed; else it is time for a beat."""
        if self._scope is None or self._beat is None:
            return
        if self.used >= self._limit - _INSTANT:
            self._scope.reschedule(asyncio.get_running_loop().time())
            return
        self._beat_at += self._every
        self._beat()
        self._set_timer()
