"""An alarm clock that uses an external engine to fire schedules on time, and works without it during an outage (S1, S3).

The store's schedule table is the truth, and the outbox: each commit that creates or changes schedules is reported
(`schedules.updates`), and their alarms are set, moved or removed at once. Reports may be lost, and so may alarms: every
`reconcile` seconds the engine's alarms are compared with the wanted ones. Heartbeats have no alarms: most of them find nothing
to do.

A schedule that has an alarm is left to the engine for `grace` seconds after its due time, and then fired from here. After such a
miss the engine is not trusted: everything fires from here, on time, until the engine rings on time again. What has no alarm always
fires from here. So outages need no detection of their own, an engine that answers but never rings counts as one, and agents,
which only write to the store, never notice whether there is an engine.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

from owlclaw_ray.domain.schedule import ScheduleKind, ScheduleStatus
from owlclaw_ray.errors import AlarmEngineUnavailableError, RuntimeUnavailableError
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.schedules.api import Alarm, AlarmClock, SyncPace
from owlclaw_ray.schedules.firings import ScheduleFirer
from owlclaw_ray.schedules.scheduler import RETRY
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import DueSchedules, SchedulesByIds, UpcomingSchedules

_BATCH = 500
_SEEN = 5_000
"""Schedules that one look at the store reads; if there are more, the next look is when the last of these is due."""
_AT_ONCE = 8
"""Concurrent calls of the engine."""
_CLOCK_CHECK_SECONDS = 5.0
"""How often the system clock is checked for jumps."""
_ENGINE_RETRY_SECONDS = 5.0
"""Seconds until an engine that did not answer is asked again."""
_SOONEST = timedelta(seconds=5)
"""What is due sooner gets no alarm: an engine needs some time to react."""
_EXACTNESS = timedelta(seconds=1)
"""How far an alarm's time may differ from the requested one, and how late a ring may be and still count as on time."""
_RINGING = timedelta(seconds=60)
"""How long after its time an alarm may still ring."""
_NEVER = datetime.min.replace(tzinfo=UTC)

logger = logging.getLogger(__name__)


class EngineAlarm(Struct, frozen=True):
    """An alarm that an engine keeps."""

    alarm_id: str
    schedule_id: ScheduleId
    at: datetime
    """As the engine keeps it, which may be less exact than requested."""


class AlarmEngine(Protocol):
    """An external service that keeps alarms. Every call ends within a few seconds.

    All raise AlarmEngineUnavailableError, after which they may or may not have taken effect. They are safe to repeat: an alarm that
    is set twice rings twice, which is harmless.
    """

    async def alarms(self) -> Sequence[EngineAlarm]:
        """Return the pending alarms of this installation."""
        ...

    async def set(self, schedule_id: ScheduleId, at: datetime) -> str:
        """Set an alarm that rings once for the schedule, at that time or soon after; return its id."""
        ...

    async def remove(self, alarm_id: str) -> None:
        """Remove an alarm. One that is about to ring may still do so; one that is gone is not an error."""
        ...


class AlarmCounts(Struct, frozen=True):
    """Counts since the process began."""

    reachable: bool = False
    """Whether the engine answered the latest call."""
    standing: int = 0
    """Alarms in the engine, as far as is known."""
    alarms_set: int = 0
    refused: int = 0
    """Times that it did not answer, or refused."""
    rings: int = 0
    """Schedules that the engine rang for."""


class Differences(Struct, frozen=True):
    """How an engine's alarms differ from the wanted ones."""

    standing: Mapping[ScheduleId, EngineAlarm]
    """The alarms to keep, each with the exact due time of its schedule."""
    missing: Mapping[ScheduleId, datetime]
    surplus: tuple[EngineAlarm, ...]


def differences(alarms: Sequence[EngineAlarm], wanted: Mapping[ScheduleId, datetime], now: datetime) -> Differences:
    """Compare. What is due within moments is not missing, and an alarm that is about to ring is not surplus.

    Of several alarms for the same time, the one with the smallest id is kept.
    """
    standing: dict[ScheduleId, EngineAlarm] = {}
    surplus = []
    for alarm in sorted(alarms, key=lambda each: each.alarm_id):
        due = wanted.get(alarm.schedule_id)
        if due is None or abs(alarm.at - due) >= _EXACTNESS or alarm.schedule_id in standing:
            if not _is_ringing(alarm, now):
                surplus.append(alarm)
        else:
            standing[alarm.schedule_id] = replace(alarm, at=due)
    missing = {each: due for each, due in wanted.items() if each not in standing and due > now + _SOONEST}
    return Differences(standing, missing, tuple(surplus))


def _is_ringing(alarm: EngineAlarm, now: datetime) -> bool:
    return now - _RINGING < alarm.at < now + _EXACTNESS


