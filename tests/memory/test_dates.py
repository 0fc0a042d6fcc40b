from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.memory import dates
from owlclaw_ray.memory.dates import named_spans

NOW = datetime(2026, 5, 10, 12, tzinfo=UTC)
"""A Sunday."""


def named_days(text, now=NOW, zone=UTC):
    return dates.named_days(text, now, zone)


@pytest.mark.parametrize(
    "text",
    [
        "On May 4th, which book did I read?",
        "what happened on may 4",
        "the meeting of May the 4th",
        "the 4th of May",
        "4 May 2026",
        "May 4, 2026",
        "between 2026-05-04 and now",
        "在2026-05-04那天",
        "在5月4日我们聊了什么",
        "我5月4号为什么烦恼",
        "二零二六年以后的五月四日",
        "2026年5月4日",
        "5월 4일",
        "５月４日",
        "notes of may 4",
        "on may 4 we talked",
        "May 4 was a Monday",
        "last Monday",
        "six days ago",
        "6 days ago, at noon",
        "这周一",
        "本星期一开会",
        "六天前",
    ],
)
def test_a_day_is_named_in_many_forms(text):
    assert named_days(text, NOW) == {date(2026, 5, 4)}


def test_a_day_without_a_year_is_the_last_there_was():
    assert named_days("December 24th", NOW) == {date(2025, 12, 24)}
    assert named_days("May 10th", NOW) == {date(2026, 5, 10)}
    assert named_days("May 11th", NOW) == {date(2025, 5, 11)}
    assert named_days("February 29th", NOW) == {date(2024, 2, 29)}


def test_a_year_that_is_named_counts_even_in_the_future():
    assert named_days("December 24th, 2027", NOW) == {date(2027, 12, 24)}


def test_every_day_that_is_named_counts():
    assert named_days("from Sept. 30 to Oct 2nd, 2025", NOW) == {date(2025, 9, 30), date(2025, 10, 2)}
    assert named_days("十月三十一日和十二月二十号", NOW) == {date(2025, 10, 31), date(2025, 12, 20)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "you may try 3 of them",
        "may 12 times",
        "you may 12 times",
        "May 12 times be enough?",
        "soldiers march 20 miles",
        "of 30 march 12 may be late",
        '{"date": "2026-05-04"}',
        '{"due":"2026-05-04", "n": 3}',
        "everyday",
        "目前天气",
        "上周年庆",
        "last year",
        "every Monday",
        "in May",
        "May 45th",
        "February 30th",
        "2026-13-01",
        "order 12026-05-045",
        "5月",
        "0000-01-01",
        "\N{LATIN SMALL LETTER LONG S}ep 4",
        "4 augu\N{LATIN SMALL LETTER LONG S}t",
    ],
)
def test_what_is_no_day_names_none(text):
    assert named_days(text, NOW) == frozenset()


@given(st.dates(date(1950, 1, 1), date(2090, 12, 31)))
def test_a_day_with_its_year_is_found_as_it_was_written(day):
    for text in (
        f"{day:%B} {day.day}, {day.year}",
        f"{day.day} {day:%b} {day.year}",
        f"{day.year}年{day.month}月{day.day}日",
    ):
        assert named_days(text, NOW) == {day}


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("what did we say today", [0]),
        ("this morning", [0]),
        ("今天说了什么", [0]),
        ("yesterday's trades", [1]),
        ("Last night", [1]),
        ("昨天", [1]),
        ("昨晚", [1]),
        ("the day before yesterday", [2]),
        ("前天我们聊了什么", [2]),
        ("大前天", [3]),
        ("a week ago", [7]),
        ("two weeks ago", [14]),
        ("两周前", [14]),
        ("十天前", [10]),
        ("last Sunday", [7]),
        ("last Saturday", [1]),
        ("last Tuesday", [5]),
        ("上周二", [12]),
        ("上个星期天", [7]),
        ("上上周五", [16]),
        ("last weekend", [8, 7]),
        ("last week", range(7, 14)),
        ("上周的会议", range(7, 14)),
    ],
)
def test_a_day_is_named_as_seen_from_today(text, ago):
    assert named_days(text) == {(NOW - timedelta(days=days)).date() for days in ago}


def test_today_is_that_of_the_zone():
    shanghai, honolulu = ZoneInfo("Asia/Shanghai"), ZoneInfo("Pacific/Honolulu")
    late = datetime(2026, 5, 10, 20, tzinfo=UTC)
    assert named_days("yesterday", late, shanghai) == {date(2026, 5, 10)}
    assert named_days("yesterday", NOW.replace(hour=5), honolulu) == {date(2026, 5, 8)}


def test_a_day_lasts_from_midnight_to_midnight_of_the_zone():
    berlin = ZoneInfo("Europe/Berlin")
    assert named_spans("March 29th, 2026", NOW, berlin) == (
        (datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)),
    )


def test_days_in_a_row_are_one_while():
    assert named_spans("last week, and May 4th", NOW, UTC) == (
        (datetime(2026, 4, 27, tzinfo=UTC), datetime(2026, 5, 5, tzinfo=UTC)),
    )


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31", "December 31, 9999", "999 weeks ago", "9999年12月31日"])
def test_no_day_is_too_far_away(text):
    assert all(begin < end for begin, end in named_spans(text, NOW, ZoneInfo("Asia/Shanghai")))
