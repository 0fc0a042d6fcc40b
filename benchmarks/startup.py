"""How long `owlclaw up` takes to accept triggers, against a bare ray.init and ray_serve.run of the smallest application.

Both run in fresh processes, alternately, under the same environment. The ratio is what counts.
"""

from __future__ import annotations

import statistics

from benchmarks.child import running
from benchmarks.question import Answer, Figure, Say, Size
from benchmarks.system import running_system

TITLE = "Seconds from `owlclaw up` to the first answer of /readyz."
ROUNDS = {Size.SMOKE: 1, Size.FULL: 3}


def answer(size: Size, say: Say) -> Answer:
    """Start both, alternately, and compare the medians."""
    bare, ours = [], []
    for number in range(ROUNDS[size]):
        say(f"round {number + 1}: a bare Serve application, then owlclaw up")
        bare.append(_bare_seconds())
        ours.append(_our_seconds())
    figure = Figure(
        "seconds to ready",
        statistics.median(ours),
        "s",
        baseline=statistics.median(bare),
        baseline_is="ray.init and ray_serve.run of an application with one route, same flags",
    )
    return Answer("startup", (figure,), details={"bare_seconds": bare, "owlclaw_seconds": ours})


def _bare_seconds() -> float:
    with running("benchmarks.echo") as echo:
        return echo.seconds_to_ready


def _our_seconds() -> float:
    with running_system({"bench": {"model": "scripted:tool_once"}}) as system:
        return system.seconds_to_ready
