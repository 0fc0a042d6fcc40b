"""Calls of real models, spread over processes: this one, and helpers that come and go with the load.

The client library needs so much CPU a call that one process passes about a hundred calls a second. Limits, retries and accounting
stay in the calling process; a helper knows only the one attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.model import ModelReply, ModelRequest
from owlclaw_ray.errors import ModelUnavailableError, RuntimeUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.models.api import ModelClient
from owlclaw_ray.models.reply_box import RemoteReplyBox
from owlclaw_ray.models.reply_link import LinkLostError, ReplyLink

_SENDS = 3
"""How many processes one attempt may be given to, when each of them dies of something else."""
_PAUSE_AFTER_FAILURE = 30.0

logger = logging.getLogger(__name__)


class ClientCall(Struct, frozen=True):
    """One attempt at one model, as it travels to a helper."""

    request: ModelRequest
    model: str


class Helper(RemoteReplyBox, Protocol):
    """A process that makes calls for this one. All methods raise RuntimeUnavailableError when it is gone or hangs."""

    async def cpu_seconds(self) -> float:
        """Return how much CPU time it has used so far."""
        ...


class HelperSource(Protocol):
    """Where helpers come from."""

    async def spawn(self) -> Helper:
        """Return a new helper that is ready for calls; raises RuntimeUnavailableError."""
        ...

    async def end(self, helper: Helper) -> None:
        """End it. Ending a dead one does nothing."""
        ...


class PoolGrowth(Struct, frozen=True):
    """When a pool gets one more process, and when one less. Times in seconds, CPU in cores."""

    busy: float = 0.75
    """What each process uses on average when one more is needed."""
    look: float = 3.0
    """How often, and over how long, the use of CPU is looked at."""
    idle: float = 60.0
    """How long one process less must have been enough, at half of `busy` each, before helpers are ended."""


class _PoolProcess(Struct, eq=False):
    """One process of the pool."""

    complete: Callable[[ModelRequest, str], Awaitable[ModelReply]]
    cpu_seconds: Callable[[], Awaitable[float]]
    helper: Helper | None = None
    """None: this process."""
    calls: int = 0


class PooledClient:
    """Implements `ModelClient`: each call goes to the process that has the fewest under way, this one before helpers.

    Another process is asked for while calls wait and all are busy: one at a time, `most` in all. The calls of a helper that dies
    go to other processes at once, as part of the same attempt.
    """

    def __init__(
        self,
        client: ModelClient,
        helpers: HelperSource,
        *,
        most: int,
        growth: PoolGrowth,
        cpu_seconds: Callable[[], float],
        clock: Clock,
    ) -> None:
        self._client, self._source, self._clock = client, helpers, clock
        self._most, self._growth = most, growth

        async def own_cpu_seconds() -> float:
            return cpu_seconds()

        self._seats = [_PoolProcess(client.complete, own_cpu_seconds)]
        self._leaving: set[_PoolProcess] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._calm_since: float | None = None
        self._no_growth_before = 0.0

    def serves(self, model: str) -> bool:
        """See ModelClient.serves."""
        return self._client.serves(model)

    async def load(self) -> None:
        """See ModelClient.load."""
        await self._client.load()

    async def complete(self, request: ModelRequest, model: str) -> ModelReply:
        """See ModelClient.complete."""
        if self._most > 1 and (self._watcher is None or self._watcher.done()):
            self._watcher = asyncio.create_task(self._watch())
        for _ in range(_SENDS):
            seat = min(self._seats, key=lambda each: each.calls)
            seat.calls += 1
            try:
                return await seat.complete(request, model)
            except LinkLostError:
                self._drop(seat)
            finally:
                seat.calls -= 1
                self._end_when_done(seat)
        raise ModelUnavailableError(f"{_SENDS} processes died one after another while they made this call")

    async def _watch(self) -> None:
        """Follow the load while there are calls or helpers."""
        while len(self._seats) > 1 or any(seat.calls for seat in self._seats):
            before, started = await self._readings(), self._clock.monotonic()
            await self._clock.sleep(self._growth.look)
            after, elapsed = await self._readings(), self._clock.monotonic() - started
            await self._adjust([(after[seat] - before[seat]) / elapsed for seat in after if seat in before])

    async def _readings(self) -> dict[_PoolProcess, float]:
        """Return each process's CPU seconds; a helper that does not answer is dropped."""
        readings = {}
        for seat in tuple(self._seats):
            try:
                readings[seat] = await seat.cpu_seconds()
            except RuntimeUnavailableError:
                self._drop(seat)
        return readings

    async def _adjust(self, used: Sequence[float]) -> None:
        """Retire the last helper if one process less has been enough for long; add one while calls wait and all are busy."""
        now, growth = self._clock.monotonic(), self._growth
        if sum(used) >= growth.busy / 2 * (len(used) - 1):
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        elif now - self._calm_since >= growth.idle and (seat := self._seats[-1]).helper is not None:
            self._seats.remove(seat)
            self._leaving.add(seat)
            self._end_when_done(seat)
        calls = sum(seat.calls for seat in self._seats)
        busy = calls > len(used) and sum(used) >= growth.busy * len(used)
        if busy and len(self._seats) < self._most and now >= self._no_growth_before:
            await self._grow()

    async def _grow(self) -> None:
        logger.info("%d processes are busy with model calls; one more is started", len(self._seats))
        try:
            helper = await self._source.spawn()
        except RuntimeUnavailableError as error:
            logger.warning("no further process for model calls: %s", error)
            self._no_growth_before = self._clock.monotonic() + _PAUSE_AFTER_FAILURE
            return
        link: ReplyLink[ClientCall] = ReplyLink(helper)
        self._seats.append(
            _PoolProcess(lambda request, model: link.ask(ClientCall(request, model)), helper.cpu_seconds, helper)
        )

    def _end_when_done(self, seat: _PoolProcess) -> None:
        if seat in self._leaving and not seat.calls:
            self._leaving.remove(seat)
            self._end(seat)

    def _drop(self, seat: _PoolProcess) -> None:
        """Part with a helper that is gone, or hangs; the first of its calls to notice does it."""
        if seat in self._seats and seat.helper is not None:
            logger.warning("a helper for model calls is gone; its %d calls go to others", seat.calls)
            self._seats.remove(seat)
            self._end(seat)

    def _end(self, seat: _PoolProcess) -> None:
        if seat.helper is not None:
            ending = asyncio.create_task(self._source.end(seat.helper))
            self._background.add(ending)
            ending.add_done_callback(self._background.discard)
