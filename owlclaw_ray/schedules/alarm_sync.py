"""The alarm clock that has an engine elsewhere ring for it, and does without while that fails (S1, S3).

The store's schedule table is the truth, and the outbox: a commit that makes or changes schedules is news of them
(`engine.schedule_news`), on which their alarms are set, moved or removed at once. News may be lost, and so may alarms: every
`reconcile` seconds all that the engine keeps is compared with all that is wanted. Heartbeats have no alarms: most of them come to
nothing.

What the engine rings for is left to it for `grace` seconds, and fired from here when it says nothing by then. After such a
silence it is not trusted: everything fires from here, at its time, until the engine is heard to ring at its time again. What has
no alarm fires from here always. So an outage needs no detection of its own, an engine that answers and rings for nobody is one
too, and agents, which only ever write to the store, never notice whether there is an engine.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, ScheduleStatus
from owlclaw_ray.errors import AlarmEngineUnavailableError, RuntimeUnavailableError
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.schedules.alarms import AlarmEngine, EngineAlarm
from owlclaw_ray.schedules.api import Alarm, ScheduleFirer
from owlclaw_ray.schedules.scheduler import RETRY
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import DueSchedules, SchedulesByIds, UpcomingSchedules

_BATCH = 500
_SEEN = 5_000
"""Schedules that one look sees; of more the next one is made when these are due."""
_AT_ONCE = 8
"""Calls of the engine that are under way together."""
_CLOCK_CHECK_SECONDS = 5.0
"""Seconds after which it is looked whether the time of day was set, without asking anybody."""
_ENGINE_RETRY_SECONDS = 5.0
"""Seconds after which an engine that did not answer is asked again."""
_SOONEST = timedelta(seconds=5)
"""What falls due sooner gets no alarm: an engine needs some time to take notice."""
_EXACTNESS = timedelta(seconds=1)
"""By how much an alarm's time may differ from the one it was asked for, and how late a ring may be that counts as one at its time."""
_RINGING = timedelta(seconds=60)
"""How long after its time an alarm may still ring."""
_NEVER = datetime.min.replace(tzinfo=UTC)

logger = logging.getLogger(__name__)


class SyncPace(Struct, frozen=True):
    """How alarms are kept."""

    reconcile: float = 30.0
    """Seconds from one comparison of engine and schedules to the next."""
    grace: float = 3.0
    """By how many seconds the engine may be late before a schedule is fired without it."""
    most: int = 5_000
    """Alarms in the engine at most: those that come first."""
    look: float = 30.0
    """Seconds from one look into the store for what falls due to the next. News comes in between."""


class AlarmCounts(Struct, frozen=True):
    """How the engine fared since the process began."""

    reachable: bool = False
    """Whether it answered the latest call."""
    standing: int = 0
    """Alarms that it keeps, as far as is known."""
    alarms_set: int = 0
    refused: int = 0
    """Times that it cut short: it did not answer, or refused."""
    rings: int = 0
    """Schedules that it rang for."""


class Differences(Struct, frozen=True):
    """What distinguishes an engine from what is wanted of it."""

    standing: Mapping[ScheduleId, EngineAlarm]
    """The alarms that stay, each with the very time that its schedule falls due."""
    missing: Mapping[ScheduleId, datetime]
    surplus: tuple[EngineAlarm, ...]


