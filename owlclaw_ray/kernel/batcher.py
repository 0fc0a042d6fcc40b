"""Duplex batching: the waiting items leave in one call, and their answers come back in one."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeAlias, TypeVar, cast

from msgspec import Struct

from owlclaw_ray.ids import DEFAULT_TENANT, TenantId

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


Loads: TypeAlias = Mapping[TenantId | None, Bound]
"""How much of each tenant; of None what is no tenant's."""
MESSAGE = Bound(512, 4 * 1024 * 1024)
"""The limit of one message: more would delay others, and the receiver holds all of it at once."""
WAITING = Bound(20_000, 64 * 1024 * 1024)
"""The limit of what may wait in a process."""


class Turns(Generic[Item]):
    """Items that wait, taken in turns of whose they are, each one's own in their order."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[Item]] = {}
        """Those who are next come first."""

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, item: Item, whose: Hashable = None) -> None:
        """Have the item wait."""
        self._lines.setdefault(whose, deque()).append(item)

    def first(self) -> Item:
        """Return the item that is next."""
        return next(iter(self._lines.values()))[0]

    def take(self) -> Item:
        """Return the item that is next, which waits no more."""
        whose, line = next(iter(self._lines.items()))
        del self._lines[whose]
        item = line.popleft()
        if line:
            self._lines[whose] = line
        return item


class BatchCapacity:
    """Counts what is in flight, and makes senders wait until there is room.

    What is said to be a tenant's may be three quarters of it, as soon as there is another tenant: the default one there always is.
    """

    def __init__(self, most: Bound = WAITING) -> None:
        self._most, self._items, self._size = most, 0, 0
        self._each = Bound(most.items * 3 // 4, most.size * 3 // 4)
        self._tenants = {DEFAULT_TENANT}
        """All that were ever in flight, or were to be."""
        self._of: defaultdict[TenantId, _InFlight] = defaultdict(_InFlight)
        self._left = asyncio.Event()

    def has(self, items: int, size: int, tenant: TenantId | None = None) -> bool:
        """Return whether there is room for so much; with nothing in flight there is room for anything."""
        if tenant is not None:
            self._tenants.add(tenant)
        if self._items and not self._most.holds(self._items + items, self._size + size):
            return False
        own = None if tenant is None else self._of.get(tenant)
        return own is None or len(self._tenants) == 1 or self._each.holds(own.items + items, own.size + size)

    async def wait(self) -> None:
        """Return when there is room for one more, however large."""
        while not self.has(1, 1):
            self._left.clear()
            await self._left.wait()

    @contextmanager
    def taken(self, loads: Loads) -> Iterator[None]:
        """Count so much as in flight inside the block."""
        for tenant, load in loads.items():
            self.enter(load.items, load.size, tenant)
        try:
            yield
        finally:
            for tenant, load in loads.items():
                self.leave(load.items, load.size, tenant)

    def enter(self, items: int, size: int, tenant: TenantId | None = None) -> None:
        """Count so much as in flight from now on."""
        self._items += items
        self._size += size
        if tenant is not None:
            self._of[tenant].items += items
            self._of[tenant].size += size

    def leave(self, items: int, size: int, tenant: TenantId | None = None) -> None:
        """Count so much no longer."""
        self._items -= items
        self._size -= size
        if tenant is not None:
            own = self._of[tenant]
            own.items -= items
            own.size -= size
            if not own.items:
                del self._of[tenant]
        self._left.set()


class _InFlight(Struct):
    """What is in flight of one tenant."""

    items: int = 0
    size: int = 0


class Batcher(Generic[Item, Result]):
    """Collects items while earlier calls are in progress and sends them together, as many as are within `most`.

    Items leave in turns of whose they are, each one's own in the order in which they were given; with one call at a time (the
    default) they arrive so. A failing call fails the callers of its batch only. `size` returns the bytes of an item. `recalls`: an
    item whose caller was cancelled is not sent if it still waits. `rest` is awaited after a batch of several, so that the next one is
    larger; a single item is not delayed.
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
        self._waiting: Turns[tuple[Item, asyncio.Future[Result]]] = Turns()
        self._senders: set[asyncio.Task[None]] = set()

    async def __call__(self, item: Item, whose: Hashable = None) -> Result:
        """Return the result for this item. Cancelling the wait recalls the item only if that was asked for."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.add((item, answer), whose)
        if len(self._senders) < self._at_once:
            self._senders.add(asyncio.create_task(self._send()))
        return await answer

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
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

    def _next_batch(self) -> Sequence[tuple[Item, asyncio.Future[Result]]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        total = 0
        while self._waiting:
            item, answer = self._waiting.first()
            if self._recalls and answer.cancelled():
                self._waiting.take()
                continue
            total += self._size(item)
            if batch and not self._most.holds(len(batch) + 1, total):
                break
            batch.append(self._waiting.take())
        return batch
