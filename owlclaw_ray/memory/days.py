"""The calendar days that a text names: May 4th, the 4th of May 2026, 2026-05-04, 5月4日, 五月四号, 5월 4일."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<month>(?a:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))\b\.?"
)
"""In ASCII: to a regular expression that ignores case, a long s is an s otherwise."""
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_YEAR = r"(?:,?\s+(?P<year>\d{4})\b)?"
_ONES = "〇一二三四五六七八九"
_NUMBER = r"\d{1,2}|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九]"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"\b{_MONTH}\s+(?:the\s+)?{_DAY}{_YEAR}",
        rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}{_YEAR}",
        rf"(?:(?P<year>\d{{4}})\s*[年년]\s*)?(?P<month>{_NUMBER})\s*[月월]\s*(?P<day>{_NUMBER})\s*[日号號일]",
        r"(?<![0-9A-Za-z-])(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})(?![0-9A-Za-z-])",
    )
)
_LEAP_YEARS_APART = 8


def named_days(text: str, now: datetime) -> frozenset[date]:
    """Return the days that the text names by month and day; one without a year is the last there was.

    Tomorrow counts as one that was: somewhere it has begun. A time stamp names no day: payloads are full of them.
    """
    latest = now.astimezone(UTC).date() + timedelta(days=1)
    found = (match for form in _FORMS for match in form.finditer(text))
    days = (_day(match["year"], _month(match["month"]), _number(match["day"]), latest) for match in found)
    return frozenset(day for day in days if day is not None)


def _day(year: str | None, month: int, day: int, latest: date) -> date | None:
    if year is not None:
        return next(_existing([int(year)], month, day), None)
    years = range(latest.year, latest.year - _LEAP_YEARS_APART - 1, -1)
    return next((one for one in _existing(years, month, day) if one <= latest), None)


def _existing(years: Iterable[int], month: int, day: int) -> Iterator[date]:
    for year in years:
        with suppress(ValueError):
            yield date(year, month, day)


def _month(text: str) -> int:
    return _MONTHS.index(text[:3].casefold()) + 1 if text[0].isascii() and text.isalpha() else _number(text)


def _number(text: str) -> int:
    if text.isdecimal():
        return int(text)
    tens, ten, ones = text.rpartition("十")
    return (10 * _ONES.index(tens or "一") if ten else 0) + (_ONES.index(ones) if ones else 0)
