"""The alarm clock that has an engine elsewhere ring for it, and does without while that fails (S3).

The store's schedule table is the truth. The reconciler compares the alarms that the engine keeps with the schedules that come
next, and sets what is missing and removes what nobody wants: after a firing, a pause, an outage, or a loss in the engine. What
has no alarm is rung for here, at its time; what has one too, when the engine is `grace` late with it. So agents, which only ever
write to the store, never notice whether there is an engine.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.schedule import Schedule, ScheduleStatus
from owlclaw_ray.engine.periodic import Periodic
from owlclaw_ray.errors import AlarmEngineUnavailableError, RuntimeUnavailableError
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.ports.alarms import AlarmEngine, EngineAlarm
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.schedules import Alarm, Bell
from owlclaw_ray.ports.store import ScheduleStore

_BATCH = 500
_AT_ONCE = 8
"""Calls of the engine that are under way together."""
_SOONEST = timedelta(seconds=5)
"""What falls due sooner gets no alarm: an engine needs some time to take notice."""
_EXACTNESS = timedelta(seconds=1)
"""By how much an alarm's time may differ from the one it was asked for."""


class SyncPace(Struct, frozen=True):
    """How alarms are kept."""

    reconcile: float = 30.0
    """Seconds from one comparison of engine and schedules to the next."""
    grace: float = 3.0
    """By how many seconds the engine may be late before a schedule is fired without it."""
    horizon: float = 3_600.0
    """Only what falls due within so many seconds has an alarm in the engine."""
    most: int = 5_000
    """Alarms in the engine at most: those that come first."""
    look: float = 1.0
    """Seconds from one look for what is due and silent to the next."""


class AlarmCounts(Struct, frozen=True):
    """How the engine fared since the process began."""

    reachable: bool = False
    """Whether it answered the latest comparison."""
    standing: int = 0
    """Alarms that it keeps, as far as is known."""
    alarms_set: int = 0
    refused: int = 0
    """Comparisons that it cut short: it did not answer, or refused."""
    rings: int = 0
    """Schedules that it rang for."""


class Differences(Struct, frozen=True):
    """What distinguishes an engine from what is wanted of it."""

    standing: Mapping[ScheduleId, datetime]
    """The schedules that have their alarm, and when they fall due."""
    missing: Mapping[ScheduleId, datetime]
    surplus: tuple[EngineAlarm, ...]


def differences(alarms: Sequence[EngineAlarm], wanted: Mapping[ScheduleId, datetime], soonest: datetime) -> Differences:
    """Compare. What is wanted before `soonest` is not missing. Of several alarms for the same time the one whose id comes first
    stays, whoever asks.
    """
    standing: dict[ScheduleId, datetime] = {}
    surplus = []
    for alarm in sorted(alarms, key=lambda each: each.alarm_id):
        due = wanted.get(alarm.schedule_id)
        if due is None or abs(alarm.at - due) >= _EXACTNESS or alarm.schedule_id in standing:
            surplus.append(alarm)
        else:
            standing[alarm.schedule_id] = due
    missing = {each: due for each, due in wanted.items() if each not in standing and due > soonest}
    return Differences(standing, missing, tuple(surplus))


