"""What a durable run costs: model → built-in tool (log_decision) as a Ray task → model, submitted over HTTP.

Over 64 connections triggers go round the agents, never more than 256 of them without an outcome, and the rate is completed runs
over the time from the first trigger to the last outcome: what was accepted but not run counts for nothing. CPU is that of all
processes of the system; the load generator's is not in it. The scripted model replies at once. The baseline is the bare-Ray
skeleton (`benchmarks/skeleton.py`) under the same load, before and after.

Through litellm the provider is a stub on loopback (`benchmarks/openai_stub.py`), and the baseline is what litellm's own calls
leave room for: cores / (CPU of litellm's two calls + our CPU of a scripted run), the former measured by repeating the very
requests of our runs in bare processes. The stub's and the load generator's CPU come on top; both are in the details.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.child import running
from benchmarks.litellm_runs import through_litellm
from benchmarks.measuring import (
    WARM_SECONDS,
    Measured,
    agent_paths,
    joined,
    measure_definition,
    measure_runs,
    remarks,
    said,
)
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from benchmarks.skeleton import Unfinished
from benchmarks.system import running_system

TITLE = "Durable runs a second and what each costs, over HTTP; model → tool task → model."
DEDICATED = 8
MANY = 1_000
_SKELETON = "bare-Ray skeleton, as many agents"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    agents: Sequence[int]
    seconds: float
    repeats: int
    litellm: bool


PLANS = {
    Size.SMOKE: Plan(agents=(MANY,), seconds=3.0, repeats=1, litellm=False),
    Size.FULL: Plan(agents=(1, 50, MANY), seconds=6.0, repeats=2, litellm=True),
}


def answer(size: Size, say: Say) -> Answer:
    """Measure the skeleton, OwlClaw, the skeleton again (in full size), and runs through litellm (in full size)."""
    plan = PLANS[size]
    skeleton: dict[int, list[Measured]] = {}
    _measure_skeleton(plan, skeleton, say)
    shared, dedicated = _measure_owlclaw(plan, say)
    if plan.repeats > 1:
        _measure_skeleton(plan, skeleton, say)
    figures = [figure for agents in plan.agents for figure in _figures(agents, shared[agents], skeleton[agents])]
    details: dict[str, object] = {
        "skeleton": {str(agents): _all(measured) for agents, measured in skeleton.items()},
        "shared": {str(agents): _all(measured) for agents, measured in shared.items()},
        "dedicated": {str(DEDICATED): _all(dedicated)},
    }
    if dedicated:
        figures += _dedicated_figures(dedicated, skeleton[DEDICATED])
    if plan.litellm:
        more, found = through_litellm(_cpu(shared[MANY]), MANY, plan.seconds, say)
        figures += more
        details["litellm"] = found
    return Answer("runs", tuple(figures), _plots(plan, shared, skeleton), details)


def _measure_skeleton(plan: Plan, found: dict[int, list[Measured]], say: Say) -> None:
    say("the bare-Ray skeleton")
    counts = sorted({*plan.agents, DEDICATED}) if plan.repeats > 1 else plan.agents
    with running("benchmarks.skeleton") as skeleton:
        skeleton.tree.settle()
        unfinished = Unfinished(skeleton.folder)
        measure_runs(skeleton.url, skeleton.tree, unfinished, agent_paths(MANY), WARM_SECONDS)
        for agents in counts:
            measured = measure_runs(skeleton.url, skeleton.tree, unfinished, agent_paths(agents), plan.seconds)
            found.setdefault(agents, []).append(measured)
            say(f"skeleton, {agents} agents: {said(measured)}")
        skeleton.tree.kill()


def _measure_owlclaw(plan: Plan, say: Say) -> tuple[dict[int, list[Measured]], list[Measured]]:
    say("OwlClaw")
    model = "scripted:tool_once"
    agents: dict[str, dict[str, object]] = {
        "bench": {"model": model, "isolation": "shared"},
        "own": {"model": model, "isolation": "dedicated"},
    }
    shared: dict[int, list[Measured]] = {count: [] for count in plan.agents}
    dedicated: list[Measured] = []
    with running_system(agents) as system:
        system.settle()
        measure_definition(system, "bench", MANY, WARM_SECONDS)
        for count in [count for _ in range(plan.repeats) for count in plan.agents]:
            shared[count].append(measure_definition(system, "bench", count, plan.seconds))
            say(f"OwlClaw, {count} shared agents: {said(shared[count][-1])}")
        if plan.repeats > 1:
            measure_definition(system, "own", DEDICATED, WARM_SECONDS)
            system.settle()  # the warm pool is filled up again, at two CPU-seconds an actor
            dedicated.append(measure_definition(system, "own", DEDICATED, plan.seconds))
            say(f"OwlClaw, {DEDICATED} dedicated agents: {said(dedicated[-1])}")
        system.kill()
    return shared, dedicated


def _figures(agents: int, ours: Sequence[Measured], skeleton: Sequence[Measured]) -> list[Figure]:
    rate, bare, cpu = _rate(ours), _rate(skeleton), _cpu(ours)
    judged = agents == MANY
    doubts = remarks((*ours, *skeleton))
    figures = [
        Figure(
            f"runs_per_second, {agents} shared agents",
            rate,
            "runs/s",
            baseline=bare,
            baseline_is=_SKELETON,
            goal="at least 0.5 of the baseline" if judged else "",
            met=rate >= 0.5 * bare if judged else None,
            note=joined("the moonshot is 0.8 of the baseline" if judged else "", doubts),
        ),
        Figure(
            f"cpu_ms_per_run, {agents} shared agents",
            cpu,
            "ms",
            baseline=_cpu(skeleton),
            baseline_is=_SKELETON,
            goal="at most 6 ms" if judged else "",
            met=cpu <= 6.0 if judged else None,
            note="the moonshot is 4 ms" if judged else "",
        ),
    ]
    if judged:
        p95 = statistics.median(each.accept_p95_ms for each in ours)
        bare_p95 = statistics.median(each.accept_p95_ms for each in skeleton)
        name = f"accept_p95_ms, {agents} shared agents"
        figures.append(Figure(name, p95, "ms", baseline=bare_p95, baseline_is=_SKELETON))
    return figures


def _dedicated_figures(ours: Sequence[Measured], skeleton: Sequence[Measured]) -> list[Figure]:
    agents = f"{DEDICATED} dedicated agents"
    return [
        Figure(f"runs_per_second, {agents}", _rate(ours), "runs/s", _rate(skeleton), _SKELETON, note=remarks(ours)),
        Figure(f"cpu_ms_per_run, {agents}", _cpu(ours), "ms", _cpu(skeleton), _SKELETON),
    ]


def _plots(plan: Plan, ours: Mapping[int, list[Measured]], skeleton: Mapping[int, list[Measured]]) -> tuple[Plot, ...]:
    labels = tuple(str(agents) for agents in plan.agents)
    sides = {"OwlClaw": ours, "bare-Ray skeleton": skeleton}
    rates = Plot(
        "Durable runs a second",
        "shared agents",
        "runs/s",
        tuple(Series(name, labels, tuple(_rate(side[each]) for each in plan.agents)) for name, side in sides.items()),
    )
    shares = Plot(
        f"CPU-milliseconds a run by process, {MANY} shared agents",
        "process",
        "ms",
        tuple(_by_process(name, side[MANY]) for name, side in sides.items()),
    )
    return rates, shares


def _by_process(name: str, measured: Sequence[Measured]) -> Series:
    last = measured[-1]
    spent = list(last.cpu_seconds.items())[:8]
    return Series(name, tuple(each for each, _ in spent), tuple(1_000 * cpu / last.runs for _, cpu in spent))


def _rate(measured: Iterable[Measured]) -> float:
    return statistics.median(each.runs_per_second for each in measured)


def _cpu(measured: Iterable[Measured]) -> float:
    return statistics.median(each.cpu_ms_per_run for each in measured)


def _all(measured: Iterable[Measured]) -> list[dict[str, object]]:
    return [{**asdict(each), "runs_per_second": each.runs_per_second} for each in measured]
