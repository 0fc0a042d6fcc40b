"""The ways by which the lease of a store is renewed: any Keeper of the cluster may, for the Directory that holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import Command, HoldLease, Outcome

PATIENCE_SECONDS = 0.75
"""How long a way has the word alone: a third one is asked within the 2 s that a holder waits for an answer, and it gives up after 4 s."""


class LeaseRoutes:
    """A CommandStore for a LeaseHolder: HoldLease goes by one more way each time that those before have not answered.

    It may thus be carried out several times, and late: that renews the lease of the Directory that still has it, and takes it from nobody
    who superseded that one. To give it back late would take it from who has it again: everything else goes by the own way alone.
    """

    def __init__(self, own: CommandStore, others: Callable[[], Sequence[CommandStore]], clock: Clock) -> None:
        """`others` returns the other ways that there are now, the same objects each time."""
        self._own, self._others, self._clock = own, others, clock
        self._answered = own
        """The way that answered last, which is asked first."""

    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """See CommandStore.apply."""
        if not all(isinstance(each, HoldLease) for each in commands):
            return await self._own.apply(commands)
        asked: dict[asyncio.Task[Sequence[Outcome]], CommandStore] = {}
        try:
            for store in self._in_order():
                asked[asyncio.create_task(_apply(store, commands))] = store
                with suppress(TimeoutError, OwlClawError):
                    async with deadline(self._clock, PATIENCE_SECONDS):
                        return await self._first(asked)
            return await self._first(asked)
        finally:
            for each in asked:
                each.cancel()

    def _in_order(self) -> Sequence[CommandStore]:
        return sorted((self._own, *self._others()), key=lambda each: each is not self._answered)

    async def _first(self, asked: dict[asyncio.Task[Sequence[Outcome]], CommandStore]) -> Sequence[Outcome]:
        """Return the first answer; raises what the last one raised if all have failed."""
        waiting = {each for each in asked if not _has_failed(each)}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in [each for each in done if not _has_failed(each)]:
                self._answered = asked[each]
                return each.result()
        return next(reversed(asked)).result()


async def _apply(store: CommandStore, commands: Sequence[Command]) -> Sequence[Outcome]:
    return await store.apply(commands)


def _has_failed(asked: asyncio.Task[Sequence[Outcome]]) -> bool:
    return asked.done() and asked.exception() is not None
