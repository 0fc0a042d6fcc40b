"""Time, as the engine sees it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback; without effect once it was called."""
        ...


class Clock(Protocol):
    """The only source of time in the engine."""

    def now(self) -> datetime:
        """Return the time of day, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow, for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds of this clock; at once (after one turn of the event loop) for none or fewer."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back in the running event loop after that many seconds of this clock. Costs less than a task that sleeps."""
        ...
