"""How many calls of one provider may run at once, learned from how they end.

The method is TCP's (V. Jacobson, "Congestion Avoidance and Control", 1988; AIMD after Chiu and Jain, 1989): double in a round of
answers until something is lost, then add one a round; cut by a factor, once a round, when something is lost. The factor is that of
CUBIC (RFC 9438). What late answers say is judged as in Netflix's concurrency-limits (github.com/Netflix/concurrency-limits):
`Gradient2Limit` compares a short window with a long average, and `AIMDLimit` lets no limit grow that is not used.

Times of models differ more than round trips do, by the length of the answer. Each model is compared with itself, and by calls that
began one after the other, when three quarters of them have ended: of those that begin together the short ones are answered first, and
the first answers are no sample. The time of such a group is the mean of the logarithms of the middle half, which neither a few slow
answers nor a mixture of short and long ones move far.
"""

from __future__ import annotations

import math
from statistics import fmean

from msgspec import Struct, field

from owlclaw_ray.domain.concurrency_limit import ConcurrencyLimit

_START = ConcurrencyLimit(64)
"""Where nothing is known yet."""
_CUT = 0.7
"""What a loss leaves of a limit."""
_DECREASE_FACTOR = 0.9
"""What a group of late answers leaves of it."""
_LATE = 2.0
"""How many times as long as usual answers take that are late."""
_LATE_GROUPS = 2
"""So many groups that are late one after the other are no chance any more."""
_TRIVIAL_SECONDS = 0.25
"""Answers that come sooner do not differ."""
_GROUP = 50
"""Calls of a model that are judged together, or as many as run at once with the first if these are more."""
_WEIGHT = 0.1
"""Of a group in the exponential average that is usual, after the plain mean of the first ones: if it followed faster, a server with a
queue would never be late."""


class CallGroup(Struct, eq=False):
    """Calls of one model that began one after the other."""

    at_once: int
    """How many calls of the provider ran as it began."""
    begun: int = 0
    ended: int = 0
    judged: bool = False
    times: list[float] = field(default_factory=list)
    """Of the answered among those that ended first: logarithms of seconds."""

    @property
    def size(self) -> int:
        """How many calls it is to have."""
        return max(_GROUP, self.at_once)

    @property
    def full(self) -> bool:
        """Whether the next call is of the next group."""
        return self.begun == self.size

    @property
    def most(self) -> int:
        """How many of it are judged: three quarters, of each group the same part."""
        return self.size - self.size // 4


class _Times(Struct):
    """How long a model's answers take, as logarithms of seconds."""

    group: CallGroup
    """What begins now is of this one."""
    usual: float = 0.0
    groups: int = 0
    """How many the usual was learned from."""
    late: int = 0
    """How many were late one after the other."""

    def judge(self, group: CallGroup) -> None:
        """Learn whether the answers of a group were late; too few of them tell nothing."""
        if 2 * len(group.times) < group.size:
            return
        took = fmean(sorted(group.times)[group.size // 4 :])
        self.late = self.late + 1 if self.groups and took - self.usual > math.log(_LATE) else 0
        self.groups += 1
        self.usual += max(_WEIGHT, 1 / self.groups) * (took - self.usual)

    @property
    def seconds(self) -> float:
        """What is usual, or was so far; 0 before the first answer."""
        if self.groups:
            return math.exp(self.usual)
        return math.exp(fmean(self.group.times)) if self.group.times else 0.0


class AdaptiveLimit:
    """A limit between `floor` and `ceiling`, both included. Times are those of one monotonic clock, in seconds."""

    def __init__(self, *, ceiling: int, start: ConcurrencyLimit = _START, floor: int = 4) -> None:
        self._ceiling, self._floor = float(ceiling), float(min(floor, ceiling))
        self._limit = max(self._floor, float(min(start.calls, ceiling)))
        self._threshold = math.inf if start.threshold is None else float(start.threshold)
        """Below it the limit doubles in a round of answers, from it on one is added."""
        self._proven = start.calls
        """So many at once had answers in time; no more than twice as many are tried before the next group has shown that."""
        self._cut_at = -math.inf
        self._answered_since_cut = True
        self._times: dict[str, _Times] = {}

    @property
    def now(self) -> int:
        """The limit."""
        return int(self._limit)

    @property
    def learned(self) -> ConcurrencyLimit:
        """What another one may begin with."""
        return ConcurrencyLimit(self.now, None if math.isinf(self._threshold) else int(self._threshold))

    def began(self, model: str, in_use: int) -> CallGroup:
        """Return the group of a call that begins now, while so many slots are in use, its own included. It has to be told as ended."""
        times = self._times.get(model)
        if times is None or times.group.full:
            group = CallGroup(in_use)
            if times is None:
                times = self._times[model] = _Times(group)
            times.group = group
        times.group.begun += 1
        return times.group

    def ended(self, model: str, group: CallGroup) -> None:
        """Learn that a call of that group is over, whatever came of it; if it was answered, after `answered`."""
        group.ended += 1
        if group.judged or not group.full or group.ended < group.most:
            return
        group.judged, times = True, self._times[model]
        times.judge(group)
        if times.late >= _LATE_GROUPS:
            self._limit = self._threshold = max(self._floor, self._limit * _DECREASE_FACTOR)
        elif not times.late:
            self._proven = max(self._proven, group.at_once)

    def answered(self, group: CallGroup, seconds: float, in_use: int) -> None:
        """Learn of a call that was answered after so long, while so many slots were in use, its own included."""
        self._answered_since_cut = True
        if group.ended < group.most:
            group.times.append(math.log(max(seconds, _TRIVIAL_SECONDS)))
        if 2 * in_use >= self.now:
            doubles = self._limit < min(self._threshold, 2 * self._proven)
            more = 1.0 if doubles else 1 / self._limit
            self._limit = min(self._ceiling, self._limit + more)

    def refused(self, began: float, now: float) -> None:
        """Learn of a call that began then and which the provider refused for having too much to do."""
        if began <= self._cut_at:  # it is of the round that was cut for already
            return
        self._limit = max(self._floor, self._limit * _CUT)
        if self._answered_since_cut:  # else the provider is away: it is not known to bear less than before
            self._threshold = self._limit
        self._cut_at, self._answered_since_cut = now, False

    def timed_out(self, model: str, began: float, now: float) -> None:
        """Learn of a call that had no answer in its time; it says nothing if that was less than what is late for its model."""
        times = self._times.get(model)
        if now - began >= _LATE * (0.0 if times is None else times.seconds):
            self.refused(began, now)
