"""Measuring runs: a load that keeps a bounded number of them unfinished, to the last outcome."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import load
from benchmarks.distribution import percentile
from benchmarks.load import LoadResult, post_for
from benchmarks.meter import Meter, disturbance
from benchmarks.processes import ProcessTree
from benchmarks.system import RunningSystem
from owlclaw_ray.domain.run import RunStatus

BODY = b'{"payload": {"price": 7}}'
MOST_UNFINISHED = 256
"""Accepted triggers without an outcome, over all agents, above which nothing more is sent."""
CONNECTIONS = 64
WARM_SECONDS = 3.0
"""Of load before the first measurement."""
_LOOK_SECONDS = 0.02
_DRAIN_SECONDS = 120.0


class NothingAcceptedError(Exception):
    """There is nothing to measure."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Runs from the first trigger to the last outcome."""

    runs: int
    """Those that completed."""
    refused: int
    broken: int
    wall_seconds: float
    cpu_seconds: dict[str, float]
    """By process, the most first."""
    accept_p95_ms: float
    others_cores: float = 0.0
    """See Spent.others_cores."""
    failed: int = 0
    """Accepted runs that ended otherwise than completed."""

    @property
    def runs_per_second(self) -> float:
        """Completed runs over the time to the last outcome."""
        return self.runs / self.wall_seconds

    @property
    def cpu_ms_per_run(self) -> float:
        """Over all processes of the system; the load generator's is not in it."""
        return 1_000 * sum(self.cpu_seconds.values()) / max(self.runs, 1)


class CountedRuns:
    """How many runs have one of these statuses, read from the SQLite store without asking the system."""

    def __init__(self, store: Path, statuses: Iterable[RunStatus]) -> None:
        self._database = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
        self._statuses = [status.value for status in statuses]
        places = ", ".join("?" * len(self._statuses))
        self._query = f"SELECT count(*) FROM runs WHERE tenant = 'default' AND status IN ({places})"  # noqa: S608 - marks only

    def __call__(self) -> int:
        """Return the number as of now."""
        (count,) = self._database.execute(self._query, self._statuses).fetchone()
        return int(count)


def unfinished_runs(store: Path) -> CountedRuns:
    """Return what counts the runs that are queued or running."""
    return CountedRuns(store, (RunStatus.QUEUED, RunStatus.RUNNING))


def failed_runs(store: Path) -> CountedRuns:
    """Return what counts the runs that ended otherwise than completed."""
    return CountedRuns(store, (each for each in RunStatus if each.final and each is not RunStatus.COMPLETED))


def _none_fails() -> int:
    return 0


class Backlog:
    """Says whether there is room for one more trigger; looks at the true number now and then and counts in between."""

    def __init__(self, unfinished: Callable[[], int], most: int = MOST_UNFINISHED) -> None:
        self._unfinished, self._most = unfinished, most
        self._seen, self._accepted, self._looked_at = 0, 0, 0.0

    def __call__(self, result: LoadResult) -> bool:
        """See post_for's `room`."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._seen, self._accepted, self._looked_at = self._unfinished(), result.accepted, now
        return self._seen + result.accepted - self._accepted < self._most


def agent_paths(agents: int, definition: str = "bench") -> Iterator[str]:
    """Return trigger paths that go round so many agents of a definition, for ever."""
    return (f"/v1/agents/{definition}:{number % agents}/triggers" for number in itertools.count())


def measure_runs(
    url: str,
    tree: ProcessTree,
    unfinished: Callable[[], int],
    paths: Iterator[str],
    seconds: float,
    *,
    failed: Callable[[], int] = _none_fails,
) -> Measured:
    """Trigger for so many seconds over 64 connections, wait for the last outcome, and return what it took.

    `failed` says how many runs ended badly so far. Raises NothingAcceptedError if no trigger is accepted.
    """
    failed_before = failed()
    meter = Meter(tree)
    result = load.run(
        post_for(url, paths, body=BODY, connections=CONNECTIONS, seconds=seconds, room=Backlog(unfinished))
    )
    drain(unfinished)
    spent = meter.read()
    failures = failed() - failed_before
    return Measured(
        runs=result.accepted - failures,
        refused=result.refused,
        broken=result.broken,
        wall_seconds=spent.wall_seconds,
        cpu_seconds=spent.cpu_seconds,
        accept_p95_ms=1_000 * percentile(some(result).latencies, 95),
        others_cores=spent.others_cores,
        failed=failures,
    )


def some(result: LoadResult) -> LoadResult:
    """Return the result of a load. Raises NothingAcceptedError if nothing of it was accepted."""
    if not result.accepted:
        raise NothingAcceptedError(f"no trigger was accepted, {result.refused} refused, {result.broken} broken")
    return result


def measure_definition(system: RunningSystem, definition: str, agents: int, seconds: float) -> Measured:
    """Measure OwlClaw with so many agents of a definition."""
    paths = agent_paths(agents, definition)
    unfinished, failed = unfinished_runs(system.store), failed_runs(system.store)
    return measure_runs(system.url, system.tree, unfinished, paths, seconds, failed=failed)


def said(measured: Measured) -> str:
    """Return it in a few words."""
    return joined(
        f"{measured.runs_per_second:.0f} runs/s at {measured.cpu_ms_per_run:.2f} CPU-ms",
        f"{measured.refused} refused" if measured.refused else "",
        remarks([measured]),
    )


def remarks(measured: Iterable[Measured]) -> str:
    """Return what makes these measurements doubtful, if anything does."""
    each = list(measured)
    failed = sum(one.failed for one in each)
    return joined(
        f"{failed} runs did not complete, which count for nothing" if failed else "",
        disturbance(max(one.others_cores for one in each)),
    )


def joined(*remarks: str) -> str:
    """Return the remarks that there are as one."""
    return "; ".join(remark for remark in remarks if remark)


def drain(unfinished: Callable[[], int]) -> None:
    """Return when no run is unfinished; raises TimeoutError when the number does not come down for minutes."""
    end = time.monotonic() + _DRAIN_SECONDS
    while count := unfinished():
        if time.monotonic() > end:
            raise TimeoutError(f"{count} runs had no outcome after {_DRAIN_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
