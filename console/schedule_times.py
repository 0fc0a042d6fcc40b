"""When schedules fire, for people: their rules in words, the times that come, and the days of their ticks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import groupby
from zoneinfo import ZoneInfo

from cron_descriptor import Options, get_description
from cron_descriptor.Exception import FormatException, MissingFieldException
from msgspec import Struct

from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.errors import ScheduleError
from owlclaw_ray.schedules.cron import MACROS
from owlclaw_ray.schedules.firings import following


class _CronField(Struct, frozen=True):
    """The values that a field of a cron expression has."""

    first: int
    last: int
    even: bool = True
    """Whether it always has all of them: months have other numbers of days."""


_CRON_FIELDS = (
    _CronField(0, 59),
    _CronField(0, 23),
    _CronField(1, 31, even=False),
    _CronField(1, 12),
    _CronField(0, 6),
)
_STEP = re.compile(r"(\*|\d{1,2})/(\d{1,2})")
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_SEPARATE = 6
"""Times of one schedule that a list of what comes shows one by one; what fires more often has one line."""


def in_words(schedule: Schedule) -> str:
    """Return when a schedule fires, without its zone."""
    match schedule.kind:
        case ScheduleKind.ONCE:
            return "Once"
        case ScheduleKind.CRON:
            return cron_in_words(schedule.cron_expression)
        case ScheduleKind.INTERVAL:
            return _every(schedule.interval_seconds)
        case ScheduleKind.HEARTBEAT:
            return f"{_every(schedule.interval_seconds)}, if something is pending"


@lru_cache(maxsize=1_024)
def cron_in_words(expression: str) -> str:
    """Return what a valid cron expression says; itself, if there are no words for it."""
    options = Options(use_24hour_time_format=True, locale_code="en_US")
    try:
        return str(get_description(with_listed_steps(MACROS.get(expression.lower(), expression)), options))
    except (FormatException, MissingFieldException):
        return expression


def with_listed_steps(expression: str) -> str:
    """Return the expression with the values of steps that do not come round evenly: */45 of minutes is 0 and 45, not every 45 minutes."""
    fields = expression.split()
    if len(fields) != len(_CRON_FIELDS):
        return expression
    return " ".join(_listed(text, field) for text, field in zip(fields, _CRON_FIELDS, strict=True))


def _listed(text: str, field: _CronField) -> str:
    step = _STEP.fullmatch(text)
    if step is None or not int(step[2]):
        return text
    begin, every = field.first if step[1] == "*" else int(step[1]), int(step[2])
    values = range(begin, field.last + 1, every)
    comes_round = field.even and len(values) * every == field.last - field.first + 1
    return text if comes_round or every == 1 else ",".join(map(str, values)) or text


def _every(seconds: int) -> str:
    parts = []
    for unit, size in _UNITS:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}{'s' if number > 1 else ''}")
    return f"Every {' '.join(parts)}".replace("Every 1 ", "Every ", len(parts) == 1)


def zone_of(schedule: Schedule) -> ZoneInfo:
    """Return the zone of the clock that a schedule is about: UTC if that zone is gone from this machine."""
    try:
        return ZoneInfo(schedule.timezone)
    except (ValueError, LookupError, OSError):
        return ZoneInfo("UTC")


def next_times(schedule: Schedule, most: int, until: datetime | None = None) -> Sequence[datetime]:
    """Return when an active schedule fires next, at most so many times; nothing of one that is not active, or whose times cannot be
    worked out.
    """
    due, found = schedule.next_due, list[datetime]()
    if due is None or schedule.status is not ScheduleStatus.ACTIVE:
        return found
    while len(found) < most and (until is None or due + schedule.delay < until):
        found.append(due + schedule.delay)
        if schedule.kind is ScheduleKind.ONCE:
            break
        try:
            due = following(schedule, due)
        except ScheduleError:
            break
    return found


class ComingTime(Struct, frozen=True):
    """A time at which a schedule will fire."""

    at: datetime
    schedule: Schedule
    again: bool
    """Whether it fires more often until the end of the list, and this line stands for all of these times."""


def what_comes(schedules: Sequence[Schedule], until: datetime) -> Sequence[ComingTime]:
    """Return the times before `until` at which these schedules will fire, in their order."""
    found = []
    for schedule in schedules:
        times = next_times(schedule, _SEPARATE + 1, until)
        again = len(times) > _SEPARATE
        found += [ComingTime(at, schedule, again) for at in (times[:1] if again else times)]
    return sorted(found, key=lambda each: (each.at, each.schedule.schedule_id))


class SkippedTimes(Struct, frozen=True):
    """Why so many times of a day had no run."""

    reason: str
    count: int


class TickDay(Struct, frozen=True):
    """A day, in the zone of a schedule, with what became of its due times."""

    day: date
    ticks: Sequence[Tick]
    """Earliest first."""

    @property
    def skipped(self) -> Sequence[SkippedTimes]:
        """Why times had no run, the most frequent reason first."""
        counts: dict[str, int] = {}
        for tick in self.ticks:
            if tick.outcome is TickOutcome.SKIPPED:
                counts[tick.reason] = counts.get(tick.reason, 0) + tick.count
        return [SkippedTimes(*each) for each in sorted(counts.items(), key=lambda each: -each[1])]


def days_of(ticks: Sequence[Tick], zone: ZoneInfo) -> Sequence[TickDay]:
    """Return the days of ticks that are ordered newest first, in the same order."""
    days = groupby(ticks, lambda tick: tick.due_at.astimezone(zone).date())
    return [TickDay(day, list(of_day)[::-1]) for day, of_day in days]


def by_day(times: Sequence[datetime], zone: ZoneInfo) -> Sequence[tuple[date, Sequence[datetime]]]:
    """Return times by the days of a zone, in their order."""
    return [(day, list(of_day)) for day, of_day in groupby(times, lambda at: at.astimezone(zone).date())]


def local(at: datetime, zone: ZoneInfo, form: str = "%Y-%m-%dT%H:%M") -> str:
    """Return what the clock of a zone shows; by default as fields of forms take it."""
    return at.astimezone(zone).strftime(form)


def instant(text: str, zone: ZoneInfo) -> datetime:
    """Return when the clock of a zone shows what a field of a form says; raises ValueError."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone)
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError(text) from None
