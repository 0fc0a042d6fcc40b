"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

_SETTLING_TURNS = 25


class ManualTimer:
    """What `ManualClock.call_later` returns."""

    def __init__(self, alarm: asyncio.Future[None], callback: Callable[[], None]) -> None:
        self._alarm, self._callback, self._cancelled = alarm, callback, False
        alarm.add_done_callback(self._ring)

    def cancel(self) -> None:
        """As Timer.cancel."""
        self._cancelled = True
        self._alarm.cancel()

    def fire_now(self) -> None:
        """Call back in the next turn of the event loop."""
        self._alarm.set_result(None)

    def _ring(self, alarm: asyncio.Future[None]) -> None:
        if not self._cancelled and not alarm.cancelled():
            self._callback()


class ManualClock:
    """Time passes only in `advance`. Of one event loop; `now` and `monotonic` may be read from any thread."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._slept = asyncio.Event()

    def now(self) -> datetime:
        """Return the start plus everything that was advanced."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds that were advanced."""
        return self._elapsed

    @property
    def sleepers(self) -> int:
        """How many tasks sleep, and timers run, now."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was advanced that far; at once (after one turn of the event loop) for none or fewer."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await self._alarm(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> ManualTimer:
        """Call back once the clock was advanced that far."""
        timer = ManualTimer(self._alarm(max(0.0, seconds)), callback)
        if seconds <= 0:
            timer.fire_now()
        return timer

    def _alarm(self, seconds: float) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), future))
        self._slept.set()
        return future

    async def advance(self, seconds: float) -> None:
        """Move time on, waking sleepers one by one: by due time, then in the order in which they went to sleep.

        Each sees the clock at its own due time and runs until it waits again (for 25 turns of the event loop at most)
        before the next is woken; what it starts and what falls due within `seconds` is woken too.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds})")
        target = self._elapsed + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._elapsed = due
            future.set_result(None)
            await self.settle()
        self._elapsed = target

    async def settle(self) -> None:
        """Let other tasks run for 25 turns of the event loop: enough for what waits for no thread or socket."""
        for _ in range(_SETTLING_TURNS):
            await asyncio.sleep(0)

    async def wait_for_sleepers(self, number: int = 1) -> None:
        """Return once at least that many tasks sleep: for tasks that reach their sleep through threads or sockets."""
        while self.sleepers < number:
            self._slept.clear()
            await self._slept.wait()
