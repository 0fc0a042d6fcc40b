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

START = ConcurrencyLimit(64)
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
"""Calls of a model that are judged together, or as many of it as run at once with the first if these are more."""
_WEIGHT = 0.1
"""Of a group in the exponential average that is usual, after the plain mean of the first ones: if it followed faster, a server with a
queue would never be late."""


class CallGroup(Struct, eq=False):
    """Calls of one model that began one after the other."""

    size: int
    """How many calls it is to have."""
    begun: int = 0
    in_use: int = 0
    """Slots of the provider, summed up over these calls as each began."""
    ended: int = 0
    judged: bool = False
    times: list[float] = field(default_factory=list)
    """Of those that were answered before it was judged: logarithms of seconds."""

    @property
    def at_once(self) -> int:
        """How many calls of the provider ran meanwhile, in the mean."""
        return self.in_use // max(1, self.begun)

    @property
    def full(self) -> bool:
        """Whether the next call is of the next group."""
        return self.begun == self.size

    @property
    def enough(self) -> int:
        """With how many that have ended it is judged: three quarters, the shorter ones of calls that began together."""
        return self.size - self.size // 4


class _Times(Struct):
    """How long a model's answers take, as logarithms of seconds."""

    group: CallGroup
    """What begins now is of this one."""
    open: int = 0
    """Calls that have not ended."""
    answers: int = 0
    mean: float = 0.0
    """Of all answers so far."""
    usual: float = 0.0
    groups: int = 0
    """How many the usual was learned from."""
    late: int = 0
    """How many were late one after the other."""

    def began(self, in_use: int) -> CallGroup:
        """Return the group of a call that begins now; one that was to have far more calls than there are is given up."""
        self.open += 1
        size = max(_GROUP, self.open)
        if self.group.full or self.group.size > 2 * size:
            self.group = CallGroup(size)
        self.group.begun += 1
        self.group.in_use += in_use
        return self.group

    def judge(self, group: CallGroup) -> bool:
        """Return whether a group says anything, having learned whether its answers were late; too few of them say nothing."""
        if 2 * len(group.times) < group.size:
            return False
        took = fmean(sorted(group.times)[group.size // 4 : group.enough])
        self.late = self.late + 1 if self.groups and took - self.usual > math.log(_LATE) else 0
        self.groups += 1
        self.usual += max(_WEIGHT, 1 / self.groups) * (took - self.usual)
        return True

    @property
    def seconds(self) -> float:
        """What is usual: of the groups, before the first one that said anything of all answers; 0 before the first of these."""
        if self.groups:
            return math.exp(self.usual)
        return math.exp(self.mean) if self.answers else 0.0


class AdaptiveLimit:
    """A limit between `floor` and `ceiling`, both included. Times are those of one monotonic clock, in seconds."""

    def __init__(self, *, ceiling: int, start: ConcurrencyLimit = START, floor: int = 4) -> None:
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
        if times is None:
            times = self._times[model] = _Times(CallGroup(_GROUP))
        return times.began(in_use)

    def ended(self, model: str, group: CallGroup) -> None:
        """Learn that a call of that group is over, whatever came of it; if it was answered, after `answered`."""
        times = self._times[model]
        times.open -= 1
        group.ended += 1
        if group.judged or not group.full or group.ended < group.enough:
            return
        group.judged = True
        if not times.judge(group):
            return
        if times.late >= _LATE_GROUPS:
            self._limit = self._threshold = max(self._floor, self._limit * _DECREASE_FACTOR)
        elif not times.late:
            self._proven = max(self._proven, group.at_once)

    def answered(self, model: str, group: CallGroup, seconds: float, in_use: int) -> None:
        """Learn of a call that was answered after so long, while so many slots were in use, its own included."""
        self._answered_since_cut = True
        took, times = math.log(max(seconds, _TRIVIAL_SECONDS)), self._times[model]
        times.answers += 1
        times.mean += (took - times.mean) / times.answers
        if not group.judged:
            group.times.append(took)
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
