"""The embedded alarm clock: it asks the store what is due. It needs no server, and nothing is lost when it stops."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import datetime

from typing_extensions import override

from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.schedules.api import AlarmClock
from owlclaw_ray.schedules.firings import ScheduleFirer
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import NextDueTime

RETRY = 1.0
"""Seconds until a store that does not answer is asked again."""


class Scheduler(AlarmClock):
    """Fires what is due, then sleeps until the next due time, a change of schedules, or for `poll` seconds.

    It sleeps by the monotonic clock, so that jumps of the system clock, and commits that are not reported, are noticed within
    `poll` seconds.
    """

    def __init__(self, *, schedule_firer: ScheduleFirer, store: QueryStore, clock: Clock, poll: float = 5.0) -> None:
        self._firer, self._store, self._clock = schedule_firer, store, clock
        self._upcoming: datetime | None = None
        self._firing = Periodic("firing schedules", self._fire, clock, poll, due_in=self._due_in, retry=RETRY)

    @override
    def start(self) -> None:
        self._firing.start()

    @override
    async def stop(self) -> None:
        await self._firing.stop()

    @override
    def changed(self, schedule_ids: Collection[ScheduleId] | None) -> None:
        del schedule_ids
        self._firing.soon()

    async def _fire(self) -> None:
        self._upcoming = await self._store.read(NextDueTime())
        if self._upcoming is not None and self._upcoming <= self._clock.now():
            await self._firer.fire_all_due()
            self._upcoming = await self._store.read(NextDueTime())

    async def _due_in(self) -> float:
        return math.inf if self._upcoming is None else (self._upcoming - self._clock.now()).total_seconds()
