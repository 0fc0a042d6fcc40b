"""Charts, as columns of an SVG that the server draws: they need no script, and each has its numbers as a table beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias
from zlib import crc32

from msgspec import Struct

from console.jinja import counted, money
from owlclaw_ray.domain.budget import NANO
from owlclaw_ray.domain.queue_length import LengthRange
from owlclaw_ray.domain.usage import STEP, Grain, RunBucket, RunCounts, floored

WIDTH, HEIGHT = 1_000, 100
"""Of the picture, in its own units: it is stretched to the page."""
_GAP = 0.2
"""The share of a column that is left free."""
_LEAST = 1.5
"""The height of what is more than nothing: less is not seen."""
_FLOOR = 6
"""The height of what was seen to be nothing, in a sparkline: it differs from what was not seen."""


class Segment(Struct, frozen=True):
    """A part of a column."""

    tone: str
    y: float
    height: float


class Column(Struct, frozen=True):
    """What belongs to one time."""

    x: float
    width: float
    title: str
    segments: tuple[Segment, ...]


class Chart(Struct, frozen=True):
    """The picture, and its table."""

    title: str
    columns: tuple[Column, ...]
    most: str
    """What the highest column stands for."""
    begin: str
    end: str
    legend: tuple[tuple[str, str], ...]
    """Tones, and what they stand for; none for a chart of one thing."""
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The times at which there was anything, the newest first."""

    @property
    def version(self) -> str:
        """What tells the chart from one of other numbers."""
        return f"{crc32(repr((self.begin, self.rows)).encode()):x}"


class Sparkline(Struct, frozen=True):
    """A row of small columns without a scale, beside which its numbers stand."""

    title: str
    columns: tuple[Column, ...]
    now: int
    most: int
    least: int

    @property
    def words(self) -> str:
        """What it shows, for who does not see it."""
        return f"{self.title}: {self.now:,} now, at most {self.most:,} and at least {self.least:,} in the minutes that are known"


_Series: TypeAlias = Mapping[str, tuple[str, Callable[[RunCounts], int]]]
"""By their tones, what is drawn on top of one another: its name, and how much there is."""
_OUTCOMES: _Series = {
    "good": ("completed", lambda counts: counts.completed),
    "bad": ("failed", lambda counts: counts.failures),
    "rest": ("cancelled or skipped", lambda counts: counts.cancelled + counts.skipped),
}
_COST: _Series = {"cost": ("cost", lambda counts: counts.cost)}


def runs_chart(
    title: str, buckets: Sequence[RunBucket], since: datetime, until: datetime, grain: Grain
) -> Chart | None:
    """Return how many runs ended how in each time, None if none did."""
    return _chart(title, buckets, _times(since, until, grain), _OUTCOMES, counted)


def cost_chart(
    title: str, buckets: Sequence[RunBucket], since: datetime, until: datetime, grain: Grain
) -> Chart | None:
    """Return what the runs cost that ended in each time, None if they cost nothing."""
    return _chart(title, buckets, _times(since, until, grain), _COST, _dollars)


def _dollars(nanos: int) -> str:
    return money(nanos / NANO)


def _times(since: datetime, until: datetime, grain: Grain) -> Sequence[tuple[datetime, str]]:
    """Return the beginnings of all times, each as people read it."""
    form = "%Y-%m-%d" if grain is Grain.DAY else "%Y-%m-%d %H:%M UTC"
    at, times = floored(since, grain), []
    while at < until:
        times.append((at, f"{at:{form}}"))
        at += STEP[grain]
    return times


def _chart(
    title: str,
    buckets: Sequence[RunBucket],
    times: Sequence[tuple[datetime, str]],
    series: _Series,
    form: Callable[[int], str],
) -> Chart | None:
    found = {each.begins_at: {tone: read(each.counts) for tone, (_, read) in series.items()} for each in buckets}
    most = max((sum(amounts.values()) for amounts in found.values()), default=0)
    if not most or not times:
        return None
    names = {tone: name for tone, (name, _) in series.items()}
    width, columns, rows = WIDTH / len(times), list[Column](), list[tuple[str, ...]]()
    for place, (at, label) in enumerate(times):
        amounts = found.get(at, {})
        if not any(amounts.values()):
            continue
        said = ", ".join(f"{form(amount)} {names[tone]}" for tone, amount in amounts.items() if amount)
        top, segments = float(HEIGHT), []
        for tone, amount in amounts.items():
            if amount:
                height = max(_LEAST, HEIGHT * amount / most)
                top -= height
                segments.append(Segment(tone, round(max(0.0, top), 2), round(height, 2)))
        x = round(width * (place + _GAP / 2), 2)
        columns.append(Column(x, round(width * (1 - _GAP), 2), f"{label}: {said}", tuple(segments)))
        rows.append((label, *(form(amount) for amount in amounts.values())))
    return Chart(
        title,
        tuple(columns),
        form(most),
        times[0][1],
        times[-1][1],
        tuple(names.items()) if len(names) > 1 else (),
        ("Time", *names.values()),
        tuple(reversed(rows)),
    )


def sparkline(title: str, now: int, minutes: Sequence[datetime], ranges: Sequence[LengthRange | None]) -> Sparkline:
    """Return what was seen in each minute, up to the most of it; where nothing was seen, nothing is drawn."""
    seen = [(place, each) for place, each in enumerate(ranges) if each is not None]
    most = max((each.most for _, each in seen), default=now)
    width, columns = WIDTH / len(minutes), list[Column]()
    for place, each in seen:
        height = round(max(float(_FLOOR), HEIGHT * each.most / most if most else 0.0), 2)
        said = f"{each.most:,}" if each.least == each.most else f"{each.least:,} to {each.most:,}"
        segment = Segment("seen" if each.most else "none", round(HEIGHT - height, 2), height)
        x = round(width * (place + _GAP / 2), 2)
        columns.append(Column(x, round(width * (1 - _GAP), 2), f"{minutes[place]:%H:%M} UTC: {said}", (segment,)))
    return Sparkline(title, tuple(columns), now, most, min((each.least for _, each in seen), default=now))


def last(now: datetime, grain: Grain, number: int) -> tuple[datetime, datetime]:
    """Return the beginning of the last so many times, of which the present one is the last, and the end of that."""
    end = floored(now, grain) + STEP[grain]
    return end - number * STEP[grain], end
