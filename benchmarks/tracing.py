"""What tracing costs runs: the rate of durable runs over HTTP with traces exported, with a receiver that hangs, and without.

Three systems with the same agents run at once and are loaded in turn, round after round, so that all see the same machine; before
each turn everything has come to rest, the export of the turn before included. The receiver (`benchmarks/otlp_stub.py`)
takes every batch at once, or never answers. Its CPU, and the load generator's, come on top.

Then the system that exports is loaded without a pause, for ten minutes in full size, as in a day's worst hour: whether its exporter keeps
pace is what waits at the end, and what was given up.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass

import httpx

from benchmarks.child import running
from benchmarks.exporting import export_cpu_ms
from benchmarks.measuring import WARM_SECONDS, Measured, measure_definition, remarks, said
from benchmarks.otlp_stub import HANGING
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from benchmarks.system import RunningSystem, running_system
from owlclaw_ray.telemetry.metrics.exposition import read
from serve.numbers import Numbers

TITLE = "What tracing costs runs: traces exported, a receiver that hangs, and no tracing."
AGENTS = 1_000
OFF, ON, HANGS = "off", "on", "receiver hangs"
GOAL = 0.9
_TIMES = 5
_STAY_SECONDS = 3_600
"""Agents stay in memory while the other systems have their turn."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    seconds: float
    rounds: int
    exported_runs: int
    continuous_seconds: float


PLANS = {
    Size.SMOKE: Plan(seconds=3.0, rounds=1, exported_runs=256, continuous_seconds=20.0),
    Size.FULL: Plan(seconds=6.0, rounds=4, exported_runs=1_024, continuous_seconds=600.0),
}


def answer(size: Size, say: Say) -> Answer:
    """Load the three systems in turn, and count what arrived."""
    plan = PLANS[size]
    measured: dict[str, list[Measured]] = {OFF: [], ON: [], HANGS: []}
    with running("benchmarks.otlp_stub") as stub, ExitStack() as stack:
        say("exporting runs that are over, and nothing else")
        export_cpu = export_cpu_ms(stub.url, plan.exported_runs, _TIMES)
        endpoints = {OFF: None, ON: stub.url, HANGS: f"{stub.url}{HANGING}"}
        systems: dict[str, RunningSystem] = {}
        for name, endpoint in endpoints.items():
            say(f"starting OwlClaw, tracing: {name}")
            systems[name] = stack.enter_context(_system(endpoint))
            measure_definition(systems[name], "bench", AGENTS, WARM_SECONDS)
        for turn in range(plan.rounds):
            for name in _order(turn):
                for each in systems.values():
                    each.settle()
                measured[name].append(measure_definition(systems[name], "bench", AGENTS, plan.seconds))
                say(f"tracing {name}: {said(measured[name][-1])}")
        for each in systems.values():
            each.settle()
        say(f"loading the system that exports for {plan.continuous_seconds:g} s without a pause")
        continuous = measure_definition(systems[ON], "bench", AGENTS, plan.continuous_seconds)
        kept_up = _traces(systems[ON].url)
        for each in systems.values():
            each.settle()
        traces = {name: _traces(system.url) for name, system in systems.items() if name != OFF}
    figures = [
        *_rates(measured),
        *_costs(measured),
        Figure("export_cpu_ms_per_run", export_cpu, "ms", note="the exporter's share alone, without Ray"),
        *_pace(continuous, kept_up),
        _delivered(traces[ON]),
    ]
    details: dict[str, object] = {name: [asdict(each) for each in found] for name, found in measured.items()}
    return Answer(
        "tracing",
        tuple(figures),
        (_plot(measured),),
        {**details, "continuous": asdict(continuous), "kept_up": kept_up, "traces": traces},
    )


def _system(endpoint: str | None) -> AbstractContextManager[RunningSystem]:
    """Return a context of the system that exports there."""
    tracing: dict[str, object] = {"export": "off"} if endpoint is None else {"export": "otlp", "endpoint": endpoint}
    agents = {"bench": {"model": "scripted:tool_once", "isolation": "shared"}}
    return running_system(agents, tracing=tracing, actors={"idle_seconds": _STAY_SECONDS})


def _order(turn: int) -> Sequence[str]:
    """Return the systems in another order each time, so that none always comes after the same one."""
    names = (OFF, ON, HANGS)
    return names[turn % 3 :] + names[: turn % 3]


def _rates(measured: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    base = _rate(measured[OFF])
    doubts = remarks(each for found in measured.values() for each in found)
    return [
        Figure(
            f"runs_per_second, tracing: {name}",
            rate := _rate(measured[name]),
            "runs/s",
            baseline=base,
            baseline_is="tracing off, in turn with it",
            goal=f"at least {GOAL:g} of the baseline",
            met=rate >= GOAL * base,
            note=doubts,
        )
        for name in (ON, HANGS)
    ]


def _costs(measured: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    base = _cpu(measured[OFF])
    return [
        Figure(f"cpu_ms_per_run, tracing: {name}", _cpu(measured[name]), "ms", base, "tracing off, in turn with it")
        for name in (ON, HANGS)
    ]


def _pace(measured: Measured, traces: Mapping[str, float]) -> list[Figure]:
    """Return what continuous load came to, and what its export had not delivered when it ended."""
    behind = traces["ended"] - traces["exported"] - traces["dropped"]
    return [
        Figure("continuous_runs_per_second, tracing: on", measured.runs_per_second, "runs/s", note=remarks([measured])),
        Figure("continuous_traces_behind", behind, "traces", note="when the load ended; none of them is lost"),
        Figure("continuous_traces_dropped", traces["dropped"], "traces", goal="none", met=not traces["dropped"]),
    ]


def _delivered(traces: Mapping[str, float]) -> Figure:
    ended, exported = traces["ended"], traces["exported"]
    return Figure(
        "traces_delivered",
        exported,
        "traces",
        baseline=ended,
        baseline_is="runs that ended",
        goal="as many as runs",
        met=0 < ended == exported and not traces["dropped"],
    )


def _traces(url: str) -> dict[str, float]:
    numbers = Numbers(read(httpx.get(f"{url}/metrics", timeout=30.0).text))
    return {
        "ended": numbers.total("owlclaw_runs_ended_total"),
        "exported": numbers.total("owlclaw_traces_exported_total"),
        "dropped": numbers.total("owlclaw_traces_dropped_total"),
        "waiting": numbers.total("owlclaw_traces_waiting"),
        "failed_deliveries": numbers.total("owlclaw_trace_deliveries_failed_total"),
    }


def _plot(measured: Mapping[str, Sequence[Measured]]) -> Plot:
    rates = Series("runs/s", tuple(measured), tuple(_rate(found) for found in measured.values()))
    return Plot("Durable runs a second by tracing", "tracing", "runs/s", (rates,))


def _rate(measured: Sequence[Measured]) -> float:
    return statistics.median(each.runs_per_second for each in measured)


def _cpu(measured: Sequence[Measured]) -> float:
    return statistics.median(each.cpu_ms_per_run for each in measured)
