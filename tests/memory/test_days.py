from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.memory.days import named_days

NOW = datetime(2026, 5, 10, 12, tzinfo=UTC)


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
    ],
)
def test_a_day_is_named_in_many_forms(text):
    assert named_days(text, NOW) == {date(2026, 5, 4)}


def test_a_day_without_a_year_is_the_last_there_was_and_tomorrow_has_begun_somewhere():
    assert named_days("December 24th", NOW) == {date(2025, 12, 24)}
    assert named_days("May 11th", NOW) == {date(2026, 5, 11)}
    assert named_days("May 12th", NOW) == {date(2025, 5, 12)}
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
