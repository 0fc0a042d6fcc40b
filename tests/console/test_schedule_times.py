"""What schedules say in words, which times come, and how ticks become days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.schedule_times import (
    cron_in_words,
    days_of,
    in_words,
    instant,
    next_times,
    what_comes,
    with_listed_steps,
    zone_of,
)
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, ScheduleRequest, ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.errors import ScheduleError
from owlclaw_ray.ids import FiringId, ScheduleId
from owlclaw_ray.schedules.cron import MACROS, validate_cron
from owlclaw_ray.schedules.timetable import new_schedule

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
SHANGHAI = ZoneInfo("Asia/Shanghai")


def schedule(name: str = "s", **fields: object) -> Schedule:
    asked = ScheduleRequest("look", **fields)
    return new_schedule(asked, schedule_id=ScheduleId(f"sch_{name}"), agent=AgentRef.parse("assistant"), now=NOW)


def tick(due: datetime, outcome: TickOutcome = TickOutcome.FIRED, count: int = 1, reason: str = "") -> Tick:
    return Tick(FiringId(f"fir_{due}"), ScheduleId("sch_s"), due, outcome, due, None, reason, due, count)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"delay_seconds": 5}, "Once"),
        ({"interval_seconds": 60}, "Every minute"),
        ({"interval_seconds": 900}, "Every 15 minutes"),
        ({"interval_seconds": 86_400}, "Every day"),
        ({"interval_seconds": 90_061}, "Every 1 day 1 hour 1 minute 1 second"),
        ({"cron_expression": "0 9 * * MON-FRI"}, "At 09:00, Monday through Friday"),
        ({"cron_expression": "30 21 * * *"}, "At 21:30"),
        ({"cron_expression": "0 9 1 * FRI"}, "At 09:00, on day 1 of the month, or on Friday"),
        ({"cron_expression": "*/45 * * * *"}, "At 0 and 45 minutes past the hour"),
        ({"cron_expression": "*/20 * * * *"}, "Every 20 minutes"),
        ({"cron_expression": "5/25 * * * *"}, "At 5, 30, and 55 minutes past the hour"),
        ({"cron_expression": "0 */5 * * *"}, "At 00:00, 05:00, 10:00, 15:00 and 20:00"),
        ({"cron_expression": "0 */6 * * *"}, "Every 6 hours"),
        ({"cron_expression": "0 9 */10 * *"}, "At 09:00, on day 1, 11, 21, and 31 of the month"),
        ({"cron_expression": "0 9 * * */2"}, "At 09:00, only on Sunday, Tuesday, Thursday, and Saturday"),
        ({"cron_expression": "*/1 * * * *"}, "Every minute"),
        ({"cron_expression": "@Weekly"}, "At 00:00, only on Sunday"),
    ],
)
def test_a_schedule_says_in_words_when_it_fires(fields, words):
    assert in_words(schedule(**fields)) == words


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("begin", ["*", "3"])
def test_steps_that_are_listed_mean_the_same_times(place, begin):
    for every in range(1, 32):
        fields = ["7", "9", "*", "*", "*"]
        fields[place] = f"{begin}/{every}"
        rule = schedule(cron_expression=" ".join(fields))

        listed = replace(rule, cron_expression=with_listed_steps(rule.cron_expression))

        assert next_times(listed, 8) == next_times(rule, 8), rule.cron_expression


def test_a_heartbeat_says_that_it_looks_first():
    beat = replace(schedule(interval_seconds=300), kind=ScheduleKind.HEARTBEAT)
    assert in_words(beat) == "Every 5 minutes, if something is pending"


NUMBERS = st.integers(0, 59)
FIELDS = st.one_of(
    st.just("*"),
    st.just("?"),
    st.just("L"),
    NUMBERS.map(str),
    st.builds("{}-{}".format, NUMBERS, NUMBERS),
    st.builds("*/{}".format, st.integers(1, 30)),
    st.builds("{}/{}".format, NUMBERS, st.integers(1, 30)),
    st.builds("{}-{}/{}".format, NUMBERS, NUMBERS, st.integers(1, 9)),
    st.lists(NUMBERS.map(str), min_size=2, max_size=4).map(",".join),
    st.sampled_from(["MON", "fri", "JAN", "mon-fri", "5#2", "L5", "MON,WED"]),
)


@given(st.one_of(st.lists(FIELDS, min_size=5, max_size=5).map(" ".join), st.sampled_from(sorted(MACROS))))
def test_whatever_fires_has_words_or_is_shown_as_it_is_written(expression):
    try:
        validate_cron(expression, "UTC")
    except ScheduleError:
        return
    assert cron_in_words(expression)


def test_the_next_times_are_those_at_which_it_fires_with_its_jitter():
    daily = schedule(cron_expression="0 9 * * *", timezone="Asia/Shanghai", jitter_seconds=600)

    first, *_, last = next_times(daily, 5)

    assert first == datetime(2026, 11, 27, 1, tzinfo=UTC) + daily.delay
    assert last == first + timedelta(days=4)
    assert next_times(daily, 5, first) == []
    assert len(next_times(daily, 5, first + timedelta(days=2))) == 2
    assert next_times(schedule(delay_seconds=60), 5) == [NOW + timedelta(seconds=60)]
    for status in (ScheduleStatus.PAUSED, ScheduleStatus.CANCELLED):
        assert next_times(replace(daily, status=status), 5) == []
    gone = replace(daily, timezone="Mars/Olympus")
    assert next_times(gone, 5) == [first]
    assert zone_of(gone).key == "UTC"


def test_what_comes_is_in_the_order_of_time_and_what_fires_often_has_one_line():
    often, daily, once = (
        schedule("a", interval_seconds=60),
        schedule("b", interval_seconds=40_000),
        schedule("c", delay_seconds=90),
    )
    late = schedule("d", delay_seconds=90_000)

    lines = what_comes([daily, often, once, late], NOW + timedelta(days=1))

    assert [(each.schedule.schedule_id, (each.at - NOW).total_seconds(), each.again) for each in lines] == [
        ("sch_a", 60, True),
        ("sch_c", 90, False),
        ("sch_b", 40_000, False),
        ("sch_b", 80_000, False),
    ]


def test_ticks_are_on_the_days_of_the_schedules_clock():
    evening, night = datetime(2026, 11, 22, 15, tzinfo=UTC), datetime(2026, 11, 22, 17, tzinfo=UTC)
    ticks = [
        tick(night + timedelta(days=1), TickOutcome.SKIPPED, 3, "late"),
        tick(night, TickOutcome.SKIPPED, 1, "paused"),
        tick(night - timedelta(minutes=1), TickOutcome.SKIPPED, 2, "late"),
        tick(evening),
    ]

    tuesday, monday, sunday = days_of(ticks, SHANGHAI)

    assert [each.day.day for each in (tuesday, monday, sunday)] == [24, 23, 22]
    assert monday.ticks == [ticks[2], ticks[1]]
    assert [(each.reason, each.count) for each in monday.skipped] == [("late", 2), ("paused", 1)]


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("2026-11-03T09:30", "2026-11-03T01:30:00+00:00"),
        ("2026-11-03T09:30:15Z", "2026-11-03T09:30:15+00:00"),
        ("", ""),
        ("tomorrow", ""),
        ("0001-01-01T00:00", ""),
    ],
)
def test_what_is_typed_into_a_field_of_time_is_of_the_clock_of_the_zone(typed, means):
    if means:
        assert instant(typed, SHANGHAI).isoformat() == means
    else:
        with pytest.raises(ValueError, match=r".?"):
            instant(typed, SHANGHAI)
