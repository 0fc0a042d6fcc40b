"""Noting how long queues are, so that charts show it for times in which nobody looked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from owlclaw_ray.domain.queue_length import Queue
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import CommandStore, QueryStore
from owlclaw_ray.store.commands import NoteQueueLengths, QueueLengthsNoted
from owlclaw_ray.store.queries import ActiveRunCounts, PendingCallbackCount

NOTE_SECONDS = 20.0
"""How often: a queue that is there for a minute is found several times."""


class _Store(CommandStore, QueryStore, Protocol):
    """What is read and written."""


class QueueRecorder:
    """Notes how long the queues of the whole cluster are."""

    def __init__(
        self, store: _Store, waiting_calls: Callable[[], Awaitable[Mapping[Queue, int]]], clock: Clock
    ) -> None:
        """`waiting_calls` returns how many calls wait for slots, without what nobody says."""
        self._store, self._waiting_calls, self._clock = store, waiting_calls, clock

    async def tick(self) -> None:
        """Note the present lengths. Raises StoreUnavailableError."""
        runs, callbacks, calls = await asyncio.gather(
            self._store.read(ActiveRunCounts()), self._store.read(PendingCallbackCount()), self._waiting_calls()
        )
        lengths = {
            Queue.QUEUED_RUNS: runs[RunStatus.QUEUED],
            Queue.WAITING_RUNS: runs[RunStatus.WAITING],
            Queue.PENDING_CALLBACKS: callbacks,
            **calls,
        }
        (outcome,) = await self._store.apply([NoteQueueLengths(self._clock.now(), lengths)])
        if not isinstance(outcome, QueueLengthsNoted):
            raise StoreUnavailableError(f"the lengths of queues were not noted: {outcome}")
