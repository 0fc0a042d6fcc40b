"""A fair semaphore: each of many owners gets its turn, however much the others ask for."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)


class FairQueue(Generic[Owner]):
    """At most `places` are held at once, at most `each` of them by one owner.

    Places go round robin to the waiting owners that may have one more, in order within each owner. A place stays free only if no
    waiting owner may have it.
    """

    def __init__(self, places: int, each: int) -> None:
        self._places, self._free, self._each = places, places, each
        self._held: Counter[Owner] = Counter()
        self._waiting: OrderedDict[Owner, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def held(self) -> int:
        """How many places are held."""
        return self._places - self._free

    def has_place(self, owner: Owner) -> bool:
        """Return whether the owner would have one more place without waiting."""
        return self._free > 0 and self._held[owner] < self._each

    def resize(self, places: int, each: int) -> None:
        """Change the number of places. Held ones stay held: a reduction takes effect as they are given back."""
        self._free += places - self._places
        self._places, self._each = places, each
        self._grant_slots()

    @asynccontextmanager
    async def place(self, owner: Owner) -> AsyncIterator[None]:
        """Hold a place for the block, after waiting for it. Cancelling the wait gives up the turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._grant_slots()
        try:
            await turn
        except asyncio.CancelledError:
            turns = self._waiting.get(owner, deque())
            if not turn.cancelled():  # the place was granted at the same moment
                self._give_back(owner)
            elif turn in turns:
                turns.remove(turn)
                if not turns:
                    del self._waiting[owner]
            raise
        try:
            yield
        finally:
            self._give_back(owner)

    def _give_back(self, owner: Owner) -> None:
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._grant_slots()

    def _grant_slots(self) -> None:
        while self._free > 0:
            owner = next((each for each in self._waiting if self._held[each] < self._each), None)
            if owner is None:
                return
            turn = self._waiting[owner].popleft()
            if self._waiting[owner]:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            if not turn.cancelled():
                self._free -= 1
                self._held[owner] += 1
                turn.set_result(None)
