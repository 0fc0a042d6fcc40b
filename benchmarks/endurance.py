"""Whether a process grows with the runs that it has seen: memory of every process, of Ray's too, reading after reading.

A run is model, `log_decision` as a Ray task, model; a thousand shared agents get them in turn. The first reading is taken when every
agent has had its first runs, so that caches are filled and libraries loaded, each later one after the runs before it are over.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks import load
from benchmarks.load import post_for
from benchmarks.measuring import BODY, CONNECTIONS, Backlog, agent_paths, drain, unfinished_runs
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from benchmarks.system import RunningSystem, running_system

TITLE = "Memory of every process while it does ever more runs."
AGENTS = 1_000
FLAT = 20.0
"""Megabytes that count as no growth: what a garbage collector leaves, and pages that others gave up sharing."""
_HOUR = 3_600.0
_REST = 5.0
"""Seconds before a reading, in which what is behind the last outcome ends."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How many runs there are."""

    first: int
    """Before the first reading."""
    each: int
    """From one reading to the next."""
    readings: int
    """After the first."""


AMOUNTS = {Size.SMOKE: Amounts(2_000, 1_000, 3), Size.FULL: Amounts(20_000, 20_000, 10)}


@dataclass(frozen=True, slots=True)
class Reading:
    """The memory of all processes after so many runs."""

    runs: int
    megabytes: Mapping[str, float]
    """Proportional set size by process: its name and number."""

    @property
    def all(self) -> float:
        """Of all processes."""
        return sum(self.megabytes.values())


def answer(size: Size, say: Say) -> Answer:
    """Do the runs and read the memory in between."""
    amounts = AMOUNTS[size]
    bench = {"model": "scripted:tool_once", "isolation": "shared"}
    with running_system({"bench": bench}, actors={"warm": 1, "idle_seconds": _HOUR}) as system:
        system.settle()
        readings = read_between(system, amounts, say)
        system.kill()
    return Answer(
        "endurance",
        figures(readings),
        (plot_of(readings),),
        {"megabytes": {str(each.runs): dict(each.megabytes) for each in readings}},
    )


def read_between(system: RunningSystem, amounts: Amounts, say: Say) -> list[Reading]:
    """Return the readings, the first after the first runs."""
    readings: list[Reading] = []
    runs = 0
    for count in [amounts.first] + amounts.readings * [amounts.each]:
        runs += do_runs(system, count)
        time.sleep(_REST)
        each = system.tree.pss_of_each().items()
        readings.append(Reading(runs, {f"{name} {at.pid}": round(size / 1e6, 1) for at, (name, size) in each}))
        grown = ", ".join(f"{name} {megabytes:+.1f}" for name, megabytes in growth(readings)[:4])
        say(f"{runs} runs, {readings[-1].all:,.0f} MB; grown most, MB: {grown}")
    return readings


def do_runs(system: RunningSystem, count: int) -> int:
    """Trigger so many runs, as fast as they are done, and return how many were accepted when all of them are over."""
    unfinished = unfinished_runs(system.store)
    paths = itertools.islice(agent_paths(AGENTS), count)
    result = load.run(
        post_for(system.url, paths, body=BODY, connections=CONNECTIONS, seconds=_HOUR, room=Backlog(unfinished))
    )
    drain(unfinished)
    return result.accepted


def growth(readings: Sequence[Reading]) -> list[tuple[str, float]]:
    """Return by how many megabytes each process grew from the first reading that it lived in to the last, the most first.

    Those that ended meanwhile are left out.
    """
    last = readings[-1].megabytes
    first = {name: next(each.megabytes[name] for each in readings if name in each.megabytes) for name in last}
    return sorted(((name, last[name] - first[name]) for name in last), key=lambda item: -item[1])


def figures(readings: Sequence[Reading]) -> tuple[Figure, ...]:
    """Return how much Ray's head and the process that grew most have grown, and what all need together."""
    first, last, grown = readings[0], readings[-1], growth(readings)
    [head] = [item for item in grown if item[0].startswith("gcs_server")]
    between = f"from {first.runs} to {last.runs} runs"
    return (
        *(
            Figure(
                f"growth {between}, {what}",
                megabytes,
                "MB",
                goal=f"at most {FLAT:g}",
                met=megabytes <= FLAT,
                note=f"proportional set size of {name}: {last.megabytes[name]:.0f} MB",
            )
            for what, (name, megabytes) in (("Ray's head", head), ("the process that grew most", grown[0]))
        ),
        Figure(
            f"memory after {last.runs} runs, all processes",
            last.all,
            "MB",
            baseline=first.all,
            baseline_is=f"after {first.runs} runs",
        ),
    )


def plot_of(readings: Sequence[Reading]) -> Plot:
    """Return the memory of the five largest over the runs."""
    last = readings[-1].megabytes
    largest = sorted(last, key=lambda name: -last[name])[:5]
    runs = tuple(float(each.runs) for each in readings)
    series = tuple(Series(name, runs, tuple(each.megabytes.get(name, 0.0) for each in readings)) for name in largest)
    return Plot("Memory by number of runs", "runs", "MB", series, kind="lines")