class EngineAlarmClock:
    """Implements `AlarmClock`. What the engine rings is `ring`."""

    def __init__(
        self, *, bell: Bell, store: ScheduleStore, engine: AlarmEngine, clock: Clock, pace: SyncPace | None = None
    ) -> None:
        self._bell, self._store, self._engine, self._clock = bell, store, engine, clock
        self._pace, self._counts = pace or SyncPace(), AlarmCounts()
        self._armed: dict[ScheduleId, datetime] = {}
        """The due times that the engine rings for, as far as is known. Empty while the engine cannot be reached."""
        self._rings = self._more = False
        self._firing = Periodic("firing schedules", self._ring_due, clock, self._pace.look, due_in=self._due_in)
        self._reconciling = Periodic("setting alarms", self.reconcile, clock, self._pace.reconcile)

    def start(self) -> None:
        """See AlarmClock.start."""
        self._rings = True
        self._firing.start()
        self._reconciling.start()

    async def stop(self) -> None:
        """See AlarmClock.stop. The alarms stay: they find the next one that starts, or nobody."""
        self._rings = False
        await self._reconciling.stop()
        await self._firing.stop()
        self._armed.clear()

    @property
    def counts(self) -> AlarmCounts:
        """How the engine fared."""
        return replace(self._counts, standing=len(self._armed))

    async def ring(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Alarm]:
        """See Bell.ring. What the engine rang too early for is rung for here at its time.

        Raises RuntimeUnavailableError while it is stopped.
        """
        alarms = await self._ring(schedule_ids)
        self._counts = replace(self._counts, rings=self._counts.rings + len(schedule_ids))
        return alarms

    async def _ring(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Alarm]:
        if not self._rings:
            raise RuntimeUnavailableError("the runtime stops: nothing fires any more")
        for each in schedule_ids:
            self._armed.pop(each, None)
        return await self._bell.ring(schedule_ids)

    async def reconcile(self) -> None:
        """Have the engine keep the alarms that are wanted, and no others. Raises AlarmEngineUnavailableError."""
        try:
            alarms = await self._engine.alarms()
            wanted = await self._wanted(alarms)
            found = differences(alarms, wanted, self._clock.now() + _SOONEST)
            self._armed = dict(found.standing)
            await _all(self._engine.remove(each.alarm_id) for each in found.surplus)
            await _all(self._set(each, due) for each, due in found.missing.items())
        except AlarmEngineUnavailableError:
            self._armed.clear()
            self._counts = replace(self._counts, reachable=False, refused=self._counts.refused + 1)
            raise
        self._counts = replace(self._counts, reachable=True)

    async def _wanted(self, alarms: Sequence[EngineAlarm]) -> Mapping[ScheduleId, datetime]:
        """Return when the schedules fall due that may have an alarm: those that come next, and others that have one."""
        until = self._clock.now() + timedelta(seconds=self._pace.horizon)
        wanted = _due_times(await self._store.due_schedules(until, self._pace.most))
        others = list({each.schedule_id for each in alarms} - wanted.keys())
        for start in range(0, len(others), _BATCH):
            wanted |= _due_times(await self._store.schedules_named(others[start : start + _BATCH]))
        return wanted

    async def _set(self, schedule_id: ScheduleId, due: datetime) -> None:
        await self._engine.set(schedule_id, due)
        self._armed[schedule_id] = due
        self._counts = replace(self._counts, alarms_set=self._counts.alarms_set + 1)

    async def _ring_due(self) -> None:
        if not self._armed:
            await self._bell.ring_all()
            return
        now = self._clock.now()
        late = now - timedelta(seconds=self._pace.grace)
        due = await self._store.due_schedules(now, _BATCH)
        self._more = len(due) == _BATCH
        silent = [each.schedule_id for each in due if not self._engine_may_ring(each, late)]
        if silent:
            await self._ring(silent)

    def _engine_may_ring(self, schedule: Schedule, late: datetime) -> bool:
        armed = self._armed.get(schedule.schedule_id)
        return armed is not None and armed == schedule.next_fire_at and armed > late

    async def _due_in(self) -> float:
        upcoming = await self._store.next_due()
        if upcoming is None:
            return math.inf
        seconds = (upcoming - self._clock.now()).total_seconds()
        return seconds if seconds > 0 or self._more else self._pace.look


def _due_times(schedules: Sequence[Schedule]) -> dict[ScheduleId, datetime]:
    return {
        each.schedule_id: each.next_fire_at
        for each in schedules
        if each.status is ScheduleStatus.ACTIVE and each.next_fire_at is not None
    }


async def _all(calls: Iterator[Coroutine[Any, Any, None]]) -> None:
    """Make the calls, some at a time; no more are begun after a failure."""
    while batch := list(islice(calls, _AT_ONCE)):
        for outcome in await asyncio.gather(*batch, return_exceptions=True):
            if outcome is not None:
                raise outcome
