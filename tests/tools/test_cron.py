import pickle
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlclaw_ray.tools.cron import CronError, next_fire, validate_cron


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
        ("@daily", "with 1 fields"),
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
    with pytest.raises(CronError) as caught:
        validate_cron(expression, "UTC")
    assert words in str(caught.value)
    assert "0 9 * * MON-FRI" in str(caught.value)
    assert caught.value.field == "cron_expression"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "Europe", "../etc/passwd", "UTC+8", "a\0b"])
def test_a_bad_time_zone_is_refused(zone):
    with pytest.raises(CronError, match=r"timezone: got .*must be an IANA time zone name"):
        validate_cron("0 9 * * *", zone)


def test_a_misspelt_time_zone_gets_a_suggestion():
    with pytest.raises(CronError, match="Asia/Shanghai"):
        validate_cron("0 9 * * *", "Asia/shanghai")


def test_the_error_travels_between_processes():
    with pytest.raises(CronError) as caught:
        validate_cron("x", "UTC")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


zones = st.sampled_from(["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"])
expressions = st.builds(
    "{} {} * * *".format, st.integers(0, 59) | st.just("*/7"), st.integers(0, 23) | st.just("*") | st.just("1-3")
)


@settings(max_examples=150, deadline=None)
@given(expressions, zones, st.integers(0, 2 * 366 * 86_400))
def test_next_times_grow_and_none_lies_between(expression, zone, seconds):
    after = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    first = next_fire(expression, zone, after)
    assert first > after
    between = after + (first - after) / 2
    assert next_fire(expression, zone, between) == first


@given(st.text(max_size=30))
def test_no_text_breaks_validation(text):
    with suppress(CronError):
        validate_cron(text, "UTC")
