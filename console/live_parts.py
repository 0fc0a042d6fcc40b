"""Parts of pages that stay open: many ask for the same one every few seconds, and it is made once for all who would see the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct
from starlette.responses import Response

from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock

_MOST = 128
"""How many different parts are kept."""
_LONGEST = 30.0
"""Seconds after which nobody else waits for a part that is still being made."""


class Audience(Struct, frozen=True):
    """What a part depends on, if it has no forms: what is asked for, and what whoever asks may see."""

    address: str
    tenant: TenantId
    scopes: frozenset[str]
    patterns: tuple[str, ...]
    compressed: bool

    @classmethod
    def of(cls, address: str, principal: Principal, *, compressed: bool) -> Audience:
        """Return the audience that a principal belongs to."""
        return cls(address, principal.tenant, principal.scopes, principal.patterns, compressed)


class _LivePart(Struct, frozen=True):
    made: asyncio.Task[Response]
    begun: float


class LiveParts:
    """The parts of the last seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parts: dict[Audience, _LivePart] = {}

    async def answer(self, audience: Audience, seconds: float, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return the part, which began to be made at most so many seconds ago, or is being made, though not for longer than _LONGEST;
        raises what `make` raises, to all who wait for it.
        """
        now = self._clock.monotonic()
        known = self._parts.get(audience)
        if known is None or self._is_old(known, now, seconds):
            self._parts.pop(audience, None)
            while len(self._parts) >= _MOST:
                del self._parts[next(iter(self._parts))]
            known = self._parts[audience] = _LivePart(asyncio.create_task(_made(make)), now)
        found = await asyncio.shield(known.made)
        return Response(found.body, found.status_code, dict(found.headers))

    @staticmethod
    def _is_old(part: _LivePart, now: float, seconds: float) -> bool:
        if not part.made.done():
            return now - part.begun >= _LONGEST
        return now - part.begun >= seconds or _failed(part.made)


async def _made(make: Callable[[], Awaitable[Response]]) -> Response:
    return await make()


def _failed(made: asyncio.Task[Response]) -> bool:
    return made.cancelled() or made.exception() is not None
