"""Whether a run costs more when there is more of everything: agents, skills, past runs.

Every case gets the same load, a fixed number of triggers a second, so that batches are equally small in all; what the system
uses when it is left alone is measured beside it and taken off. A run is model, `log_decision` as a Ray task, model. Three
systems run side by side: a small one, one in which 10,000 agents are resident, and one whose store holds 100,000 finished runs
of the same agents (written through the store's own commands). Cases take turns, every second round backwards, so that what
else the machine does, and what came before, hits all of them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import load
from benchmarks.load import LoadResult, post_for
from benchmarks.measuring import agent_paths
from benchmarks.past import finish_runs
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from benchmarks.system import RunningSystem, running_system
from benchmarks.wave import StoreReader, WaveError, check_completed, trigger_each, wait_until_done
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.kernel.system_clock import SystemClock

TITLE = "CPU of a run with more and more agents, skills and past runs."

PER_SECOND = 40.0
FLAT = 0.15
"""A difference of medians that counts as none: about twice what the medians of eight rounds on a shared machine vary by."""
_CONNECTIONS = 4
_IDLE_SECONDS = 3.0
_TIMEOUT_SECONDS = 300.0
_BODY = b'{"payload": {"price": 7}, "focus": "prices"}'
_PAST_AGENTS = 100
_SKILLED_AGENTS = 20
_MANY_SKILLS = 50
_SHARED = {"model": "scripted:tool_once", "isolation": "shared"}
_SKILL = """---
name: {name}
description: What to do about {about}.
owlclaw:
  focus: [{about}]
---

# {name}

{text}
"""
_SKILL_TEXT = "Look at what changed since the last time, and write down what you decided and why. " * 120
"""So long that one skill fits into the prompt and no second one: the prompt is the same size with one skill and with fifty."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much there is of everything, and how long a case is measured."""

    agents: tuple[int, int, int]
    past_runs: int
    rounds: int
    seconds: float


