"""The embedded alarm clock, over a real store."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.schedule import ScheduleKind
from owlclaw_ray.errors import UnknownAgentError
from owlclaw_ray.schedules.firings import ScheduleFirer
from owlclaw_ray.schedules.scheduler import Scheduler
from owlclaw_ray.store.commands import CancelSchedule, CreateSchedule
from owlclaw_ray.store.queries import NextDueTime, TicksOfSchedule
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.alarm_clock_contract import AGENT, STEADY, AlarmClockContract, runs, steady
from tests.world import InlineDatabase

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


class JumpyClock(ManualClock):
    """A ManualClock whose time of day can be set."""

    def set_by(self, seconds):
        self._start += timedelta(seconds=seconds)


async def nothing(*_):
    pass


@pytest.fixture
def store():
    return SqlStore(InlineDatabase(), "one")


@pytest.fixture
def clock():
    return JumpyClock(START)


def scheduler_over(store, clock):
    firings = ScheduleFirer(
        store=store,
        wake=nothing,
        cancel=nothing,
        definitions=NoDefinitions(),
        clock=clock,
    )
    return Scheduler(schedule_firer=firings, store=store, clock=clock)


class NoDefinitions:
    """Definitions none of which is to be had, so that the default limits hold."""

    async def get(self, name):
        raise UnknownAgentError(name)


@pytest.fixture
def alarm_clock(store, clock):
    return scheduler_over(store, clock)


class TestEmbeddedAlarmClock(AlarmClockContract):
    """It rings as every alarm clock does."""


async def accounted(store):
    return sum(tick.count for tick in await store.read(TicksOfSchedule(STEADY)))


async def test_a_time_of_day_that_is_set_forward_fires_the_last_time_that_passed_within_five_seconds(store, clock):
    scheduler = scheduler_over(store, clock)
    await store.apply([steady(clock)])
    scheduler.start()
    await clock.advance(1)

    clock.set_by(3_600)
    await clock.advance(5)
    await scheduler.stop()

    assert (len(await runs(store)), await accounted(store)) == (1, 60)


async def test_a_time_of_day_that_is_set_back_fires_nothing_twice_and_goes_on_when_it_is_reached_again(store, clock):
    scheduler = scheduler_over(store, clock)
    await store.apply([steady(clock)])
    scheduler.start()
    await clock.advance(330)
    before = len(await runs(store))

    clock.set_by(-200)
    await clock.advance(200)
    meanwhile = len(await runs(store))
    await clock.advance(60)
    await scheduler.stop()

    assert (before, meanwhile, len(await runs(store))) == (5, 5, 6)
    assert await accounted(store) == 6


async def test_several_clocks_at_once_fire_each_time_once(store, clock):
    clocks = [scheduler_over(store, clock) for _ in range(3)]
    await store.apply([steady(clock)])
    for each in clocks:
        each.start()
    await clock.advance(630)
    await asyncio.gather(*(each.stop() for each in clocks))

    assert (len(await runs(store)), await accounted(store)) == (10, 10)


async def test_what_is_cancelled_between_the_look_and_the_firing_does_not_fire(store, clock):
    scheduler = scheduler_over(store, clock)
    await store.apply([steady(clock)])
    apply = store.apply

    async def cancelled_first(commands):
        await apply([CancelSchedule(AGENT, STEADY, clock.now())])
        return await apply(commands)

    store.apply = cancelled_first
    scheduler.start()
    await clock.advance(120)
    await scheduler.stop()

    assert (await runs(store), await accounted(store)) == ([], 0)


async def test_a_schedule_that_is_made_while_it_sleeps_fires_at_its_time_for_it_hears_of_it(store, clock):
    scheduler = scheduler_over(store, clock)
    store.tell(lambda _, schedule_ids: scheduler.changed(list(schedule_ids)))
    scheduler.start()
    await clock.advance(1)

    due = clock.now() + timedelta(seconds=2)
    once = replace(steady(clock).schedule, kind=ScheduleKind.ONCE, interval_seconds=0, next_fire_at=due)
    await store.apply([CreateSchedule(once, 9)])
    await clock.advance(2.1)
    await scheduler.stop()

    [run] = await runs(store)
    assert run.created_at == due


async def test_while_nothing_happens_it_asks_the_store_every_five_seconds(store, clock):
    asked, read = [], store.read

    async def noted(query):
        if isinstance(query, NextDueTime):
            asked.append(clock.monotonic())
        return await read(query)

    store.read = noted
    scheduler = scheduler_over(store, clock)
    scheduler.start()
    await clock.advance(60)
    await scheduler.stop()

    assert asked == [5.0 * number for number in range(13)]
