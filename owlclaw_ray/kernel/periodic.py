"""Periodic work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from owlclaw_ray.errors import RetryableError
from owlclaw_ray.kernel.clock import Clock

_MIN_PAUSE = 0.05

logger = logging.getLogger(__name__)


class Periodic:
    """Does its work at once and then every `seconds`, even if it fails, until it is stopped."""

    def __init__(
        self,
        what: str,
        work: Callable[[], Awaitable[object]],
        clock: Clock,
        seconds: float,
        *,
        due_in: Callable[[], Awaitable[float]] | None = None,
        retry: float | None = None,
    ) -> None:
        """`what` names the work in the log. `due_in`, awaited after each time, returns the seconds until there is work again, which
        limit the pause. `retry`: the pause after a failure; None: as usual.
        """
        self._what, self._work, self._clock, self._seconds, self._due_in = what, work, clock, seconds, due_in
        self._retry = seconds if retry is None else retry
        self._task: asyncio.Task[None] | None = None
        self._pause: asyncio.Future[None] | None = None
        self._urgent = False

    def start(self) -> None:
        """Start."""
        self._task = asyncio.create_task(self._loop())

    def soon(self) -> None:
        """Do the work now instead of at its time; once more, if it is in progress."""
        self._urgent = True
        if self._pause is not None:
            self._pause.cancel()

    async def stop(self) -> None:
        """Stop. A write in progress is committed or not, never half."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _loop(self) -> None:
        while True:
            self._urgent = False
            seconds = await self._do_once()
            if not self._urgent:
                self._pause = asyncio.ensure_future(self._clock.sleep(seconds))
                try:
                    await asyncio.wait({self._pause})
                finally:
                    self._pause.cancel()
                    self._pause = None
            if self._urgent:
                await self._clock.sleep(_MIN_PAUSE)

    async def _do_once(self) -> float:
        """Return how long to wait afterwards."""
        try:
            await self._work()
            if self._due_in is not None:
                return max(min(self._seconds, await self._due_in()), _MIN_PAUSE)
        except RetryableError as error:
            logger.warning("%s is retried: %s", self._what, error)
        except Exception:
            logger.exception("%s failed; it is retried", self._what)
        else:
            return self._seconds
        return self._retry
