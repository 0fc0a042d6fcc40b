"""Cron expressions: whether one is right, and when it fires next in a time zone with daylight saving time.

An expression is about the clock on the wall. A time that the clock skips in spring fires once, right after the gap,
together with others that the gap swallowed; a time that it shows twice in autumn fires the first time only.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from croniter import croniter

from owlclaw_ray.errors import UserError

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
_LONGEST_WAIT_YEARS = 9
"""Covers 29 February around a century that has none."""


class CronError(UserError, ValueError):
    """The schedule cannot be. `field` is the argument that is wrong: `cron_expression` or `timezone`."""

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"{field}: {problem}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.field, self.problem))


@lru_cache(maxsize=1_024)
def validate_cron(expression: str, timezone: str) -> None:
    """Raise CronError unless the expression has five good fields and fires some day, and the zone is an IANA name.

    Five fields cannot fire more often than once a minute.
    """
    _zone(timezone)
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        raise CronError(
            "cron_expression",
            f"got {expression!r} with {len(fields)} fields; must have five (minute, hour, day of month, month, "
            f"day of week), such as {EXAMPLE}",
        )
    for position, (field, (name, allowed)) in enumerate(zip(fields, _FIELDS, strict=True)):
        if not _is_good(field, position):
            raise CronError(
                "cron_expression",
                f"got {expression!r}, where {field!r} is no {name}; allowed: {allowed}, *, lists (1,2), ranges (1-5) and "
                f"steps (*/5), such as {EXAMPLE}",
            )
    if _following(expression, _ANY_TIME) is None:
        raise CronError(
            "cron_expression", f"got {expression!r}, which is on no day of any year; try for example {EXAMPLE}"
        )


def next_fire(expression: str, timezone: str, after: datetime) -> datetime:
    """Return the first time of the schedule that is later than `after` (aware), in UTC. Raises CronError."""
    validate_cron(expression, timezone)
    zone = _zone(timezone)
    wall: datetime | None = after.astimezone(zone).replace(tzinfo=None, fold=0)
    while wall is not None:
        wall = _following(expression, wall)
        if wall is not None and (instant := _instant(wall, zone)) > after:
            return instant
    raise CronError("cron_expression", f"{expression!r} does not fire within {_LONGEST_WAIT_YEARS} years of {after}")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        known = {zone.casefold(): zone for zone in available_timezones()}
        close = get_close_matches(name.casefold(), known, n=3, cutoff=0.7)
        hint = ", ".join(known[one] for one in close) or "UTC, Asia/Shanghai or Europe/Berlin"
        raise CronError("timezone", f"got {name!r}; must be an IANA time zone name, such as {hint}") from None


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


def _following(expression: str, wall: datetime) -> datetime | None:
    try:
        times = croniter(" ".join(expression.split()), wall, max_years_between_matches=_LONGEST_WAIT_YEARS)
        found: datetime = times.get_next(datetime)
    except _CRON_ERRORS:
        return None
    return found


def _instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when the zone's clock first shows that time, or the end of the gap that swallows it."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return instant
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    offset = _offset(before, zone)
    low, high = 0, int((instant - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(before + timedelta(seconds=middle), zone) == offset:
            low = middle
        else:
            high = middle
    return before + timedelta(seconds=high)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta | None:
    return instant.astimezone(zone).utcoffset()
