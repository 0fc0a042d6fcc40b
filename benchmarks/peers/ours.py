"""OwlClaw under the load that its peers get."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from benchmarks.measuring import MOST_UNFINISHED, UnfinishedRuns, agent_paths, measure_runs
from benchmarks.peers.plan import AGENTS, Plan
from benchmarks.peers.sample import Done, Sample, take
from benchmarks.system import running_system

ABOUT = "shared agents over HTTP, every step durable, the tool as a Ray task, a ledger; as `owlclaw up` starts it"


def our_runs(plan: Plan) -> Sample:
    """Start OwlClaw, warm it up, measure it, and stop it."""
    with running_system({"bench": {"model": "scripted:tool_once", "isolation": "shared"}}) as system:
        system.settle()
        unfinished, completed = UnfinishedRuns(system.store), completed_runs(system.store)

        def load(seconds: float) -> Done:
            before = completed()
            measured = measure_runs(system.url, system.tree, unfinished, agent_paths(AGENTS), seconds)
            return Done(completed() - before, measured.wall_seconds)

        load(plan.warm_seconds)
        return take(system.tree, MOST_UNFINISHED, lambda: load(plan.seconds))


def completed_runs(store: Path) -> Callable[[], int]:
    """Return what counts the runs that ended well, without asking the system."""
    database = sqlite3.connect(f"file:{store}?mode=ro", uri=True)

    def count() -> int:
        (found,) = database.execute("SELECT count(*) FROM runs WHERE status = 'completed'").fetchone()
        return int(found)

    return count
