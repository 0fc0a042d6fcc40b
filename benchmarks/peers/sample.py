"""One measurement, with how much of the machine others used meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.meter import Meter
from benchmarks.processes import ProcessTree


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
    """See `benchmarks.meter.Spent`."""
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
    meter = Meter(tree)
    done = load()
    spent = meter.read()
    return Sample(done.runs, done.seconds, spent.cpu_seconds, spent.others_cores, in_flight)
