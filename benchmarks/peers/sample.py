"""One measurement, with how much of the machine others used meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psutil

from benchmarks.processes import ProcessTree, difference


@dataclass(frozen=True, slots=True)
class Done:
    """What a load got done."""

    runs: int
    seconds: float
    """From the first run's start to the last one's end."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Runs under load."""

    runs: int
    seconds: float
    cpu_seconds: dict[str, float]
    """By process, the most first; the load generator's is not in it."""
    others_cores: float
    """Cores that neither what was measured nor the load generator used: where it is not near 0, the rate is not to be trusted."""
    in_flight: int

    @property
    def runs_per_second(self) -> float:
        """Completed runs over the time to the last outcome."""
        return self.runs / self.seconds

    @property
    def cpu_ms_per_run(self) -> float:
        """Over all processes."""
        return 1_000 * sum(self.cpu_seconds.values()) / max(self.runs, 1)


def take(tree: ProcessTree, in_flight: int, load: Callable[[], Done]) -> Sample:
    """Put the load on the processes and return what it took."""
    before, before_all, before_own = tree.cpu_by_name(), _machine_seconds(), _own_seconds()
    done = load()
    cpu = difference(before, tree.cpu_by_name())
    others = _machine_seconds() - before_all - (_own_seconds() - before_own) - sum(cpu.values())
    return Sample(done.runs, done.seconds, cpu, round(max(0.0, others) / done.seconds, 2), in_flight)


def _machine_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))


def _own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)
