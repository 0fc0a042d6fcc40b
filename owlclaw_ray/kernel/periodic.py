"""Work that is done again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from owlclaw_ray.errors import RetryableError
from owlclaw_ray.kernel.clock import Clock

_MIN_PAUSE = 0.05

logger = logging.getLogger(__name__)


class Periodic:
    """Does its work at once and then every `seconds`, whatever comes of it, until it is stopped."""

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
        """`what` names the work in the log. `due_in`, asked after each time, says in how many seconds there is work again: then
        the pause is no longer than that. `retry`: the seconds after work that failed; None: as after any other.
        """
        self._what, self._work, self._clock, self._seconds, self._due_in = what, work, clock, seconds, due_in
        self._retry = seconds if retry is None else retry
        self._task: asyncio.Task[None] | None = None
        self._pause: asyncio.Future[None] | None = None
        self._urgent = False

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._loop())

    def soon(self) -> None:
        """Do the work again without waiting for its time; once more, if it is under way."""
        self._urgent = True
        if self._pause is not None:
            self._pause.cancel()

    async def stop(self) -> None:
        """End. What the work was writing is committed or not, never half."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _loop(self) -> None:
        while True:
            self._urgent = False
            seconds = await self._do_once()
            if not self._urgent:
                await self._wait(seconds)
            if self._urgent:
                await self._clock.sleep(_MIN_PAUSE)

    async def _wait(self, seconds: float) -> None:
        self._pause = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({self._pause})
        finally:
            self._pause.cancel()
            self._pause = None

    async def _do_once(self) -> float:
        """Return how long to wait then."""
        try:
            await self._work()
            if self._due_in is not None:
                return max(min(self._seconds, await self._due_in()), _MIN_PAUSE)
        except RetryableError as error:
            logger.warning("%s is tried again: %s", self._what, error)
        except Exception:
            logger.exception("%s failed; it is tried again", self._what)
        else:
            return self._seconds
        return self._retry
