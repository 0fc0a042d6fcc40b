"""OwlClaw under the load that its peers get."""

from __future__ import annotations

from benchmarks.measuring import MOST_UNFINISHED, measure_definition
from benchmarks.peers.plan import AGENTS, Plan
from benchmarks.peers.sample import Done, Sample, take
from benchmarks.system import running_system

ABOUT = "shared agents over HTTP, every step durable, the tool as a Ray task, a ledger; as `owlclaw up` starts it"


def our_runs(plan: Plan) -> Sample:
    """Start OwlClaw, warm it up, measure it, and stop it."""
    with running_system({"bench": {"model": "scripted:tool_once", "isolation": "shared"}}) as system:
        system.settle()

        def load(seconds: float) -> Done:
            measured = measure_definition(system, "bench", AGENTS, seconds)
            return Done(measured.runs, measured.wall_seconds)

        load(plan.warm_seconds)
        return take(system.tree, MOST_UNFINISHED, lambda: load(plan.seconds))