def differences(alarms: Sequence[EngineAlarm], wanted: Mapping[ScheduleId, datetime], now: datetime) -> Differences:
    """Compare. What is due in a moment is not missing, and an alarm that is about to ring is not surplus.

    Of several alarms for the same time the one whose id comes first stays, whoever asks.
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


class EngineAlarmClock:
    """Implements `AlarmClock`. What the engine rings is `ring`."""

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
        """The alarms that the engine keeps, as far as is known. Empty while it cannot be reached."""
        self._trusted = False
        """Whether it was heard at its time since it was last silent."""
        self._awaited: dict[ScheduleId, datetime] = {}
        """Due times that were fired from here though the engine should ring for them, until it does."""
        self._agenda: dict[ScheduleId, datetime] = {}
        """What falls due up to `_until`, as the store was last seen."""
        self._until, self._offset = _NEVER, timedelta()
        self._news: dict[ScheduleId, None] = {}
        self._unset: dict[ScheduleId, datetime | None] = {}
        """Alarms to set, or with None to remove."""
        self._compare_at = -math.inf
        self._rings = False
        self._firing = Periodic(
            "firing schedules", self._fire, clock, _CLOCK_CHECK_SECONDS, due_in=self._due_in, retry=RETRY
        )
        self._setting = Periodic("setting alarms", self._set_alarms, clock, self._pace.reconcile, due_in=self._set_in)

    def start(self) -> None:
        """See AlarmClock.start."""
        self._rings = True
        self._until, self._compare_at = _NEVER, -math.inf
        self._firing.start()
        self._setting.start()

    async def stop(self) -> None:
        """See AlarmClock.stop. The alarms stay: they find the next one that starts, or nobody."""
        self._rings = self._trusted = False
        await self._setting.stop()
        await self._firing.stop()
        self._armed.clear()

    @property
    def counts(self) -> AlarmCounts:
        """How the engine fared."""
        return replace(self._counts, standing=len(self._armed))

    def changed(self, schedule_ids: Collection[ScheduleId] | None) -> None:
        """See AlarmClock.changed."""
        if schedule_ids is None:
            self._until, self._compare_at = _NEVER, -math.inf
            self._setting.soon()
        else:
            self._news.update(dict.fromkeys(schedule_ids))
        self._firing.soon()

    async def ring(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Alarm]:
        """See ScheduleFirer.ring. What the engine rang too early for is rung for here at its time.

        Raises RuntimeUnavailableError while it is stopped.
        """
        if not self._rings:
            raise RuntimeUnavailableError("the runtime stops: nothing fires any more")
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
                self._note(each, found.get(each))
        now = self._clock.now()
        due = [each for each, at in self._agenda.items() if self._fires_at(each, at) <= now]
        for start in range(0, len(due), _BATCH):
            batch = due[start : start + _BATCH]
            for each in batch:
                self._fired_locally(each)
            await self._ring(batch)

    def _time_of_day(self) -> timedelta:
        """Return by how much the time of day is ahead of the clock that nobody sets."""
        return self._clock.now() - _NEVER - timedelta(seconds=self._clock.monotonic())

    async def _look(self) -> None:
        """See what falls due. What is overdue and has no alarm fires at once, however much it is."""
        if not self._armed:
            await self._schedule_firer.fire_all_due()
        until = self._clock.now() + timedelta(seconds=self._pace.look)
        found = await self._store.read(DueSchedules(until, _SEEN))
        self._agenda = {each.schedule_id: each.next_fire_at for each in found if each.next_fire_at is not None}
        self._until = max(self._agenda.values()) if len(found) == _SEEN else until
        self._offset = self._time_of_day()

    def _note(self, schedule_id: ScheduleId, schedule: Schedule | None) -> None:
        """Take note of how a schedule stands now."""
        active = schedule is not None and schedule.status is ScheduleStatus.ACTIVE
        due = schedule.next_fire_at if schedule is not None and active else None
        self._expect(schedule_id, due)
        if schedule is None or schedule.kind is not ScheduleKind.HEARTBEAT:
            self._unset[schedule_id] = due
            self._setting.soon()

    def _fires_at(self, schedule_id: ScheduleId, due: datetime) -> datetime:
        """Return when it is fired from here, if nobody rings for it before."""
        armed = self._armed.get(schedule_id)
        waits = self._trusted and armed is not None and armed.at == due
        return due + timedelta(seconds=self._pace.grace) if waits else due

    def _fired_locally(self, schedule_id: ScheduleId) -> None:
        """Take note that a schedule fires from here."""
        due, armed = self._agenda[schedule_id], self._armed.get(schedule_id)
        if armed is None or armed.at != due:
            return
        del self._armed[schedule_id]
        if self._trusted:
            logger.info("the engine has not rung for %s by %g s after its time", schedule_id, self._pace.grace)
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
            log("no alarms are set until the engine answers, schedules fire without it: %s", error)
            self._armed.clear()
            self._unset.clear()
            self._trusted, self._compare_at = (
                False,
                self._clock.monotonic() + min(_ENGINE_RETRY_SECONDS, self._pace.reconcile),
            )
            self._counts = replace(self._counts, reachable=False, refused=self._counts.refused + 1)

    async def reconcile(self) -> None:
        """Have the engine keep the alarms that are wanted, and no others. Raises AlarmEngineUnavailableError."""
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
            logger.info("the engine answers: it keeps %d alarms", len(self._armed))
        self._counts = replace(self._counts, reachable=True)
        self._compare_at = self._clock.monotonic() + self._pace.reconcile
        self._awaited = {each: due for each, due in self._awaited.items() if now - due < _RINGING}

    async def _set_changed(self) -> None:
        """Bring the alarms of what changed up to date, as far as there is room for them."""
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
    """Make the calls, some at a time; no more are begun after a failure."""
    while batch := list(islice(calls, _AT_ONCE)):
        for outcome in await asyncio.gather(*batch, return_exceptions=True):
            if outcome is not None:
                raise outcome