class EngineAlarmClock(AlarmClock):
    """Synchronises an engine with the store's schedules. The engine calls `ring`."""

    def __init__(
        self,
        *,
        schedule_firer: ScheduleFirer,
        store: QueryStore,
        engine: AlarmEngine,
        clock: Clock,
        pace: SyncPace | None = None,
    ) -> None:
        self._schedule_firer, self._store, self._engine, self._clock = schedule_firer, store, engine, clock
        self._pace, self._counts = pace or SyncPace(), AlarmCounts()
        self._armed: dict[ScheduleId, EngineAlarm] = {}
        """The engine's alarms, as far as is known. Empty while it cannot be reached."""
        self._trusted = False
        """Whether the engine rang on time since it last missed an alarm."""
        self._awaited: dict[ScheduleId, datetime] = {}
        """Due times that were fired from here although they have an alarm, until it rings."""
        self._agenda: dict[ScheduleId, datetime] = {}
        """What is due up to `_until`, by the last read of the store."""
        self._until, self._offset = _NEVER, timedelta()
        self._news: dict[ScheduleId, None] = {}
        self._unset: dict[ScheduleId, datetime | None] = {}
        """Alarms to set, or (None) to remove."""
        self._compare_at = -math.inf
        self._rings = False
        self._firing = Periodic(
            "firing schedules", self._fire, clock, _CLOCK_CHECK_SECONDS, due_in=self._due_in, retry=RETRY
        )
        self._setting = Periodic("setting alarms", self._set_alarms, clock, self._pace.reconcile, due_in=self._set_in)

    @override
    def start(self) -> None:
        self._rings = True
        self._until, self._compare_at = _NEVER, -math.inf
        self._firing.start()
        self._setting.start()

    @override
    async def stop(self) -> None:
        self._rings = self._trusted = False
        await self._setting.stop()
        await self._firing.stop()
        self._armed.clear()

    @property
    def counts(self) -> AlarmCounts:
        """Counts since the process began."""
        return replace(self._counts, standing=len(self._armed))

    @override
    def changed(self, schedule_ids: Collection[ScheduleId] | None) -> None:
        if schedule_ids is None:
            self._until, self._compare_at = _NEVER, -math.inf
            self._setting.soon()
        else:
            self._news.update(dict.fromkeys(schedule_ids))
        self._firing.soon()

    async def ring(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Alarm]:
        """See ScheduleFirer.ring. A schedule that the engine rang too early for is fired from here when it is due.

        Raises RuntimeUnavailableError while stopped.
        """
        if not self._rings:
            raise RuntimeUnavailableError("the runtime is stopping: schedules do not fire any more")
        now = self._clock.now()
        for each in schedule_ids:
            armed = self._armed.get(each)
            due = self._awaited.pop(each, None)
            if armed is not None and armed.at <= now + _EXACTNESS:
                due = self._armed.pop(each).at
            self._trusted = self._trusted or (due is not None and abs(now - due) <= _EXACTNESS)
        alarms = await self._ring(schedule_ids)
        self._counts = replace(self._counts, rings=self._counts.rings + len(schedule_ids))
        return alarms

    async def _ring(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Alarm]:
        alarms = await self._schedule_firer.ring(schedule_ids)
        for alarm in alarms:
            self._expect(alarm.schedule_id, alarm.at)
        return alarms

    def _expect(self, schedule_id: ScheduleId, due: datetime | None) -> None:
        if due is not None and due <= self._until:
            self._agenda[schedule_id] = due
        else:
            self._agenda.pop(schedule_id, None)

    async def _fire(self) -> None:
        if self._clock.now() >= self._until or abs(self._time_of_day() - self._offset) > _EXACTNESS:
            await self._look()
        while self._news:
            news = list(islice(self._news, _BATCH))
            found = {each.schedule_id: each for each in await self._store.read(SchedulesByIds(news))}
            for each in news:
                self._news.pop(each, None)
                schedule = found.get(each)
                active = schedule is not None and schedule.status is ScheduleStatus.ACTIVE
                at = schedule.next_fire_at if schedule is not None and active else None
                self._expect(each, at)
                if schedule is None or schedule.kind is not ScheduleKind.HEARTBEAT:
                    self._unset[each] = at
                    self._setting.soon()
        now = self._clock.now()
        due = [each for each, when in self._agenda.items() if self._fires_at(each, when) <= now]
        for start in range(0, len(due), _BATCH):
            batch = due[start : start + _BATCH]
            for each in batch:
                self._fired_locally(each)
            await self._ring(batch)

    def _time_of_day(self) -> timedelta:
        """Return how far the system clock is ahead of the monotonic one."""
        return self._clock.now() - _NEVER - timedelta(seconds=self._clock.monotonic())

    async def _look(self) -> None:
        """Read what is due soon. Overdue schedules without alarms fire at once."""
        if not self._armed:
            await self._schedule_firer.fire_all_due()
        until = self._clock.now() + timedelta(seconds=self._pace.look)
        found = await self._store.read(DueSchedules(until, _SEEN))
        self._agenda = {each.schedule_id: each.next_fire_at for each in found if each.next_fire_at is not None}
        self._until = max(self._agenda.values()) if len(found) == _SEEN else until
        self._offset = self._time_of_day()

    def _fires_at(self, schedule_id: ScheduleId, due: datetime) -> datetime:
        """Return when it is fired from here unless the engine rings before."""
        armed = self._armed.get(schedule_id)
        waits = self._trusted and armed is not None and armed.at == due
        return due + timedelta(seconds=self._pace.grace) if waits else due

    def _fired_locally(self, schedule_id: ScheduleId) -> None:
        """Note that a schedule fires from here."""
        due, armed = self._agenda[schedule_id], self._armed.get(schedule_id)
        if armed is None or armed.at != due:
            return
        del self._armed[schedule_id]
        if self._trusted:
            logger.info(
                "the engine did not ring for %s within %g s of its due time; it is fired without it",
                schedule_id,
                self._pace.grace,
            )
            self._trusted, self._compare_at = False, -math.inf
            self._setting.soon()
        else:
            self._awaited[schedule_id] = due

    async def _due_in(self) -> float:
        following = min((self._fires_at(each, at) for each, at in self._agenda.items()), default=self._until)
        return (min(following, self._until) - self._clock.now()).total_seconds()

    async def _set_in(self) -> float:
        return 0.0 if self._unset else self._compare_at - self._clock.monotonic()

    async def _set_alarms(self) -> None:
        try:
            if self._clock.monotonic() >= self._compare_at:
                await self.reconcile()
            elif self._counts.reachable:
                await self._set_changed()
            else:
                self._unset.clear()
        except AlarmEngineUnavailableError as error:
            log = logger.warning if self._counts.reachable or not self._counts.refused else logger.debug
            log("the engine does not answer, schedules fire without it until it does: %s", error)
            self._armed.clear()
            self._unset.clear()
            self._trusted, self._compare_at = (
                False,
                self._clock.monotonic() + min(_ENGINE_RETRY_SECONDS, self._pace.reconcile),
            )
            self._counts = replace(self._counts, reachable=False, refused=self._counts.refused + 1)

    async def reconcile(self) -> None:
        """Give the engine exactly the wanted alarms. Raises AlarmEngineUnavailableError."""
        alarms = await self._engine.alarms()
        self._unset.clear()
        wanted = await self._store.read(UpcomingSchedules(self._pace.most))
        now = self._clock.now()
        found = differences(alarms, wanted, now)
        ringing = {each: armed for each, armed in self._armed.items() if _is_ringing(armed, now)}
        self._armed = {**ringing, **found.standing}
        self._firing.soon()
        await _all(self._engine.remove(each.alarm_id) for each in found.surplus)
        await _all(self._set(each, due) for each, due in found.missing.items())
        if self._counts.refused and not self._counts.reachable:
            logger.info("the engine answers again: it keeps %d alarms", len(self._armed))
        self._counts = replace(self._counts, reachable=True)
        self._compare_at = self._clock.monotonic() + self._pace.reconcile
        self._awaited = {each: due for each, due in self._awaited.items() if now - due < _RINGING}

    async def _set_changed(self) -> None:
        """Update the alarms of changed schedules, within the limit of alarms."""
        changed, self._unset = self._unset, {}
        soonest, last = self._clock.now() + _SOONEST, _NEVER
        if len(self._armed) >= self._pace.most:
            last = max(each.at for each in self._armed.values())
        stale: list[str] = []
        missing: dict[ScheduleId, datetime] = {}
        for schedule_id, due in changed.items():
            armed = self._armed.get(schedule_id)
            if armed is not None and armed.at == due:
                continue
            if armed is not None:
                stale.append(self._armed.pop(schedule_id).alarm_id)
            if due is not None and due > soonest and (len(self._armed) + len(missing) < self._pace.most or due < last):
                missing[schedule_id] = due
        await _all(self._engine.remove(each) for each in stale)
        await _all(self._set(each, due) for each, due in missing.items())

    async def _set(self, schedule_id: ScheduleId, due: datetime) -> None:
        alarm_id = await self._engine.set(schedule_id, due)
        self._armed[schedule_id] = EngineAlarm(alarm_id, schedule_id, due)
        self._counts = replace(self._counts, alarms_set=self._counts.alarms_set + 1)


async def _all(calls: Iterator[Coroutine[Any, Any, None]]) -> None:
    """Await the calls in batches; none is started after a failure."""
    while batch := list(islice(calls, _AT_ONCE)):
        for outcome in await asyncio.gather(*batch, return_exceptions=True):
            if outcome is not None:
                raise outcome
