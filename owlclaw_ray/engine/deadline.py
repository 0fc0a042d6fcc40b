"""Time limits on the injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from owlclaw_ray.ports.clock import Clock


@asynccontextmanager
async def deadline(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds` of the clock and raise TimeoutError in its place.

    A cancellation from outside passes as it is, as with asyncio.timeout.
    """
    async with asyncio.timeout(None) as scope:
        timer = asyncio.create_task(_expire(scope, clock, seconds))
        try:
            yield
        finally:
            timer.cancel()


async def _expire(scope: asyncio.Timeout, clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
    scope.reschedule(asyncio.get_running_loop().time())
