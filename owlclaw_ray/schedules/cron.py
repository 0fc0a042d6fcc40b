"""Cron expressions: whether one is right, and when it fires next in a time zone with daylight saving time.

An expression is about the clock on the wall. If it names hours, each of its times comes once a day: one that the clock skips in
spring fires right after the gap, once for all that the gap swallowed; one that it shows twice in autumn fires the first
time only. If its hour field begins with `*`, it is about every hour that passes: what the clock skips does not
fire, and what it shows twice fires both times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from croniter import croniter

from owlclaw_ray.counting import counted
from owlclaw_ray.errors import ScheduleError

EXAMPLE = "'0 9 * * MON-FRI' for 09:00 on workdays, or '*/15 * * * *' for every quarter of an hour"
_FIELDS = (
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of month", "1-31 or L"),
    ("month", "1-12 or JAN-DEC"),
    ("day of week", "0-7 or SUN-SAT"),
)
_FIELD = re.compile(r"[0-9A-Z*/,#?-]+", re.IGNORECASE | re.ASCII)
_RANDOM = re.compile(r"(?:^|,)[HR](?:$|[,/(])", re.IGNORECASE)
_CRON_ERRORS = (ValueError, TypeError, KeyError, IndexError)
_ANY_TIME = datetime(2024, 1, 1)  # noqa: DTZ001 - a time on the wall
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * SUN",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 JAN *",
    "@annually": "0 0 1 JAN *",
}
_SECOND = timedelta(seconds=1)
_LONGEST_WAIT_YEARS = 9
"""Covers 29 February around a century that has none."""


@lru_cache(maxsize=1_024)
def validate_cron(expression: str, timezone: str) -> None:
    """Raise ScheduleError unless the expression is one of MACROS or has five good fields and fires some day, and the zone is an
    IANA name. Its `field` is `cron_expression` or `timezone`.

    Five fields cannot fire more often than once a minute.
    """
    _zone(timezone)
    if expression.strip().startswith("@") and expression.strip().lower() not in MACROS:
        raise ScheduleError("cron_expression", f"got {expression!r}; known names are {', '.join(MACROS)}")
    fields = _fields(expression)
    if len(fields) != len(_FIELDS):
        raise ScheduleError(
            "cron_expression",
            f"got {expression!r} with {counted(len(fields), 'field')}; must have five (minute, hour, day of month, month, "
            f"day of week), such as {EXAMPLE}",
        )
    for position, (field, (name, allowed)) in enumerate(zip(fields, _FIELDS, strict=True)):
        if not _is_good(field, position):
            raise ScheduleError(
                "cron_expression",
                f"got {expression!r}, where {field!r} is no {name}; allowed: {allowed}, *, lists (1,2), ranges (1-5) and "
                f"steps (*/5), such as {EXAMPLE}",
            )
    if _following(fields, _ANY_TIME) is None:
        raise ScheduleError(
            "cron_expression", f"got {expression!r}, which is on no day of any year; try for example {EXAMPLE}"
        )


@lru_cache(maxsize=8_192)
def next_fire(expression: str, timezone: str, after: datetime) -> datetime:
    """Return the first time of the schedule that is later than `after` (aware), in UTC. Raises ScheduleError.

    Remembered: when many schedules have the same times, each time is worked out once.
    """
    validate_cron(expression, timezone)
    fields, zone = _fields(expression), _zone(timezone)
    find = _next_of_every_hour if fields[1].startswith("*") else _next_of_the_day
    found = find(fields, zone, after.astimezone(UTC))
    if found is None:
        raise ScheduleError(
            "cron_expression", f"{expression!r} does not fire within {_LONGEST_WAIT_YEARS} years of {after}"
        )
    return found


def _next_of_the_day(fields: Sequence[str], zone: ZoneInfo, after: datetime) -> datetime | None:
    wall: datetime | None = after.astimezone(zone).replace(tzinfo=None, fold=0)
    while wall is not None:
        wall = _following(fields, wall)
        if wall is not None and (instant := _instant(wall, zone)) > after:
            return instant
    return None


def _next_of_every_hour(fields: Sequence[str], zone: ZoneInfo, after: datetime) -> datetime | None:
    """Follow the clock on the wall as it runs, from one change of its offset to the next."""
    offset = _offset(after, zone)
    wall = (after + offset).replace(tzinfo=None)
    while (found := _following(fields, wall)) is not None:
        instant = found.replace(tzinfo=UTC) - offset
        if _offset(instant, zone) == offset:
            return instant
        after = _change(after, instant, zone)
        offset = _offset(after, zone)
        wall = (after + offset).replace(tzinfo=None) - _SECOND
    return None


def _fields(expression: str) -> list[str]:
    return MACROS.get(expression.strip().lower(), expression).split()


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        known = {zone.casefold(): zone for zone in available_timezones()}
        close = get_close_matches(name.casefold(), known, n=3, cutoff=0.7)
        hint = ", ".join(known[one] for one in close) or "UTC, Asia/Shanghai or Europe/Berlin"
        raise ScheduleError("timezone", f"got {name!r}; must be an IANA time zone name, such as {hint}") from None


def _is_good(field: str, position: int) -> bool:
    if not _FIELD.fullmatch(field) or _RANDOM.search(field):
        return False
    alone = ["*"] * len(_FIELDS)
    alone[position] = field
    try:
        croniter(" ".join(alone), _ANY_TIME)
    except _CRON_ERRORS:
        return False
    return True


def _following(fields: Sequence[str], wall: datetime) -> datetime | None:
    try:
        times = croniter(" ".join(fields), wall, max_years_between_matches=_LONGEST_WAIT_YEARS)
        found: datetime = times.get_next(datetime)
    except _CRON_ERRORS:
        return None
    return found


def _instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when the zone's clock first shows that time, or the end of the gap that swallows it."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return instant
    return _change(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return when the zone's offset first is another than `before`, to the second; at `after` it is."""
    offset = _offset(before, zone)
    low, high = 0, math.ceil((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(before + timedelta(seconds=middle), zone) == offset:
            low = middle
        else:
            high = middle
    return before + timedelta(seconds=high)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset
