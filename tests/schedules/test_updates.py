"""Alarm clocks hear which schedules changed, from every place where that was committed."""

import asyncio
from datetime import UTC, datetime

import pytest

from owlclaw_ray.ids import RandomIds, ScheduleId
from owlclaw_ray.schedules.updates import ScheduleUpdates
from owlclaw_ray.store.commands import CancelSchedule, ResumeSchedule
from owlclaw_ray.store.run_updates import RunUpdates
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.alarm_clock_contract import AGENT, STEADY, steady
from tests.world import InlineDatabase

NOW = datetime(2026, 11, 21, tzinfo=UTC)


class OpenRequestLimit:
    """Stores on one database, each with its news."""

    def __init__(self, clock):
        self.clock, database = clock, InlineDatabase()
        self.stores = [SqlStore(database, name) for name in ("one", "two")]
        self.far = {}

    def open(self, number):
        news = RunUpdates(self.clock)
        self.stores[number].tell(news.changed)
        self.far[str(number)] = news

    async def __call__(self):
        return dict(self.far)


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def places(clock):
    places = OpenRequestLimit(clock)
    places.open(0)
    return places


@pytest.fixture
async def heard(places, clock):
    heard = []
    news = ScheduleUpdates(places, heard.append, ids=RandomIds(), clock=clock)
    news.start()
    await until(lambda: heard)
    yield heard
    await news.stop()


async def until(happened):
    async with asyncio.timeout(60):
        while not happened():
            await asyncio.sleep(0)


async def test_what_is_made_and_changed_is_heard_of_and_the_beginning_is_news_of_all(places, heard, clock):
    [store, _] = places.stores
    await store.apply([steady(clock)])
    await until(lambda: len(heard) == 2)
    await store.apply([CancelSchedule(AGENT, STEADY, NOW)])
    await until(lambda: len(heard) == 3)

    assert heard == [None, [STEADY], [STEADY]]


async def test_what_changes_nothing_is_no_news(places, heard, clock):
    [store, _] = places.stores
    await store.apply([steady(clock)])
    await store.apply([steady(clock), ResumeSchedule(AGENT, STEADY, NOW)])
    await store.apply([steady(clock, 60, "sch_2")])
    await until(lambda: sum(each is not None and "sch_2" in each for each in heard))

    assert [each for news in heard[1:] for each in news] == [STEADY, ScheduleId("sch_2")]


async def test_a_place_that_comes_is_listened_to_too_and_is_news_of_all(places, heard, clock):
    places.open(1)
    await clock.advance(10)
    await until(lambda: len(heard) == 2)
    await places.stores[1].apply([steady(clock)])
    await until(lambda: len(heard) == 3)
    await places.stores[0].apply([steady(clock, 60, "sch_2")])
    await until(lambda: len(heard) == 4)

    assert heard == [None, None, [STEADY], [ScheduleId("sch_2")]]
