"""How much of each is measured."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.question import Size

AGENTS = 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Seconds of load, and how often OwlClaw and the peers over HTTP take turns."""

    warm_seconds: float
    seconds: float
    rounds: int


PLANS = {Size.SMOKE: Plan(1.5, 3.0, 1), Size.FULL: Plan(3.0, 6.0, 2)}
