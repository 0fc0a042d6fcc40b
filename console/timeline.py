"""When a run did what, as bars in lanes. Long times in which nothing happens are folded: they would be most of the picture."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

from msgspec import Struct

from console.jinja import duration
from owlclaw_ray.domain.journal import EntryKind, JournalEntry

LANES = ("model", "tools", "waits", "children")
_WORK = {"model", "tools"}
_WIDTH = 1_000.0
"""Of the picture, in its own units."""
_LEAST = 3.0
"""Of a bar: less is not seen."""
_FOLDED = 40.0
"""Of a time in which nothing happens."""
_IDLE_SECONDS, _IDLE_SHARE = 2.0, 0.5
"""A time without a bar is folded if it is longer than this, and than this share of all times with bars."""


class Bar(Struct, frozen=True):
    """Something that took time."""

    lane: str
    x: float
    width: float
    tone: str
    title: str
    seq: int
    """The entry that tells of it."""


class Fold(Struct, frozen=True):
    """A time in which nothing happens."""

    x: float
    title: str


class RunTimeline(Struct, frozen=True):
    """The picture."""

    bars: tuple[Bar, ...]
    folds: tuple[Fold, ...]
    lanes: tuple[str, ...]
    """Those that have bars."""
    total: str
    """How long it took."""


class _Span(Struct, frozen=True):
    lane: str
    begin: float
    end: float
    tone: str
    title: str
    seq: int


def timeline(entries: Sequence[JournalEntry], now: datetime, *, over: bool) -> RunTimeline | None:
    """Return the picture of these entries, None if nothing took time. `over`: nothing of it goes on."""
    if not entries:
        return None
    origin = entries[0].at
    end = entries[-1].at if over else max(now, entries[-1].at)
    spans = [*_spans(entries, origin, (end - origin).total_seconds())]
    if not spans:
        return None
    begin = min(0.0, *(each.begin for each in spans))
    finish = max((end - origin).total_seconds(), *(each.end for each in spans))
    scale, folds = _scaled(spans, begin, finish)
    bars = tuple(
        Bar(
            each.lane,
            round(min(scale(each.begin), _WIDTH - _LEAST), 2),
            round(max(_LEAST, scale(each.end) - scale(each.begin)), 2),
            each.tone,
            f"{each.title} · {duration(1_000 * (each.end - each.begin))}",
            each.seq,
        )
        for each in spans
    )
    lanes = tuple(lane for lane in LANES if any(each.lane == lane for each in bars))
    return RunTimeline(bars, tuple(folds), lanes, duration(1_000 * (finish - begin)))


def _spans(entries: Iterable[JournalEntry], origin: datetime, end: float) -> Iterable[_Span]:
    waits: list[tuple[str, float, str, int]] = []
    for entry in entries:
        at, data = (entry.at - origin).total_seconds(), entry.data
        match entry.kind:
            case EntryKind.MODEL_REPLIED:
                took = data.get("duration_ms", 0) / 1_000
                yield _Span("model", at - took, at, "", str(data.get("model", "model")), entry.seq)
                if waited := data.get("waited_ms", 0) / 1_000:
                    yield _Span("waits", at - took - waited, at - took, "warn", "waiting for a slot", entry.seq)
            case EntryKind.MODEL_ATTEMPT_FAILED:
                yield _Span("model", at, at, "bad", f"{data.get('model', 'model')} failed", entry.seq)
            case EntryKind.TOOL_FINISHED:
                took, tone = data.get("duration_ms", 0) / 1_000, "bad" if data.get("error") is not None else ""
                yield _Span("tools", at - took, at, tone, str(data.get("tool", "tool")), entry.seq)
            case EntryKind.RUN_WAITING:
                if data.get("approvals"):
                    waits.append(("waits", at, "waiting for approval", entry.seq))
                if data.get("runs"):
                    waits.append(("children", at, "waiting for other runs", entry.seq))
            case EntryKind.RUN_CONTINUED | EntryKind.RUN_FINISHED:
                yield from (_Span(lane, since, at, "warn", title, seq) for lane, since, title, seq in waits)
                waits = []
            case _:
                pass
    yield from (_Span(lane, since, max(since, end), "warn", title, seq) for lane, since, title, seq in waits)


class _Scale:
    """From seconds to places: straight between its points."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        self._seconds = [second for second, _ in points]
        self._points = points

    def __call__(self, second: float) -> float:
        at = min(max(bisect_right(self._seconds, second), 1), len(self._points) - 1)
        (since, left), (until, right) = self._points[at - 1], self._points[at]
        return left + (right - left) * (second - since) / (until - since or 1.0)


def _scaled(spans: Sequence[_Span], begin: float, finish: float) -> tuple[_Scale, list[Fold]]:
    busy = _merged(spans, begin, finish)
    worked = sum(until - since for since, until in busy)
    gaps = [(until, since) for (_, until), (since, _) in pairwise(busy)]
    idle = [gap for gap in gaps if gap[1] - gap[0] > max(_IDLE_SECONDS, _IDLE_SHARE * worked)]
    shown = finish - begin - sum(until - since for since, until in idle)
    unit = (_WIDTH - _FOLDED * len(idle)) / (shown or 1.0)
    points, folds = [(begin, 0.0)], []
    for since, until in idle:
        left = points[-1][1] + (since - points[-1][0]) * unit
        folds.append(Fold(round(left, 2), f"nothing for {duration(1_000 * (until - since))}"))
        points += [(since, left), (until, left + _FOLDED)]
    points.append((max(finish, begin + 1e-9), _WIDTH))
    return _Scale(points), folds


def _merged(spans: Sequence[_Span], begin: float, finish: float) -> list[tuple[float, float]]:
    """Return the times in which something happens, in order: beginning and end are, waiting is not."""
    merged: list[tuple[float, float]] = []
    times = [(begin, begin), (finish, finish)]
    for each in spans:
        works = each.lane in _WORK
        times += [(each.begin, each.end)] if works else [(each.begin, each.begin), (each.end, each.end)]
    for since, until in sorted(times):
        if merged and since <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until))
        else:
            merged.append((since, until))
    return merged