AMOUNTS = {
    Size.SMOKE: Amounts((1, 20, 300), 2_000, 2, 3.0),
    Size.FULL: Amounts((1, 100, 10_000), 100_000, 8, 5.0),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One amount of one thing."""

    axis: str
    """`agents`, `skills` or `past runs`."""
    amount: int
    system: str
    paths: Iterator[str]


@dataclass
class Measured:
    """The CPU-milliseconds of a run in each round."""

    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.rounds)


@dataclass(frozen=True, slots=True)
class ToolRate:
    """Says when the next trigger is due; see post_for's `room`."""

    per_second: float
    started: float = field(default_factory=time.monotonic)

    def __call__(self, result: LoadResult) -> bool:
        """Return whether fewer were accepted than should have been by now."""
        return result.accepted + result.refused < self.per_second * (time.monotonic() - self.started)


def answer(size: Size, say: Say) -> Answer:
    """Start the systems and measure the cases in turns."""
    amounts = AMOUNTS[size]
    with ExitStack() as stack:
        systems = start(amounts, stack, say)
        found = measure(systems, cases(amounts), amounts, say)
        for system in systems.values():
            system.kill()
    measured, idle = found
    axes = by_axis(measured)
    return Answer(
        "growth",
        tuple(figure for axis, amounts_of in axes.items() for figure in axis_figures(axis, amounts_of))
        + idle_figures(idle, amounts),
        tuple(plot_of(axis, amounts_of) for axis, amounts_of in axes.items()),
        {
            "cpu_ms_per_run": {f"{case.amount} {case.axis}": each.rounds for case, each in measured},
            "idle_cores": {name: each.rounds for name, each in idle.items()},
            "triggers_per_second": PER_SECOND,
        },
    )


def start(amounts: Amounts, stack: ExitStack, say: Say) -> dict[str, RunningSystem]:
    """Return the three systems, each in the state that its cases need."""
    small = stack.enter_context(
        running_system(
            dict.fromkeys(("bench", "past", "one", "fifty"), _SHARED),
            files=skill_files("one", 1) | skill_files("fifty", _MANY_SKILLS),
            actors={"warm": 1, "idle_seconds": 3_600},
        )
    )
    many = amounts.agents[-1]
    crowded = stack.enter_context(running_system({"bench": _SHARED}, actors={"warm": 1, "idle_seconds": 3_600}))
    say(f"making {many} agents resident")
    trigger_each(crowded.url, [f"bench:{number}" for number in range(many)])
    wait_until_done(StoreReader(crowded.store), say, seconds=_TIMEOUT_SECONDS)
    data_dir = stack.enter_context(TemporaryDirectory(prefix="owl-bench-"))
    say(f"writing {amounts.past_runs} past runs")
    store = Path(data_dir) / "owlclaw.db"
    asyncio.run(finish_runs(store, past_agents(), amounts.past_runs, SystemClock().now()))
    old = stack.enter_context(
        running_system({"past": _SHARED}, data_dir=data_dir, actors={"warm": 1, "idle_seconds": 3_600})
    )
    systems = {"small": small, "crowded": crowded, "old": old}
    for system in systems.values():
        system.settle()
    return systems


def cases(amounts: Amounts) -> list[Case]:
    """Return what is compared, along each axis from the least to the most."""
    few, some, many = amounts.agents
    return [
        Case("agents", few, "small", agent_paths(few)),
        Case("agents", some, "small", agent_paths(some)),
        Case("agents", many, "crowded", agent_paths(many)),
        Case("skills", 1, "small", agent_paths(_SKILLED_AGENTS, "one")),
        Case("skills", _MANY_SKILLS, "small", agent_paths(_SKILLED_AGENTS, "fifty")),
        Case("past runs", 0, "small", agent_paths(_PAST_AGENTS, "past")),
        Case("past runs", amounts.past_runs, "old", agent_paths(_PAST_AGENTS, "past")),
    ]


def past_agents() -> list[AgentRef]:
    """Return the agents that have a past."""
    return [AgentRef.parse(f"past:{number}") for number in range(_PAST_AGENTS)]


def skill_files(definition: str, count: int) -> dict[str, str]:
    """Return so many skills, the first of which is the one that the triggers are about."""
    subjects = ["prices", *(f"subject {number}" for number in range(1, count))]
    return {
        f"agents/{definition}/capabilities/skill-{number}/SKILL.md": _SKILL.format(
            name=f"skill-{number}", about=about, text=_SKILL_TEXT
        )
        for number, about in enumerate(subjects)
    }


def measure(
    systems: Mapping[str, RunningSystem], compared: list[Case], amounts: Amounts, say: Say
) -> tuple[list[tuple[Case, Measured]], dict[str, Measured]]:
    """Return the cost of a run in each case, and the cores that each idle system uses, round after round.

    A round before the first warms everything and does not count.
    """
    costs, idle = [Measured() for _ in compared], {name: Measured() for name in systems}
    for number in range(amounts.rounds + 1):
        counts = number > 0
        resting = idle_cores(systems)
        turns = list(zip(compared, costs, strict=True))
        for case, cost in turns[:: 1 if number % 2 else -1]:
            milliseconds = cost_of(systems[case.system], case.paths, resting[case.system], amounts.seconds, say)
            if counts:
                cost.rounds.append(round(milliseconds, 3))
        if counts:
            for name, cores in resting.items():
                idle[name].rounds.append(round(cores, 4))
            last = (
                f"{each.rounds[-1]:.1f} ms with {case.amount} {case.axis}"
                for case, each in zip(compared, costs, strict=True)
            )
            say(f"round {number} of {amounts.rounds}: {', '.join(last)}")
    return list(zip(compared, costs, strict=True)), idle


def idle_cores(systems: Mapping[str, RunningSystem]) -> dict[str, float]:
    """Return how many cores each system uses when it is left alone."""
    before, started = {name: system.cpu_seconds() for name, system in systems.items()}, time.monotonic()
    time.sleep(_IDLE_SECONDS)
    wall = time.monotonic() - started
    return {name: (system.cpu_seconds() - before[name]) / wall for name, system in systems.items()}


def cost_of(system: RunningSystem, triggers: Iterator[str], idle: float, seconds: float, say: Say) -> float:
    """Return the CPU-milliseconds of a run under the load, without what the system uses when it is idle."""
    cpu, started = system.cpu_seconds(), time.monotonic()
    result = load.run(
        post_for(system.url, triggers, body=_BODY, connections=_CONNECTIONS, seconds=seconds, room=ToolRate(PER_SECOND))
    )
    wait_until_done(StoreReader(system.store), say, seconds=_TIMEOUT_SECONDS)
    used = system.cpu_seconds() - cpu - idle * (time.monotonic() - started)
    check_completed(StoreReader(system.store))
    if not result.accepted or result.refused or result.broken:
        raise WaveError(f"{result.accepted} triggers accepted, {result.refused} refused, {result.broken} broken")
    return 1_000 * used / result.accepted


def by_axis(measured: list[tuple[Case, Measured]]) -> dict[str, dict[int, Measured]]:
    """Return the costs by amount, for each axis."""
    axes: dict[str, dict[int, Measured]] = {}
    for case, each in measured:
        axes.setdefault(case.axis, {})[case.amount] = each
    return axes


def axis_figures(axis: str, amounts: dict[int, Measured]) -> tuple[Figure, ...]:
    """Return the cost for each amount beside the least that a smaller amount costs."""
    figures: list[Figure] = []
    for amount, each in amounts.items():
        fewer = {number: amounts[number].median for number in amounts if number < amount}
        least = min(fewer, key=fewer.__getitem__, default=None)
        figures.append(
            Figure(
                f"cpu_ms_per_run, {amount} {axis}",
                each.median,
                "ms",
                baseline=None if least is None else fewer[least],
                baseline_is="" if least is None else f"{least} {axis}",
                goal="" if least is None else f"flat: at most {1 + FLAT:g} times the baseline",
                met=None if least is None else each.median <= (1 + FLAT) * fewer[least],
                note=f"{len(each.rounds)} rounds from {min(each.rounds):.2f} to {max(each.rounds):.2f}",
            )
        )
    return tuple(figures)


def idle_figures(idle: Mapping[str, Measured], amounts: Amounts) -> tuple[Figure, ...]:
    """Return what each system uses when it is left alone, which is not in the cost of a run."""
    told = {
        "crowded": f"{amounts.agents[-1]} resident agents",
        "old": f"{amounts.past_runs} past runs",
    }
    return tuple(
        Figure(
            f"idle_cpu, {what}",
            100 * idle[name].median,
            "% of a core",
            baseline=100 * idle["small"].median,
            baseline_is=f"the small system, {amounts.agents[1]} agents and no past",
        )
        for name, what in told.items()
    )


def plot_of(axis: str, amounts: dict[int, Measured]) -> Plot:
    """Return the cost over the amount."""
    names = tuple(f"{amount:,}" for amount in amounts)
    medians = Series("median", names, tuple(round(each.median, 2) for each in amounts.values()))
    worst = Series("largest round", names, tuple(round(max(each.rounds), 2) for each in amounts.values()))
    return Plot(f"CPU of a run by {axis}", axis, "ms", (medians, worst))
