"""Months of schedules: on which days their due times were, with what became of them, and on which they will be."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from console.schedule_month import bounds_of, coming_of_day, day_named, days_in, month_named, month_of, other_month
from owlclaw_ray.domain.schedule import ScheduleStatus, TickOutcome
from owlclaw_ray.schedules.firings import due_times_between
from owlclaw_ray.store.queries import TickSum
from tests.console.test_schedule_times import NOW, schedule

NOVEMBER = date(2026, 11, 1)
EXPRESSIONS = [
    "0 * * * *",
    "*/30 * * * *",
    "*/50 2 * * *",
    "0 2 * * *",
    "30 2 * * SUN",
    "*/20 1-3 * * *",
    "5 4 1,31 * FRI",
    "0 0 L * *",
]


def month(found, first=NOVEMBER, sums=(), zone="UTC"):
    return month_of(found, first, bounds_of(first, days_in(first), ZoneInfo(zone)), sums)


def days(found, *names):
    """The days that have something, each with its counts in the order of these names."""
    return {
        each.day.day: tuple(each.counts[name] for name in names) if len(names) > 1 else each.counts[names[0]]
        for week in found.weeks
        for each in week
        if each is not None and any(each.counts[name] for name in names)
    }


def test_a_month_has_whole_weeks_from_monday_in_which_other_months_have_no_days():
    weeks = month(schedule(delay_seconds=60)).weeks

    assert [len(week) for week in weeks] == [7] * 6
    assert [each and each.day.day for each in weeks[0]] == [None] * 6 + [1]
    assert [each and each.day.day for each in weeks[-1]] == [30] + [None] * 6
    assert len(month(schedule(delay_seconds=60), date(2027, 2, 1)).weeks) == 4


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize(
    ("first", "zone"),
    [
        (date(2027, 3, 1), "Europe/Berlin"),
        (date(2027, 10, 1), "Europe/Berlin"),
        (date(2027, 9, 1), "America/Santiago"),  # its clock goes from 24:00 to 01:00
        (NOVEMBER, "Asia/Kathmandu"),
    ],
)
def test_as_many_times_are_to_come_as_will_be_due_also_when_the_clock_is_set(expression, first, zone):
    found = schedule(cron_expression=expression, timezone=zone)
    bounds = bounds_of(first, days_in(first), ZoneInfo(zone))

    due = due_times_between(found, max(bounds[0], found.next_due), bounds[-1] - timedelta(microseconds=1), 9_000)

    assert days(month(found, first, zone=zone), "to_come") == Counter(at.astimezone(ZoneInfo(zone)).day for at in due)


def test_what_comes_begins_with_the_next_time_and_ends_for_what_does_not_go_on():
    hourly = schedule(interval_seconds=3_600)
    assert days(month(hourly), "to_come") == {26: 11, 27: 24, 28: 24, 29: 24, 30: 24}
    assert month(hourly).total == {"to_come": 107}
    assert days(month(schedule(delay_seconds=86_400)), "to_come") == {27: 1}
    for status in (ScheduleStatus.PAUSED, ScheduleStatus.CANCELLED):
        assert days(month(replace(hourly, status=status)), "to_come") == {}
    gone = schedule(cron_expression="0 9 * * *", timezone="Asia/Shanghai")
    assert days(month(replace(gone, timezone="Mars/Olympus")), "to_come") == {}


@pytest.mark.parametrize("rule", [{"interval_seconds": 21_600}, {"cron_expression": "0 */6 * * *"}])
def test_missed_times_of_one_tick_are_of_the_days_on_which_they_were_due(rule):
    def at(day, hour):
        return datetime(2026, 11, 1, hour, tzinfo=UTC) + timedelta(days=day - 1)

    sums = [
        TickSum(-1, TickOutcome.SKIPPED, 6, at(-1, 18), at(1, 6)),
        TickSum(0, TickOutcome.FIRED, 2, at(1, 12), at(1, 18)),
        TickSum(1, TickOutcome.SKIPPED, 7, at(2, 6), at(3, 18)),
        TickSum(3, TickOutcome.CAUGHT_UP, 1, at(4, 0), at(4, 0)),
        TickSum(29, TickOutcome.SKIPPED, 9, at(30, 12), at(32, 12)),
    ]
    paused = replace(schedule(**rule), status=ScheduleStatus.PAUSED)

    shown = days(month(paused, sums=sums), "fired", "caught_up", "skipped")
    assert shown == {1: (2, 0, 2), 2: (0, 0, 3), 3: (0, 0, 4), 4: (0, 1, 0), 30: (0, 0, 2)}


def test_times_to_come_of_a_day_are_those_of_its_part_that_is_left():
    begin, end = bounds_of(date(2026, 11, 26), 1, ZoneInfo("UTC"))
    hourly = schedule(cron_expression="0 * * * *")

    assert [at.hour for at in coming_of_day(hourly, begin, end)] == [*range(13, 24)]
    assert len(coming_of_day(hourly, begin + timedelta(days=9), end + timedelta(days=9))) == 24
    assert list(coming_of_day(hourly, begin - timedelta(days=1), begin)) == []
    assert list(coming_of_day(replace(hourly, status=ScheduleStatus.PAUSED), begin, end)) == []
    once = schedule(delay_seconds=60)
    assert list(coming_of_day(once, begin, end)) == [NOW + timedelta(seconds=60)]
    assert list(coming_of_day(once, begin - timedelta(days=1), begin)) == []


def test_months_and_days_have_names_from_1970_to_2999():
    assert month_named("2026-11") == NOVEMBER
    assert day_named("2024-02-29") == date(2024, 2, 29)
    assert (other_month(NOVEMBER, 2), other_month(NOVEMBER, -11)) == (date(2027, 1, 1), date(2025, 12, 1))
    assert (other_month(date(1970, 1, 1), -1), other_month(date(2999, 12, 1), 1)) == (None, None)
    for wrong in ("2026-13", "2026-1", "1969-12", "3000-01", "2026-11-01", "x"):
        with pytest.raises(ValueError, match=r".?"):
            month_named(wrong)
    for wrong in ("2026-02-30", "2026-11", "2026-11-1", "1969-12-31", "2026-11-03T00:00", "2026-1103"):
        with pytest.raises(ValueError, match=r".?"):
            day_named(wrong)
