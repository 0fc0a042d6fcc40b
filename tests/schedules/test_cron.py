import pickle
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.errors import ScheduleError
from owlclaw_ray.schedules.cron import MACROS, next_fire, validate_cron


def times(expression, zone, after, count=3):
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found = []
    for _ in range(count):
        moment = next_fire(expression, zone, moment)
        found.append(moment.strftime("%m-%d %H:%M"))
    return found


def test_an_expression_is_about_the_clock_of_its_zone():
    assert times("0 9 * * MON-FRI", "Asia/Shanghai", "2026-03-06T00:59:59") == [
        "03-06 01:00",
        "03-09 01:00",
        "03-10 01:00",
    ]


def test_the_next_time_is_later_even_by_a_microsecond():
    at = datetime(2026, 3, 6, 12, 0, tzinfo=UTC)
    assert next_fire("0 12 * * *", "UTC", at) == datetime(2026, 3, 7, 12, tzinfo=UTC)
    assert next_fire("0 12 * * *", "UTC", at.replace(hour=11, minute=59, second=59, microsecond=999_999)) == at


def test_a_time_that_spring_skips_fires_once_right_after_the_gap():
    assert times("30 2 * * *", "America/New_York", "2026-03-07T08:00") == ["03-08 07:00", "03-09 06:30", "03-10 06:30"]


def test_times_that_spring_skips_together_fire_once_together():
    assert times("*/20 2,3 * * *", "America/New_York", "2026-03-08T06:59", 4) == [
        "03-08 07:00",
        "03-08 07:20",
        "03-08 07:40",
        "03-09 06:00",
    ]


def test_a_time_that_autumn_shows_twice_fires_the_first_time_only():
    assert times("30 1 * * *", "America/New_York", "2026-10-31T08:00") == ["11-01 05:30", "11-02 06:30", "11-03 06:30"]
    assert times("30 1 * * *", "America/New_York", "2026-11-01T05:30", 1) == ["11-02 06:30"]


def test_a_whole_day_that_a_zone_skips_fires_when_the_next_begins():
    assert times("0 12 * * *", "Pacific/Apia", "2011-12-29T22:00", 2) == ["12-30 10:00", "12-30 22:00"]


def test_a_leap_day_is_waited_for_over_a_century_without_one():
    assert next_fire("0 0 29 2 *", "UTC", datetime(2096, 3, 1, tzinfo=UTC)) == datetime(2104, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * *", "with 4 fields; must have five"),
        ("* * * * * *", "with 6 fields"),
        ("@reboot", "known names are @hourly, @daily"),
        ("daily", "with 1 field;"),
        ("", "with 0 fields"),
        ("99 * * * *", "'99' is no minute; allowed: 0-59"),
        ("0 24 * * *", "'24' is no hour"),
        ("0 9 MON * *", "'MON' is no day of month"),
        ("0 9 * * 星期一", "'星期一' is no day of week"),
        ("R * * * *", "'R' is no minute"),
        ("*/0 * * * *", "'*/0' is no minute"),
        ("0 0 30 2 *", "on no day of any year"),
    ],
)
def test_a_bad_expression_is_refused_with_the_field_and_an_example(expression, words):
    with pytest.raises(ScheduleError) as caught:
        validate_cron(expression, "UTC")
    assert words in str(caught.value)
    assert expression.startswith("@") or "0 9 * * MON-FRI" in str(caught.value)
    assert caught.value.field == "cron_expression"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "Europe", "../etc/passwd", "UTC+8", "a\0b"])
def test_a_bad_time_zone_is_refused(zone):
    with pytest.raises(ScheduleError, match=r"timezone: got .*must be an IANA time zone name"):
        validate_cron("0 9 * * *", zone)


def test_a_misspelt_time_zone_gets_a_suggestion():
    with pytest.raises(ScheduleError, match="Asia/Shanghai"):
        validate_cron("0 9 * * *", "Asia/shanghai")


def test_the_error_travels_between_processes():
    with pytest.raises(ScheduleError) as caught:
        validate_cron("x", "UTC")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("name", "following"),
    [
        ("@hourly", "03-06 00:00"),
        ("@daily", "03-06 16:00"),
        (" @MIDNIGHT ", "03-06 16:00"),
        ("@weekly", "03-07 16:00"),
        ("@monthly", "03-31 16:00"),
        ("@yearly", "12-31 16:00"),
        ("@annually", "12-31 16:00"),
    ],
)
def test_names_stand_for_expressions(name, following):
    assert times(name, "Asia/Shanghai", "2026-03-05T23:30", 1) == [following]
    assert name.strip().lower() in MACROS


