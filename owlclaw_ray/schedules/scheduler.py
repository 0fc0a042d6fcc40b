"""The embedded alarm clock: it looks into the store for what is due. It needs no server, and nothing is lost when it stops."""

from __future__ import annotations

import math
from collections.abc import Collection

from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.schedules.api import ScheduleFirer
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import NextDueTime

RETRY = 1.0
"""Seconds after which a store that does not answer is asked again."""


class Scheduler:
    """Implements `AlarmClock`: rings for what is due, and sleeps until the next due time, news of schedules, or `poll` seconds.

    It sleeps by the monotonic clock, so that a time of day that is set forwards or backwards is noticed within `poll` seconds, and so is
    what was committed by those of whom there is no news.
    """

    def __init__(self, *, schedule_firer: ScheduleFirer, store: QueryStore, clock: Clock, poll: float = 5.0) -> None:
        self._store, self._clock = store, clock
        self._firing = Periodic(
            "firing schedules", schedule_firer.fire_all_due, clock, poll, due_in=self._due_in, retry=RETRY
        )

    def start(self) -> None:
        """See AlarmClock.start."""
        self._firing.start()

    async def stop(self) -> None:
        """See AlarmClock.stop."""
        await self._firing.stop()

    def changed(self, schedule_ids: Collection[ScheduleId] | None) -> None:
        """See AlarmClock.changed."""
        del schedule_ids
        self._firing.soon()

    async def _due_in(self) -> float:
        upcoming = await self._store.read(NextDueTime())
        return math.inf if upcoming is None else (upcoming - self._clock.now()).total_seconds()
