"""What many pages ask for again and again: it is made once for all who would see the same, and drawn once for as long as it is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct
from starlette.responses import Response

from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock

_MOST = 128
"""How many different ones are kept."""
_LONGEST = 30.0
"""Seconds after which nobody else waits for what is still being made."""
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


class _Made(Struct, Generic[_T], frozen=True):
    task: asyncio.Task[_T]
    begun: float


class SharedAnswers(Generic[_K, _T]):
    """What was made in the last seconds, by all that it depends on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: dict[_K, _Made[_T]] = {}

    async def answer(self, key: _K, seconds: float, make: Callable[[], Awaitable[_T]]) -> _T:
        """Return what began to be made at most so many seconds ago, or is being made, though not for longer than _LONGEST;
        raises what `make` raises, to all who wait for it.
        """
        now = self._clock.monotonic()
        known = self._made.get(key)
        if known is None or self._is_old(known, now, seconds):
            self._made.pop(key, None)
            while len(self._made) >= _MOST:
                del self._made[next(iter(self._made))]
            known = self._made[key] = _Made(asyncio.create_task(_made(make)), now)
        return await asyncio.shield(known.task)

    def forget(self, key: _K) -> None:
        """Have the next who asks get something that is made then."""
        self._made.pop(key, None)

    @staticmethod
    def _is_old(known: _Made[_T], now: float, seconds: float) -> bool:
        if not known.task.done():
            return now - known.begun >= _LONGEST
        return now - known.begun >= seconds or _failed(known.task)


async def _made(make: Callable[[], Awaitable[_T]]) -> _T:
    return await make()


def _failed(task: asyncio.Task[_T]) -> bool:
    return task.cancelled() or task.exception() is not None


class Audience(Struct, frozen=True):
    """What a part depends on, besides what it shows: what is asked for, and what whoever asks may see."""

    address: str
    tenant: TenantId
    scopes: frozenset[str]
    patterns: tuple[str, ...]
    compressed: bool
    who: str = ""
    """The one for whom it is, if it says of them what it says of nobody else."""

    @classmethod
    def of(cls, address: str, principal: Principal, *, compressed: bool, who: str = "") -> Audience:
        """Return the audience that a principal belongs to."""
        return cls(address, principal.tenant, principal.scopes, principal.patterns, compressed, who)


class _DrawnPart(Struct, frozen=True):
    facts: Mapping[str, object]
    response: Response


class LiveParts:
    """The parts of the last seconds, and what each was drawn of."""

    def __init__(self, clock: Clock) -> None:
        self._made: SharedAnswers[Audience, Response] = SharedAnswers(clock)
        self._drawn: dict[Audience, _DrawnPart] = {}

    async def answer(self, audience: Audience, seconds: float, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return the part as SharedAnswers.answer does, for one who asks."""
        found = await self._made.answer(audience, seconds, make)
        return Response(found.body, found.status_code, dict(found.headers))

    def drawn(self, audience: Audience, facts: Mapping[str, object], draw: Callable[[], Response]) -> Response:
        """Return what was drawn for the audience the last time if that was of the same facts, else what `draw` returns."""
        known = self._drawn.pop(audience, None)
        if known is None or known.facts != facts:
            known = _DrawnPart(facts, draw())
        while len(self._drawn) >= _MOST:
            del self._drawn[next(iter(self._drawn))]
        self._drawn[audience] = known
        return known.response
