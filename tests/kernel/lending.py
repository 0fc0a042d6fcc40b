"""A lender of places and the ends of its borrowers, with messages between them that take a while, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.borrowed_places import BorrowedPlaces, PoolSize
from owlclaw_ray.kernel.fair_order import Weights, equal_weights
from owlclaw_ray.kernel.place_lender import BorrowerId, PlaceLender, PlaceNews, PlaceRequest, PoolName
from owlclaw_ray.testing.clock import ManualClock

DELAY = 0.002
"""Seconds that a message takes, each way."""


class Node:
    """A node with its lender, which can fall silent, and borrowers, which can die."""

    def __init__(self, clock: ManualClock, sizes: Mapping[PoolName, PoolSize], weight: Weights = equal_weights) -> None:
        self.clock, self.messages, self.silent = clock, 0, asyncio.Event()
        self._sizes = sizes
        self._borrowers: dict[BorrowerId, BorrowedPlaces] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        places = {name: size.places for name, size in sizes.items()}
        self.lender = PlaceLender(places, weight, self._tell_soon)

    def host(self, name: str) -> BorrowedPlaces:
        """Return the end of one more borrower."""
        borrower = BorrowerId(name)
        self._borrowers[borrower] = BorrowedPlaces(_Link(self, borrower), self._sizes, self.clock)
        return self._borrowers[borrower]

    def end(self, name: str) -> None:
        """Have the lender learn that a borrower is gone."""
        del self._borrowers[BorrowerId(name)]
        self.lender.forget(BorrowerId(name))

    async def request(self, borrower: BorrowerId, request: PlaceRequest) -> PlaceNews:
        """Bring a request to the lender and its answer back."""
        self.messages += 1
        await self.clock.sleep(DELAY)
        if self.silent.is_set():
            await asyncio.Event().wait()
        if borrower not in self._borrowers:
            raise RuntimeUnavailableError(f"{borrower} is gone")
        news = self.lender.request(borrower, request)
        await self.clock.sleep(DELAY)
        return news

    async def stop(self) -> None:
        """End what is under way."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _tell_soon(self, borrower: BorrowerId) -> None:
        self._tasks.add(task := asyncio.create_task(self._tell(borrower)))
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, borrower: BorrowerId) -> None:
        self.messages += 1
        news = self.lender.news(borrower)
        await self.clock.sleep(DELAY)
        if borrower in self._borrowers:
            self._borrowers[borrower].told(news)
            self._borrowers[borrower].told(news)  # as when the answer to the first was lost


class _Link:
    """Implements `Lender` for one borrower."""

    def __init__(self, node: Node, borrower: BorrowerId) -> None:
        self._node, self._borrower = node, borrower

    async def request(self, request: PlaceRequest) -> PlaceNews:
        return await self._node.request(self._borrower, request)
