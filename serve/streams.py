"""Requests that stay open: event streams, and triggers that wait for their run's end.

They have a limit of their own, so that they never take the places of other triggers, queries or probes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from owlclaw_ray.store.followers import RunFollower
from serve.errors import TooManyStreamsError

STREAMS = 10_000
_OPENED_AT_ONCE = 64
_MIN_TICK = 0.01
_TICKS = 256


class OpenRequestLimit:
    """How many requests may stay open, and how many are."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self.opening = asyncio.Semaphore(_OPENED_AT_ONCE)
        """Held while a stream is opened, so that a burst of them does not block other requests."""

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold a place during the block; raises TooManyStreamsError if none is free."""
        if self._taken >= self._most:
            raise TooManyStreamsError(self._most)
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


class KeepAliveTimer:
    """Nudges each follower every `seconds`, with one timer for all: a few of them at every tick, so that they never are one burst."""

    def __init__(self, seconds: float) -> None:
        ticks = max(1, min(_TICKS, round(seconds / _MIN_TICK)))
        self._tick = seconds / ticks
        self._nudged: list[set[RunFollower]] = [set() for _ in range(ticks)]
        self._turn, self._now, self._beating = count(), 0, 0

    @contextmanager
    def beating(self, follower: RunFollower) -> Iterator[None]:
        """Nudge the follower during the block."""
        nudged = self._nudged[next(self._turn) % len(self._nudged)]
        nudged.add(follower)
        self._beating += 1
        if self._beating == 1:
            self._wait()
        try:
            yield
        finally:
            nudged.discard(follower)
            self._beating -= 1

    def _wait(self) -> None:
        asyncio.get_running_loop().call_later(self._tick, self._beat)

    def _beat(self) -> None:
        for follower in self._nudged[self._now]:
            follower.nudge()
        self._now = (self._now + 1) % len(self._nudged)
        if self._beating:
            self._wait()
