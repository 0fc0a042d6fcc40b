"""The clock of the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime


class SystemClock:
    """Real time: what every process uses outside tests."""

    def now(self) -> datetime:
        """Return the time of day, aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 (this is the injected clock)

    def monotonic(self) -> float:
        """Return seconds that only ever grow; the zero is arbitrary and differs between machines."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds; at once (after one turn of the event loop) for none or fewer."""
        await asyncio.sleep(max(0.0, seconds))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """As Clock.call_later."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds), callback)
