"""Duplex batching: whatever is ready leaves in one call, and the answers come back in one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar, cast

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Collects items while earlier calls are under way and sends them together.

    With one call at a time (the default) items reach the other side in the order in which they were given. A failing call
    fails the callers of its batch, no others. `recalls`: an item whose caller waits no more is not sent if it has not been.
    `rest` is waited for after a batch of several, so that the next is larger: what comes alone waits for nobody.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        most: int = 512,
        at_once: int = 1,
        recalls: bool = False,
        rest: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._call, self._most, self._at_once, self._recalls, self._rest = call, most, at_once, recalls, rest
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
            await self._send_all()
        finally:
            self._senders.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _send_all(self) -> None:
        while self._waiting:
            if self._recalls:
                self._waiting = [(item, answer) for item, answer in self._waiting if not answer.cancelled()]
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
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
