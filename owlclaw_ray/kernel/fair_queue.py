"""A fair semaphore: each of many owners gets its turn, however much the others ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

from owlclaw_ray.kernel.fair_order import FairOrder, Owner, Weights, equal_weights

_Turn: TypeAlias = asyncio.Future[None]


class FairQueue:
    """At most `places` are held at once, at most `each` of them by one child of a tenant; None: all of them.

    Who waits has its turn as FairOrder says. A place stays free only if nobody waits that may have it.
    """

    def __init__(self, places: int, each: int | None, weight: Weights = equal_weights) -> None:
        self._order: FairOrder[_Turn] = FairOrder(places, each=each, weight=weight)

    @property
    def held(self) -> int:
        """How many places are held."""
        return self._order.held

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return self._order.waiting

    def has_place(self, owner: Owner) -> bool:
        """Return whether the owner would have one more place without waiting."""
        return self._order.free > 0 and self._order.may_hold(owner)

    def resize(self, places: int, each: int | None) -> None:
        """Change the number of places. Held ones stay held: a reduction takes effect as they are given back."""
        self._order.resize(places, each)
        self._grant_slots()

    @asynccontextmanager
    async def place(self, owner: Owner) -> AsyncIterator[None]:
        """Hold a place for the block, after waiting for it. Cancelling the wait gives up the turn."""
        await self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)

    async def take(self, owner: Owner) -> None:
        """Hold a place from now on, after waiting for it. Cancelling the wait gives up the turn."""
        if self.has_place(owner):
            self._order.hold(owner)
        else:
            await self._wait(owner)

    def give_back(self, owner: Owner) -> None:
        """Hold one place less."""
        self._order.give_back(owner)
        self._grant_slots()

    async def _wait(self, owner: Owner) -> None:
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._order.add(owner, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the place was granted at the same moment
                self.give_back(owner)
            self._order.remove(owner, turn)
            raise

    def _grant_slots(self) -> None:
        while self._order.free > 0 and (first := self._order.first()) is not None:
            owner, turn = first
            if turn.cancelled():
                self._order.remove(owner, turn)
            else:
                self._order.grant(owner, turn)
                turn.set_result(None)
