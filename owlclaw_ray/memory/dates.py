"""The calendar days that a text names: May 4th, the 4th of May 2026, 2026-05-04, yesterday, last Tuesday, two days ago, 5月4日, 上周二."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import MAXYEAR, UTC, date, datetime, time, timedelta, tzinfo

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<month>(?a:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))\b\.?"
)
"""In ASCII: to a regular expression that ignores case, a long s is an s otherwise."""
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_YEAR = r"(?:,?\s+(?P<year>\d{4})\b)?"
_ONES = "〇一二三四五六七八九"
_NUMBER = r"\d{1,2}|[二三]?十[一二三四五六七八九]?|[一二两三四五六七八九]"
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
_SURE = re.compile(r"\b(?:the|of)\b|\d(?:st|nd|rd|th)\b", re.IGNORECASE)
_BEFORE_DAYS = frozenset({"on", "by", "since", "until", "till", "from", "to", "before", "after", "between", "and"})
_IN_JSON = re.compile(r'"\s*:\s*"?$')
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_AGO = re.compile(rf"\b(?P<number>\d{{1,3}}|an?|{'|'.join(_NUMBERS)})\s+(?P<unit>day|week)s?\s+ago\b", re.IGNORECASE)
_AGO_ZH = re.compile(rf"(?P<number>\d{{1,3}}|{_NUMBER})\s*(?P<unit>天|日|周|星期|个星期|個星期)(?:之|以)?前")
_LAST = re.compile(
    r"\blast\s+(?P<day>(?a:mon|tues|wednes|thurs|fri|satur|sun))day\b|\blast\s+(?P<span>weekend|week)\b", re.IGNORECASE
)
_WEEK_ZH = re.compile(
    r"(?P<week>上上|上|这|這|本)(?:个|個)?(?:周|週|星期|礼拜|禮拜)(?P<day>[一二三四五六日天末])?(?![年期岁歲])"
)
_WEEKDAYS_ZH: Mapping[str, Iterable[int]] = {
    "": range(7),
    "末": (5, 6),
    "天": (6,),
    **{day: (at,) for at, day in enumerate("一二三四五六日")},
}
_WORDS = (
    (re.compile(r"\bday before yesterday\b|(?<![大目之以])前[天晚](?![气氣])|그저께", re.IGNORECASE), 2),
    (re.compile(r"(?<!day before )\byesterday\b|\blast night\b|昨[天日晚夜]|어제", re.IGNORECASE), 1),
    (re.compile(r"\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b|今[天日早晚]|오늘", re.IGNORECASE), 0),
    (re.compile(r"大前天"), 3),
)


Spans = tuple[tuple[datetime, datetime], ...]
"""Whiles, each from its begin up to its end."""


def named_spans(text: str, now: datetime, zone: tzinfo) -> Spans:
    """Return when the days that the text names began and ended in the zone; days in a row are one while."""
    spans: list[tuple[datetime, datetime]] = []
    for day in sorted(named_days(text, now, zone)):
        begin, end = (datetime.combine(each, time(), zone).astimezone(UTC) for each in (day, day + timedelta(days=1)))
        spans.append((spans.pop()[0], end) if spans and spans[-1][1] == begin else (begin, end))
    return tuple(spans)


def named_days(text: str, now: datetime, zone: tzinfo) -> frozenset[date]:
    """Return the days of the zone that the text names, by their date or as seen from today.

    A day without a year is the last there was. "Last Tuesday" is the last before today, 上周二 that of the week before this one, as
    weeks begin on Mondays. No days are named by time stamps and values in JSON: payloads are full of them.
    """
    today = now.astimezone(zone).date()
    return frozenset(day for day in (*_by_date(text, today), *_from_today(text, today)) if day is not None)


def _by_date(text: str, today: date) -> Iterator[date | None]:
    for form in _FORMS:
        for match in form.finditer(text):
            if not _is_verb(match) and not _IN_JSON.search(text, 0, match.start()):
                name = match["month"]
                is_name = name[0].isascii() and name.isalpha()
                month = _MONTHS.index(name[:3].casefold()) + 1 if is_name else _number(name)
                yield _day(match["year"], month, _number(match["day"]), today)


def _is_verb(match: re.Match[str]) -> bool:
    """Return whether "may" or "march" is one: "you may 12 times", "soldiers march 20 miles"."""
    if match["month"].casefold() not in {"may", "march"} or match["year"] or _SURE.search(match[0]):
        return False
    rest = match.string[match.end() :].lstrip()
    before = match.string[: match.start()].casefold().split()
    if not rest[:1].isalnum() or (before and before[-1] in _BEFORE_DAYS):
        return False
    return match["month"].islower() or rest.casefold().startswith("times")


def _from_today(text: str, today: date) -> Iterator[date]:
    for words, ago in _WORDS:
        if words.search(text):
            yield today - timedelta(days=ago)
    for match in (*_AGO.finditer(text), *_AGO_ZH.finditer(text)):
        days = 1 if match["unit"] in {"天", "日"} or match["unit"].casefold() == "day" else 7
        yield today - timedelta(days=days * _count(match["number"].casefold()))
    monday = today - timedelta(days=today.weekday())
    for match in _LAST.finditer(text):
        if match["day"]:
            since = (today.weekday() - _WEEKDAYS.index(match["day"][:3].casefold()) - 1) % 7 + 1
            yield today - timedelta(days=since)
        else:
            yield from _of_week(
                monday - timedelta(days=7), (5, 6) if match["span"].casefold() == "weekend" else range(7)
            )
    for match in _WEEK_ZH.finditer(text):
        begins = monday - timedelta(days=7 * match["week"].count("上"))
        yield from _of_week(begins, _WEEKDAYS_ZH[match["day"] or ""])


def _of_week(monday: date, weekdays: Iterable[int]) -> Iterator[date]:
    return (monday + timedelta(days=day) for day in weekdays)


def _day(year: str | None, month: int, day: int, today: date) -> date | None:
    if year is not None:
        return next(_existing([int(year)], month, day), None) if 1 < int(year) < MAXYEAR else None
    years = range(today.year, today.year - _LEAP_YEARS_APART - 1, -1)
    return next((one for one in _existing(years, month, day) if one <= today), None)


def _existing(years: Iterable[int], month: int, day: int) -> Iterator[date]:
    for year in years:
        with suppress(ValueError):
            yield date(year, month, day)


def _count(text: str) -> int:
    if text in _NUMBERS:
        return _NUMBERS.index(text) + 1
    return 1 if text in {"a", "an"} else _number(text)


def _number(text: str) -> int:
    if text.isdecimal():
        return int(text)
    tens, ten, ones = text.replace("两", "二").rpartition("十")
    return (10 * _ONES.index(tens or "一") if ten else 0) + (_ONES.index(ones) if ones else 0)
