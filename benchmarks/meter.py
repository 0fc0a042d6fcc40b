"""What the processes of a system, the load generator and everybody else used of the machine in a while."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

from benchmarks.processes import ProcessTree, cpu_spent

_QUIET_CORES = 0.15


@dataclass(frozen=True, slots=True)
class Spent:
    """Between two moments."""

    wall_seconds: float
    cpu_seconds: dict[str, float]
    """Of the system, by process, the most first."""
    generator_cpu_seconds: float
    """Of this process, which makes the load."""
    others_cores: float
    """That neither of them used: where it is not near 0, times say little and CPU says more."""


class Meter:
    """Counts from its making on."""

    def __init__(self, tree: ProcessTree) -> None:
        self._tree = tree
        self._system, self._machine, self._own = tree.cpu_of_each(), _machine_seconds(), time.process_time()
        self._started = time.monotonic()

    def read(self) -> Spent:
        """Return what was used so far."""
        wall, own = time.monotonic() - self._started, time.process_time() - self._own
        system = cpu_spent(self._system, self._tree.cpu_of_each())
        others = _machine_seconds() - self._machine - own - sum(system.values())
        return Spent(wall, system, own, round(max(0.0, others) / wall, 2))


def disturbance(others_cores: float) -> str:
    """Return a remark if others used so much of the machine that a rate is not to be trusted, else nothing."""
    return f"others used {others_cores:.1f} cores meanwhile" if others_cores > _QUIET_CORES else ""


def _machine_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))
