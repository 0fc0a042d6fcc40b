"""The contract of every AlarmClock, as tests: subclass AlarmClockContract where fixtures `store`, `clock` and `alarm_clock` give
an empty store, a ManualClock, and an alarm clock over both that rings `ScheduleFirer` and has not been started.
"""

from __future__ import annotations

from datetime import timedelta

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.schedules.api import AlarmClock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import CancelSchedule, CreateSchedule, PauseSchedule, ResumeSchedule
from owlclaw_ray.store.queries import RunFilter, TicksOfSchedule
from owlclaw_ray.testing.clock import ManualClock

AGENT = AgentRef.parse("watch")
STEADY = ScheduleId("sch_steady")
SOON = 5.0
"""Within how many seconds of its time an alarm clock should have rung."""


def steady(clock: ManualClock, seconds: int = 60, schedule_id: str = STEADY) -> CreateSchedule:
    """Return a schedule that falls due after so many seconds, and again and again."""
    now = clock.now()
    return CreateSchedule(
        Schedule(
            ScheduleId(schedule_id),
            AGENT,
            ScheduleKind.INTERVAL,
            "look",
            now,
            now + timedelta(seconds=seconds),
            interval_seconds=seconds,
            overlap=OverlapPolicy.ENQUEUE,
        ),
        9,
    )


class AlarmClockContract:
    """Ringing."""

    async def test_a_schedule_fires_at_its_times_and_not_before(
        self, store: Store, clock: ManualClock, alarm_clock: AlarmClock
    ) -> None:
        await store.apply([steady(clock)])
        alarm_clock.start()

        seen = []
        for seconds in (59, 1 + SOON, 59 - SOON, 1 + SOON):
            await clock.advance(seconds)
            seen.append(len(await runs(store)))
        await alarm_clock.stop()

        assert seen == [0, 1, 1, 2]

    async def test_a_schedule_that_is_made_while_the_clock_runs_fires(
        self, store: Store, clock: ManualClock, alarm_clock: AlarmClock
    ) -> None:
        alarm_clock.start()
        await clock.advance(100)

        await store.apply([steady(clock)])
        await clock.advance(60 + SOON)
        await alarm_clock.stop()

        assert len(await runs(store)) == 1

    async def test_what_fell_due_while_the_clock_stood_fires_once_when_it_starts(
        self, store: Store, clock: ManualClock, alarm_clock: AlarmClock
    ) -> None:
        await store.apply([steady(clock)])
        await clock.advance(3_600)
        before = len(await runs(store))

        alarm_clock.start()
        await clock.advance(SOON)
        await alarm_clock.stop()
        await clock.advance(3_600)

        assert (before, len(await runs(store))) == (0, 1)
        assert sum(tick.count for tick in await store.read(TicksOfSchedule(STEADY))) == 60

    async def test_what_is_paused_or_cancelled_does_not_fire_and_what_goes_on_does(
        self, store: Store, clock: ManualClock, alarm_clock: AlarmClock
    ) -> None:
        other = ScheduleId("sch_other")
        await store.apply([steady(clock), steady(clock, 60, other)])
        alarm_clock.start()
        await clock.advance(30)

        await store.apply([PauseSchedule(AGENT, STEADY, clock.now()), CancelSchedule(AGENT, other, clock.now())])
        await clock.advance(600)
        quiet = len(await runs(store))
        await store.apply([ResumeSchedule(AGENT, STEADY, clock.now())])
        await clock.advance(60 + SOON)
        await alarm_clock.stop()

        assert quiet == 0
        assert {run.trigger.source for run in await runs(store)} == {STEADY}
        assert sum(tick.count for tick in await store.read(TicksOfSchedule(STEADY))) == 11

    async def test_however_often_the_clock_is_started_each_time_fires_once(
        self, store: Store, clock: ManualClock, alarm_clock: AlarmClock
    ) -> None:
        await store.apply([steady(clock)])

        for _ in range(6):
            alarm_clock.start()
            await clock.advance(30)
            await alarm_clock.stop()

        ticks = await store.read(TicksOfSchedule(STEADY))
        assert [tick.count for tick in ticks] == [1] * len(ticks)
        assert len(await runs(store)) == len(ticks) >= 2


async def runs(store: Store) -> list[Run]:
    """Return all runs of the agent."""
    return list(await store.read(RunFilter(AGENT.tenant, AGENT)))