CHANGES = {
    "America/New_York": ("2026-03-08T07:00", "2026-11-01T06:00"),
    "Europe/Berlin": ("2026-03-29T01:00", "2026-10-25T01:00"),
    "Australia/Lord_Howe": ("2026-10-03T15:30", "2026-04-04T15:00"),
}
"""When clocks go forward and back in 2026, in UTC; on Lord Howe Island by half an hour."""

TABLE = [
    # a time that is skipped, or shown twice: once a day, whatever the clock does
    ("America/New_York", "30 2 * * *", "2026-03-07T12:00", ["03-08 07:00", "03-09 06:30"]),
    ("America/New_York", "30 1 * * *", "2026-10-31T12:00", ["11-01 05:30", "11-02 06:30"]),
    ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00", ["03-29 01:00", "03-30 00:30"]),
    ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00", ["10-25 00:30", "10-26 01:30"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00", ["10-03 15:30", "10-04 15:15"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00", ["04-04 14:45", "04-05 15:15"]),
    # every hour: as many times as hours pass
    ("America/New_York", "30 * * * *", "2026-03-08T06:00", ["03-08 06:30", "03-08 07:30", "03-08 08:30"]),
    ("America/New_York", "30 * * * *", "2026-11-01T05:00", ["11-01 05:30", "11-01 06:30", "11-01 07:30"]),
    ("Europe/Berlin", "@hourly", "2026-03-29T00:30", ["03-29 01:00", "03-29 02:00"]),
    ("Europe/Berlin", "@hourly", "2026-10-24T23:30", ["10-25 00:00", "10-25 01:00", "10-25 02:00"]),
    ("Australia/Lord_Howe", "0 * * * *", "2026-10-03T15:00", ["10-03 16:00", "10-03 17:00"]),
    ("Australia/Lord_Howe", "45 * * * *", "2026-04-04T14:00", ["04-04 14:45", "04-04 15:15", "04-04 16:15"]),
]


@pytest.mark.parametrize(("zone", "expression", "after", "expected"), TABLE)
def test_the_table_of_clock_changes_in_three_zones(zone, expression, after, expected):
    assert times(expression, zone, after, len(expected)) == expected


MINUTES = {"*": range(60), "0": [0], "30": [30], "45": [45], "*/20": range(0, 60, 20)}
HOURS = {"*": range(24), "*/2": range(0, 24, 2), "1": [1], "2": [2], "1-3": [1, 2, 3], "0,2": [0, 2]}


def by_watching_the_clock(zone, minutes, hours, start, end):
    """Return the times as one would find them who looks at the clock of the zone every minute."""
    found, shown, swallowed = [], set(), set()
    wall = start.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    at = start
    while at <= end:
        now = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        while wall + timedelta(minutes=1) < now:
            wall += timedelta(minutes=1)
            swallowed.add(wall)
        wall = now
        due = now.minute in MINUTES[minutes] and now.hour in HOURS[hours]
        if hours.startswith("*"):
            fires = due
        else:
            missed = any(each.minute in MINUTES[minutes] and each.hour in HOURS[hours] for each in swallowed)
            fires = missed or (due and now not in shown)
        if fires:
            found.append(at)
        shown.add(now)
        swallowed.clear()
        at += timedelta(minutes=1)
    return found


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("hours", HOURS)
@pytest.mark.parametrize("minutes", ["0", "30", "45", "*/20"])
def test_times_around_a_change_are_those_that_one_sees_on_the_clock(zone, hours, minutes):
    for change in CHANGES[zone]:
        moment = datetime.fromisoformat(change).replace(tzinfo=UTC)
        start, end = moment - timedelta(hours=7), moment + timedelta(hours=7)
        found, at = [], start - timedelta(minutes=1)
        while (at := next_fire(f"{minutes} {hours} * * *", zone, at)) <= end:
            found.append(at)

        assert found == by_watching_the_clock(zone, minutes, hours, start, end)


zones = st.sampled_from(["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"])
expressions = st.builds(
    "{} {} * * *".format, st.integers(0, 59) | st.just("*/7"), st.integers(0, 23) | st.just("*") | st.just("1-3")
)


@given(expressions, zones, st.integers(0, 2 * 366 * 86_400))
def test_next_times_grow_and_none_lies_between(expression, zone, seconds):
    after = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    first = next_fire(expression, zone, after)
    assert first > after
    between = after + (first - after) / 2
    assert next_fire(expression, zone, between) == first


@given(st.text(max_size=30))
def test_no_text_breaks_validation(text):
    with suppress(ScheduleError):
        validate_cron(text, "UTC")
