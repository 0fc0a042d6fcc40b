"""Requests that stay open: event streams, and triggers that wait for their run's end.

They have a limit of their own, so that they never take the places of other triggers, queries or probes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from owlclaw_ray.domain.principal import LOCAL, Principal
from owlclaw_ray.store.followers import RunFollower
from serve.errors import StreamShareError, TooManyStreamsError

STREAMS = 10_000
_OPENED_AT_ONCE = 64
_MIN_TICK = 0.01
_TICKS = 256


class OpenRequestLimit:
    """How many requests may stay open, and how many are: half of all for one key or person, three quarters for one tenant, so that nobody
    leaves nothing to the others. LOCAL, who is there while nobody needs a key, shares with nobody.
    """

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self._of_key, self._of_tenant = max(1, most // 2), max(1, most * 3 // 4)
        self._held = Counter[tuple[str, ...]]()
        self.opening = asyncio.Semaphore(_OPENED_AT_ONCE)
        """Held while a stream is opened, so that a burst of them does not block other requests."""

    @contextmanager
    def one(self, principal: Principal) -> Iterator[None]:
        """Hold a place for somebody during the block; raises TooManyStreamsError if none is free, StreamShareError if none of theirs."""
        if self._taken >= self._most:
            raise TooManyStreamsError(self._most)
        tenant: tuple[str, ...] = (principal.tenant,)
        shares = (
            {}
            if principal is LOCAL
            else {tenant: self._of_tenant, (*tenant, principal.kind.value, principal.id): self._of_key}
        )
        for who, most in shares.items():
            if self._held[who] >= most:
                raise StreamShareError("tenant" if who == tenant else "key", most)
        self._taken += 1
        self._held.update(shares.keys())
        try:
            yield
        finally:
            self._taken -= 1
            for who in shares:
                self._held[who] -= 1
                if not self._held[who]:
                    del self._held[who]


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
