"""When a run did what, as bars in lanes, and what of it took how much, as a flame.

Long times in which nothing happens are folded: they would be most of the picture.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from console.jinja import duration, money
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject

LANES = ("model", "tools", "waits", "children")
_WORK = {"model", "tools"}
_WIDTH = 1_000.0
"""Of the picture, in its own units."""
_LEAST = 3.0
"""Of a bar: less is not seen."""
_FOLDED = 40.0
"""Of a time in which nothing happens; less if there are so many of them that they would be more than half of the picture."""
_IDLE_SECONDS, _IDLE_SHARE = 2.0, 0.5
"""A time without a bar is folded if it is longer than this, and than this share of all times with bars."""
_FINEST = 10
"""The narrowest part of a picture that is looked at by itself."""


class Zoom(Struct, frozen=True):
    """A part of a picture, from 0 to 1,000."""

    begin: int = 0
    end: int = int(_WIDTH)

    @classmethod
    def parse(cls, text: str) -> Zoom:
        """Return the part that `250-500` says, the whole for no text; raises ValueError."""
        if not text:
            return cls()
        begin, dash, end = text.partition("-")
        if not (dash and all(each.isascii() and each.isdigit() and len(each) <= 4 for each in (begin, end))):
            raise ValueError(text)
        zoom = cls(int(begin), int(end))
        if zoom.end > _WIDTH or zoom.end - zoom.begin < _FINEST:
            raise ValueError(text)
        return zoom

    def __str__(self) -> str:
        return "" if self.whole else f"{self.begin}-{self.end}"

    @property
    def whole(self) -> bool:
        """Whether it is all of the picture."""
        return self == Zoom()

    def scaled(self, factor: float) -> Zoom:
        """Return a part of so many times its width around the same middle, as far as there is room."""
        width = min(int(_WIDTH), max(_FINEST, round((self.end - self.begin) * factor)))
        return self._moved((self.begin + self.end - width) // 2, width)

    def shifted(self, share: float) -> Zoom:
        """Return a part of the same width, to the right by this share of it, as far as there is room."""
        width = self.end - self.begin
        return self._moved(self.begin + round(share * width), width)

    def _moved(self, begin: int, width: int) -> Zoom:
        first = min(max(0, begin), int(_WIDTH) - width)
        return Zoom(first, first + width)

    def place(self, x: float, width: float) -> tuple[float, float] | None:
        """Return where something of the whole picture is in this part, and how wide; None if it is not in it."""
        unit = _WIDTH / (self.end - self.begin)
        left, right = max(0.0, (x - self.begin) * unit), min(_WIDTH, (x + width - self.begin) * unit)
        return (round(left, 2), round(right - left, 2)) if right > left else None


_WHOLE = Zoom()


class Bar(Struct, frozen=True):
    """Something that took time."""

    lane: str
    x: float
    width: float
    tone: str
    title: str
    seq: int
    """The entry that tells of it."""
    color: str = ""
    """The lane whose color it has, if not its own."""


class Fold(Struct, frozen=True):
    """A time in which nothing happens."""

    x: float
    title: str
    width: float


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


def timeline(entries: Sequence[JournalEntry], now: datetime, *, over: bool, zoom: Zoom = _WHOLE) -> RunTimeline | None:
    """Return the picture of these entries, or a part of it, None if nothing took time. `over`: nothing of it goes on."""
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
    return _zoomed(RunTimeline(bars, tuple(folds), lanes, duration(1_000 * (finish - begin))), zoom)


def _zoomed(picture: RunTimeline, zoom: Zoom) -> RunTimeline:
    if zoom.whole:
        return picture
    bars = [(each, zoom.place(each.x, each.width)) for each in picture.bars]
    folds = [(each, zoom.place(each.x, each.width)) for each in picture.folds]
    return replace(
        picture,
        bars=tuple(replace(each, x=place[0], width=place[1]) for each, place in bars if place),
        folds=tuple(replace(each, x=place[0], width=place[1]) for each, place in folds if place),
    )


def flame(entries: Sequence[JournalEntry], by: str, zoom: Zoom = _WHOLE) -> RunTimeline | None:
    """Return what of a run took how much, be it `cost` or `time`: its turns, and below each the calls of models and tools in it, as wide
    as their shares; None if nothing took any. Calls that were made beside each other stand one after another, waits are left out.
    """
    calls = [each for each in _calls(entries, by) if each.amount > 0]
    total = sum(each.amount for each in calls)
    if not total:
        return None
    form: Callable[[float], str] = money if by == "cost" else duration
    bars, place, turns = list[Bar](), 0.0, dict[int, list[Bar]]()
    for each in calls:
        width = _WIDTH * each.amount / total
        title = f"{each.title} · {form(each.amount)}, {100 * each.amount / total:.0f} %"
        bar = Bar("calls", round(place, 2), round(width, 2), each.tone, title, each.seq, each.lane)
        turns.setdefault(each.turn, []).append(bar)
        place += width
    amounts = {turn: sum(each.amount for each in calls if each.turn == turn) for turn in turns}
    for turn, below in turns.items():
        width = round(below[-1].x + below[-1].width - below[0].x, 2)
        title = f"turn with entry {turn} · {form(amounts[turn])}, {100 * amounts[turn] / total:.0f} %"
        bars += [Bar("turns", below[0].x, width, "", title, turn, "turns"), *below]
    return _zoomed(RunTimeline(tuple(bars), (), ("turns", "calls"), form(total)), zoom)


class _CallAmount(Struct, frozen=True):
    turn: int
    """The reply, or what stands before the first one, that it belongs to."""
    lane: str
    amount: float
    tone: str
    title: str
    seq: int


def _calls(entries: Iterable[JournalEntry], by: str) -> Iterator[_CallAmount]:
    turn = 0
    for entry in entries:
        data = entry.data
        match entry.kind:
            case EntryKind.MODEL_REPLIED:
                turn, lane, tone, title = entry.seq, "model", "", str(data.get("model", "model"))
            case EntryKind.TOOL_FINISHED:
                tone, title = "bad" if data.get("error") is not None else "", str(data.get("tool", "tool"))
                lane, turn = "tools", turn or entry.seq
            case EntryKind.PROMPT_BUILT:
                lane, tone, title, turn = "tools", "", "looking up memories", entry.seq
            case _:
                continue
        amount = data.get("duration_ms", 0) if by == "time" else (data.get("usage") or {}).get("cost", 0)
        yield _CallAmount(turn, lane, amount, tone, title, entry.seq)


class _OngoingSpan(Struct, frozen=True):
    """Something that goes on."""

    lane: str
    since: float
    title: str
    seq: int

    def until(self, at: float, tone: str, how: str) -> _Span:
        return _Span(self.lane, self.since, max(self.since, at), tone, f"{self.title}{how}", self.seq)


def _spans(entries: Iterable[JournalEntry], origin: datetime, end: float) -> Iterable[_Span]:
    waits: list[_OngoingSpan] = []
    work, last, since = _OpenWork(), 0.0, 0.0
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
                    waits.append(_OngoingSpan("waits", at, "waiting for approval", entry.seq))
                if data.get("runs"):
                    waits.append(_OngoingSpan("children", at, "waiting for other runs", entry.seq))
            case EntryKind.RUN_RESUMED:
                yield from work.ended(last, "interrupted")
            case EntryKind.RUN_CONTINUED | EntryKind.RUN_FINISHED:
                yield from (each.until(at, "warn", "") for each in waits)
                yield from work.ended(at, "ended with the run")
                waits = []
            case _:
                pass
        work.note(entry, at, since)
        last, since = at, since if entry.kind is EntryKind.RUN_ACTIVE else at
    yield from (each.until(end, "warn", "") for each in waits)
    yield from work.ended(end, "has not ended", tone="")


class _OpenWork:
    """Calls of tools that have begun and have no result, and the model that has not answered, as far as entries tell."""

    def __init__(self) -> None:
        self._calls: dict[str, _OngoingSpan] = {}
        self._asked: _OngoingSpan | None = None

    def note(self, entry: JournalEntry, at: float, since: float) -> None:
        """Learn of an entry; `since`: when the one before it was written that says more than that the run is active."""
        data = entry.data
        match entry.kind:
            case EntryKind.TOOL_STARTED:
                self._begun(data, at, entry.seq)
            case EntryKind.TOOL_FINISHED:
                self._calls.pop(str(data.get("call_id")), None)
            case EntryKind.RUN_ACTIVE:
                for each in data.get("running", ()):
                    self._begun(each, at - each.get("seconds", 0), entry.seq)
                if data.get("asking") and self._asked is None:
                    self._asked = _OngoingSpan("model", since, str(data["asking"]), entry.seq)
            case EntryKind.APPROVAL_REQUESTED:
                self._calls.pop(str(data.get("call_id")), None)
            case EntryKind.MODEL_REPLIED | EntryKind.MODEL_ATTEMPT_FAILED:
                self._asked = None
            case EntryKind.RUN_WAITING:
                self._calls, self._asked = {}, None
            case _:
                pass

    def _begun(self, call: JsonObject, at: float, seq: int) -> None:
        self._calls.setdefault(str(call.get("call_id")), _OngoingSpan("tools", at, str(call.get("tool", "tool")), seq))

    def ended(self, at: float, how: str, tone: str = "bad") -> list[_Span]:
        """Return what went on until then, and forget it."""
        found = [*self._calls.values(), *([self._asked] if self._asked else ())]
        self._calls, self._asked = {}, None
        return [each.until(at, tone, f", {how}") for each in found]


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
    folded = min(_FOLDED, _WIDTH / 2 / len(idle)) if idle else _FOLDED
    unit = (_WIDTH - folded * len(idle)) / (shown or 1.0)
    points, folds = [(begin, 0.0)], []
    for since, until in idle:
        left = points[-1][1] + (since - points[-1][0]) * unit
        folds.append(Fold(round(left, 2), f"nothing for {duration(1_000 * (until - since))}", round(folded, 2)))
        points += [(since, left), (until, left + folded)]
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
