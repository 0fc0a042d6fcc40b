"""Duplex batching: the waiting items leave in one call, and their answers come back in one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar, cast

from msgspec import Struct

Item = TypeVar("Item")
Result = TypeVar("Result")


class Bound(Struct, frozen=True):
    """A limit in number and in bytes."""

    items: int
    size: int

    def holds(self, items: int, size: int) -> bool:
        """Return whether so much is within the limit."""
        return items <= self.items and size <= self.size

    def first(self, sizes: Iterator[int]) -> int:
        """Return how many waiting items of these sizes go first: as many as are within the limit, at least one."""
        taken = total = 0
        for size in sizes:
            total += size
            if taken and not self.holds(taken + 1, total):
                break
            taken += 1
        return taken


MESSAGE = Bound(512, 4 * 1024 * 1024)
"""The limit of one message: more would delay others, and the receiver holds all of it at once."""
WAITING = Bound(20_000, 64 * 1024 * 1024)
"""The limit of what may wait in a process."""


class BatchCapacity:
    """Counts what is in flight, and makes senders wait until there is room."""

    def __init__(self, most: Bound = WAITING) -> None:
        self._most, self._items, self._size = most, 0, 0
        self._left = asyncio.Event()

    def has(self, items: int, size: int) -> bool:
        """Return whether there is room for so much; with nothing in flight there is room for anything."""
        return not self._items or self._most.holds(self._items + items, self._size + size)

    async def wait(self) -> None:
        """Return when there is room for one more, however large."""
        while not self.has(1, 1):
            self._left.clear()
            await self._left.wait()

    @contextmanager
    def taken(self, items: int, size: int) -> Iterator[None]:
        """Count so much as in flight inside the block."""
        self.enter(items, size)
        try:
            yield
        finally:
            self.leave(items, size)

    def enter(self, items: int, size: int) -> None:
        """Count so much as in flight from now on."""
        self._items += items
        self._size += size

    def leave(self, items: int, size: int) -> None:
        """Count so much no longer."""
        self._items -= items
        self._size -= size
        self._left.set()


class Batcher(Generic[Item, Result]):
    """Collects items while earlier calls are in progress and sends them together, as many as are within `most`.

    With one call at a time (the default) items arrive in the order in which they were given. A failing call fails the callers of
    its batch only. `size` returns the bytes of an item. `recalls`: an item whose caller was cancelled is not sent if it still waits.
    `rest` is awaited after a batch of several, so that the next one is larger; a single item is not delayed.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        most: Bound = MESSAGE,
        size: Callable[[Item], int] = lambda _: 0,
        at_once: int = 1,
        recalls: bool = False,
        rest: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._call, self._most, self._size = call, most, size
        self._at_once, self._recalls, self._rest = at_once, recalls, rest
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._senders: set[asyncio.Task[None]] = set()

    async def __call__(self, item: Item) -> Result:
        """Return the result for this item. Cancelling the wait recalls the item only if that was asked for."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._senders) < self._at_once:
            self._senders.add(asyncio.create_task(self._send()))
        return await answer

    async def _send(self) -> None:
        try:
            while self._waiting:
                if self._recalls:
                    self._waiting = [(item, answer) for item, answer in self._waiting if not answer.cancelled()]
                first = self._most.first(self._size(item) for item, _ in self._waiting)
                batch, self._waiting = self._waiting[:first], self._waiting[first:]
                if not batch:
                    return
                try:
                    results = await self._call([item for item, _ in batch])
                except Exception as error:  # noqa: BLE001 - it goes to every caller of the batch
                    for _, answer in batch:
                        if not answer.done():
                            answer.set_exception(error)
                    continue
                for (_, answer), result in zip(batch, results, strict=True):
                    if not answer.done():
                        answer.set_result(result)
                if self._rest is not None and len(batch) > 1:
                    await self._rest()
        finally:
            self._senders.discard(cast("asyncio.Task[None]", asyncio.current_task()))
