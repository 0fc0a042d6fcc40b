"""What a tool call costs as a Ray task, through the path that agents use, against an empty Ray task.

The calls are made inside an actor that belongs to the running system's root, as agents do, by the runner that agents use, and with the
system's store and memory behind the tools. Empty tasks (the same resource, no retries) come from the same actor: one at a
time they take turns with the tools, so that both see the same machine. Then 50 callers call without a pause; then one call in
fifty runs into its time limit of half a second, against bare tasks of which one in fifty sleeps as long.

Before all that, without Ray, what the runtime itself takes for a call: `benchmarks/tool_path.py`.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from benchmarks import tool_path
from benchmarks.attached import ask_inside
from benchmarks.distribution import percentile
from benchmarks.meter import Meter
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from benchmarks.system import running_system
from benchmarks.tool_calls import APPLICATION, CALLERS, EMPTY, TOOLS

TITLE = "What a tool call takes without Ray, and built-in tools as Ray tasks, one call at a time and from 50 callers."

ROUNDS = {Size.SMOKE: 40, Size.FULL: 400}
SECONDS = {Size.SMOKE: 2.0, Size.FULL: 10.0}
"""Of calls from 50 callers, for each kind of call, in two halves."""
GOAL_RATIO = 3.0
_PERCENTILES = (50, 95, 99)
_EMPTY_IS = "an empty task of plain Ray from the same actor"
_LATE = "2 % time-outs"


def answer(size: Size, say: Say) -> Answer:
    """Measure inside a running system."""
    overheads, bare = tool_path.measure(size)
    say(", ".join(f"{each.call:.3f} CPU-ms a call with {tools} tools" for tools, each in overheads.items()))
    with running_system({"bench": {"model": "scripted:echo"}}, application=APPLICATION) as system:
        system.settle()
        meter = Meter(system.tree)
        found = ask_inside(system, "benchmarks.tool_calls", say, system.folder, ROUNDS[size], SECONDS[size])
        others = meter.read().others_cores
        system.kill()
    latencies = {what: latency_of(seconds) for what, seconds in found["latencies"].items()}
    many = {what: many_of(halves) for what, halves in found["many"].items()}
    return Answer(
        "tools",
        (*tool_path.figures(overheads, bare), *latency_figures(latencies), *many_figures(many)),
        (plot_of(latencies),),
        {
            "overhead_ms": {str(tools): asdict(each) for tools, each in overheads.items()},
            "latency_ms": latencies,
            "callers": CALLERS,
            "many": many,
            "others_cores": others,
        },
    )


def latency_of(seconds: list[float]) -> dict[str, float]:
    """Return percentiles in milliseconds by name."""
    return {f"p{percent}": round(1_000 * percentile(seconds, percent), 3) for percent in _PERCENTILES}


def many_of(halves: list[Any]) -> dict[str, float]:
    """Return the mean rate of the halves, and percentiles in milliseconds over all their calls."""
    rate = statistics.fmean(half["per_second"] for half in halves)
    return {"per_second": round(rate, 1), **latency_of([seconds for half in halves for seconds in half["seconds"]])}


def latency_figures(latencies: dict[str, dict[str, float]]) -> tuple[Figure, ...]:
    """Return the percentiles of each tool beside those of the empty task."""
    empty = latencies[EMPTY]
    figures = []
    for tool in TOOLS:
        for name, value in latencies[tool].items():
            judged = (tool, name) == ("log_decision", "p95")
            figures.append(
                Figure(
                    f"{name}_ms, {tool}",
                    value,
                    "ms",
                    baseline=empty[name],
                    baseline_is=_EMPTY_IS,
                    goal=f"at most {GOAL_RATIO:g} times the baseline" if judged else "",
                    met=value <= GOAL_RATIO * empty[name] if judged else None,
                )
            )
    return tuple(figures)


def many_figures(many: dict[str, dict[str, float]]) -> tuple[Figure, ...]:
    """Return the rates of 50 callers, and how long calls take beside those that run into their limit."""
    figures = []
    for what, measured in many.items():
        if what.startswith(EMPTY):
            continue
        late = what.endswith(_LATE)
        empty = many[f"{EMPTY}, {_LATE}" if late else EMPTY]
        is_ = "bare tasks of which 2 % sleep as long as the limit" if late else _EMPTY_IS
        figures.append(
            Figure(
                f"calls_per_second, {CALLERS} callers, {what}",
                measured["per_second"],
                "/s",
                baseline=empty["per_second"],
                baseline_is=is_,
            )
        )
        figures.append(
            Figure(f"p95_ms, {CALLERS} callers, {what}", measured["p95"], "ms", baseline=empty["p95"], baseline_is=is_)
        )
    return tuple(figures)


def plot_of(latencies: dict[str, dict[str, float]]) -> Plot:
    """Return the latencies as bars."""
    names = (EMPTY, *TOOLS)
    series = tuple(
        Series(f"p{percent}", names, tuple(latencies[name][f"p{percent}"] for name in names))
        for percent in _PERCENTILES
    )
    return Plot("Latency of tools as tasks", "tool", "ms", series)
