"""How many calls of one provider may run at once, learned from how they end.

The method is TCP's (V. Jacobson, "Congestion Avoidance and Control", 1988; AIMD after Chiu and Jain, 1989): double in a round of
answers until something is lost, then add one a round; cut by a factor, once a round, when something is lost. The factor is that of
CUBIC (RFC 9438). What a late answer says is judged as in Netflix's concurrency-limits (github.com/Netflix/concurrency-limits):
`Gradient2Limit` compares a short window with a long average, and `AIMDLimit` lets no limit grow that is not used. Times of models
differ more than round trips do, so each answer is compared with what is usual for its model, and a window is judged by its median.
"""

from __future__ import annotations

import math
from statistics import median

from msgspec import Struct

from owlclaw_ray.domain.concurrency_limit import ConcurrencyLimit

_START = ConcurrencyLimit(64)
"""Where nothing is known yet."""
_CUT = 0.7
"""What a loss leaves of a limit."""
_DECREASE_FACTOR = 0.9
"""What a window of late answers leaves of it."""
_LATE = 2.0
"""How many times as long as usual an answer takes that is late."""
_TRIVIAL_SECONDS = 0.25
"""Answers that come sooner do not differ: what is usual is never taken to be less."""
_WINDOW = 20
_WARM_UP = 10
"""Answers of a model whose plain mean is what is usual."""
_LONG = 200
"""Answers in the exponential average after that."""


class _Usual(Struct):
    """How long a model usually takes."""

    seconds: float = 0.0
    answers: int = 0

    def learn(self, seconds: float) -> None:
        self.answers += 1
        weight = 1 / self.answers if self.answers <= _WARM_UP else 2 / (_LONG + 1)
        self.seconds += weight * (seconds - self.seconds)


class AdaptiveLimit:
    """A limit between `floor` and `ceiling`, both included. Times are those of one monotonic clock, in seconds."""

    def __init__(self, *, ceiling: int, start: ConcurrencyLimit = _START, floor: int = 4) -> None:
        self._ceiling, self._floor = float(ceiling), float(min(floor, ceiling))
        self._limit = max(self._floor, float(min(start.calls, ceiling)))
        self._threshold = math.inf if start.threshold is None else float(start.threshold)
        """Below it the limit doubles in a round of answers, from it on one is added."""
        self._cut_at = -math.inf
        self._answered_since_cut = True
        self._usual: dict[str, _Usual] = {}
        self._window: list[float] = []

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
        usual = self._usual.setdefault(model, _Usual())
        self._window.append(seconds / max(usual.seconds, _TRIVIAL_SECONDS) if usual.answers else 1.0)
        usual.learn(seconds)
        self._answered_since_cut = True
        if len(self._window) == _WINDOW:
            late, self._window = median(self._window) > _LATE, []
            if late:
                self._limit = self._threshold = max(self._floor, self._limit * _DECREASE_FACTOR)
                return
        if 2 * in_use >= self.now:
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
        usual = self._usual.get(model, _Usual())
        if now - began >= _LATE * usual.seconds:
            self.refused(began, now)
