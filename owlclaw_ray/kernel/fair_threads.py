"""Threads for calls that block, shared out fairly: no owner's calls that hang keep the threads from another one's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.fair_order import Owner, Weights, equal_weights
from owlclaw_ray.kernel.fair_queue import FairQueue

_T = TypeVar("_T")


class FairThreads:
    """Threads of its own, `number` of them, at most `each` for one child of a tenant at a time.

    Who waits has its turn as FairOrder says, and waits in the event loop: a thread is had by nobody who does not use it.
    """

    def __init__(self, name: str, number: int, each: int, clock: Clock, weight: Weights = equal_weights) -> None:
        self._turns, self._clock = FairQueue(number, each, weight), clock
        self._threads = ThreadPoolExecutor(number, name)

    async def run(self, owner: Owner, work: Callable[[], _T], patience: float) -> _T:
        """Return what the function returns; raises TimeoutError if it could not begin for so many seconds.

        Cancelling the caller gives up its turn. It does not interrupt the function in its thread, whose place is taken until it
        has ended.
        """
        async with deadline(self._clock, patience):
            await self._turns.take(owner)
        running = asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)
        running.add_done_callback(lambda _: self._turns.give_back(owner))
        return await asyncio.shield(running)
