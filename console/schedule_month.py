"""A month of a schedule: how many of its due times of each day fired, were caught up or skipped, and how many are to come."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, ScheduleStatus
from owlclaw_ray.errors import ScheduleError
from owlclaw_ray.schedules.cron import next_fire
from owlclaw_ray.schedules.firings import due_times_between
from owlclaw_ray.store.queries import TickSum

TO_COME = "to_come"
_MONTH = re.compile(r"(19[7-9]\d|2\d{3})-(0[1-9]|1[0-2])")
_DAY, _INSTANT = timedelta(days=1), timedelta(microseconds=1)
_MOST_A_DAY = 1_600
"""Once a minute is the most; a day has up to 25 hours."""
_ANY_DAY = datetime(2024, 1, 1, tzinfo=UTC)


class MonthDay(Struct, frozen=True):
    """A day, and how many of its due times fired, were caught up, were skipped, and are to come."""

    day: date
    counts: Counter[str]


class Month(Struct, frozen=True):
    """The days of a month, by weeks from Monday on; None: the day is of another month."""

    weeks: Sequence[Sequence[MonthDay | None]]
    total: Counter[str]


def month_named(text: str) -> date:
    """Return the first day of a month such as 2026-11; raises ValueError."""
    if not _MONTH.fullmatch(text):
        raise ValueError(text)
    return date.fromisoformat(f"{text}-01")


def day_named(text: str) -> date:
    """Return a day such as 2026-11-03; raises ValueError."""
    month_named(text[:7])
    return date.fromisoformat(text)


def other_month(month: date, step: int) -> date | None:
    """Return the first day of the month so many months later, None if it has no name here."""
    number = 12 * month.year + month.month - 1 + step
    found = date(number // 12, number % 12 + 1, 1)
    return found if _MONTH.fullmatch(f"{found:%Y-%m}") else None


def bounds_of(first: date, days: int, zone: ZoneInfo) -> Sequence[datetime]:
    """Return when these days begin by the clock of a zone, and when the last one ends."""
    begins = (datetime.combine(first + number * _DAY, time(), zone) for number in range(days + 1))
    return [each.astimezone(UTC) for each in begins]


def days_in(month: date) -> int:
    """Return how many days a month has, of which this is the first."""
    return ((month + 31 * _DAY).replace(day=1) - month).days


def month_of(schedule: Schedule, month: date, bounds: Sequence[datetime], sums: Sequence[TickSum]) -> Month:
    """Return the month with what became of the due times between these bounds of its days, and how many come.

    Missed due times of one tick are of the days on which they were due.
    """
    days = [MonthDay(month + number * _DAY, Counter()) for number in range(len(bounds) - 1)]
    for each in sums:
        name = each.outcome.value
        if each.span >= 0 and each.last_due_at < bounds[each.span + 1]:
            days[each.span].counts[name] += each.count
            continue
        for number in range(max(each.span, 0), len(days)):
            begin, end = max(bounds[number], each.due_at), min(bounds[number + 1], each.last_due_at + _INSTANT)
            if begin < end:
                days[number].counts[name] += _due_times(schedule, each.due_at, begin, end)
    if schedule.status is ScheduleStatus.ACTIVE and schedule.next_due is not None:
        for day, begin, end in zip(days, bounds, bounds[1:], strict=False):
            if schedule.next_due < end:
                day.counts[TO_COME] += _due_times(schedule, schedule.next_due, max(begin, schedule.next_due), end)
    cells = [*[None] * month.weekday(), *days]
    cells += [None] * (-len(cells) % 7)
    return Month([cells[at : at + 7] for at in range(0, len(cells), 7)], sum((each.counts for each in days), Counter()))


def coming_of_day(schedule: Schedule, begin: datetime, end: datetime) -> Sequence[datetime]:
    """Return the due times to come from `begin` to before `end`, of a day."""
    due = schedule.next_due
    if schedule.status is not ScheduleStatus.ACTIVE or due is None or due >= end:
        return ()
    if schedule.kind is ScheduleKind.ONCE:
        return (due,) if due >= begin else ()
    try:
        return due_times_between(schedule, max(begin, due), end - _INSTANT, _MOST_A_DAY)
    except ScheduleError:
        return ()


def _due_times(schedule: Schedule, known: datetime, begin: datetime, end: datetime) -> int:
    """Return how many due times there are from `begin` to before `end`, of a day; `known` is one, and the first that counts."""
    if schedule.kind is ScheduleKind.ONCE:
        return int(begin <= known < end)
    if schedule.interval_seconds:
        interval = timedelta(seconds=schedule.interval_seconds)
        return -((known - end) // interval) - -((known - begin) // interval)
    try:
        return _cron_times(schedule, begin, end)
    except ScheduleError:
        return 0


def _cron_times(schedule: Schedule, begin: datetime, end: datetime) -> int:
    """Return how many due times are from `begin` to before `end`; those of a day whose clock is not set are not worked out."""
    due = next_fire(schedule.cron_expression, schedule.timezone, begin - _INSTANT)
    if due >= end:
        return 0
    zone = ZoneInfo(schedule.timezone)
    first, last = begin.astimezone(zone), end.astimezone(zone)
    if first.time() == last.time() == time() and first.utcoffset() == last.utcoffset() and end - begin == _DAY:
        return _times_of_day(schedule.cron_expression)
    return len(due_times_between(schedule, begin, end - _INSTANT, _MOST_A_DAY))


@lru_cache(maxsize=1_024)
def _times_of_day(expression: str) -> int:
    """Return how often it fires on a day on which it does."""
    due = next_fire(expression, "UTC", _ANY_DAY - _INSTANT)
    end, count = due.replace(hour=0, minute=0) + _DAY, 0
    while due < end:
        due, count = next_fire(expression, "UTC", due), count + 1
    return count
