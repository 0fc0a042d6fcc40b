"""How many calls of one provider may run at once, learned from how they end.

The method is TCP's (V. Jacobson, "Congestion Avoidance and Control", 1988; AIMD after Chiu and Jain, 1989): double in a round of
answers until something is lost, then add one a round; cut by a factor, once a round, when something is lost. The factor is that of
CUBIC (RFC 9438). What late answers say is judged as in Netflix's concurrency-limits (github.com/Netflix/concurrency-limits):
`Gradient2Limit` compares a short window with a long average, and `AIMDLimit` lets no limit grow that is not used.

Times of models differ more than round trips do, by the length of the answer. Each model is compared with itself, and in whole rounds:
of calls that begin together the short ones are answered first, and a part of them is no sample. A round's time is the mean of the
logarithms of the middle half of its answers, which neither a few slow ones nor a mixture of short and long ones move far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

from msgspec import Struct, field

from owlclaw_ray.domain.concurrency_limit import ConcurrencyLimit

_START = ConcurrencyLimit(64)
"""Where nothing is known yet."""
_CUT = 0.7
"""What a loss leaves of a limit."""
_DECREASE_FACTOR = 0.9
"""What a round of late answers leaves of it."""
_LATE = 2.0
"""How many times as long as usual answers take that are late."""
_TRIVIAL_SECONDS = 0.25
"""Answers that come sooner do not differ."""
_ROUND = 50
"""Answers of a model that are judged together, or as many as calls run at once with the first if these are more."""
_WEIGHT = 0.1
"""Of a round in the exponential average that is usual, after the plain mean of the first ones: if it followed faster, a server with a
queue would never be late."""


class _Times(Struct):
    """How long a model's answers take, as logarithms of seconds."""

    round: list[float] = field(default_factory=list)
    length: int = _ROUND
    """Of the round."""
    usual: float = 0.0
    rounds: int = 0

    def answered(self, seconds: float, in_use: int) -> bool:
        """Return whether a round is over with this answer whose answers were late."""
        if not self.round:
            self.length = max(_ROUND, in_use)
        self.round.append(math.log(max(seconds, _TRIVIAL_SECONDS)))
        if len(self.round) < self.length:
            return False
        took, self.round = _middle(self.round), []
        late = self.rounds > 0 and took - self.usual > math.log(_LATE)
        self.rounds += 1
        self.usual += max(_WEIGHT, 1 / self.rounds) * (took - self.usual)
        return late

    @property
    def seconds(self) -> float:
        """What is usual, or was so far; 0 before the first answer."""
        if self.rounds:
            return math.exp(self.usual)
        return math.exp(_middle(self.round)) if self.round else 0.0


def _middle(values: Iterable[float]) -> float:
    """Return the mean of the middle half."""
    ordered = sorted(values)
    out = len(ordered) // 4
    return fmean(ordered[out : len(ordered) - out])


class AdaptiveLimit:
    """A limit between `floor` and `ceiling`, both included. Times are those of one monotonic clock, in seconds."""

    def __init__(self, *, ceiling: int, start: ConcurrencyLimit = _START, floor: int = 4) -> None:
        self._ceiling, self._floor = float(ceiling), float(min(floor, ceiling))
        self._limit = max(self._floor, float(min(start.calls, ceiling)))
        self._threshold = math.inf if start.threshold is None else float(start.threshold)
        """Below it the limit doubles in a round of answers, from it on one is added."""
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

    def answered(self, model: str, seconds: float, in_use: int) -> None:
        """Learn of a call that was answered after so long, while so many slots were in use, its own included."""
        self._answered_since_cut = True
        if self._times.setdefault(model, _Times()).answered(seconds, in_use):
            self._limit = self._threshold = max(self._floor, self._limit * _DECREASE_FACTOR)
        elif 2 * in_use >= self.now:
            more = 1.0 if self._limit < self._threshold else 1 / self._limit
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
        usual = self._times.get(model, _Times()).seconds
        if now - began >= _LATE * usual:
            self.refused(began, now)
