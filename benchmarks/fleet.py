"""Thousands of agents on one machine, mostly waiting for their model: how long a wave of runs takes, and what memory it needs.

Each of the agents (shared isolation) gets one run: two model calls of a second each, with a tool call between them; 2 s
is what one agent alone would need. The memory of a resident idle agent is the growth of the processes that host agents, from
before the wave to after it, divided by the number of agents; it includes what the allocator keeps of the run. Then ten times
as many agents get a run each, where places for a tenth of them exist, and the store must show each run completed.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.memory import PeakMemory, memory_by_kind
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from benchmarks.system import RunningSystem, running_system
from benchmarks.wave import RunTimes, StoreReader, trigger_each, wait_until_done

TITLE = "Ten thousand agents on one machine"

THINKING = Path(__file__).parent / "scripts" / "thinking.yaml"
IDEAL = 2.0
"""Seconds: the two model calls."""
_WARM_UP = 20
_PATIENCE = 240.0
_SETTLE = 5.0
_MB = 1_000_000
_HOST = "AgentActor"


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many agents, on how many hosts."""

    agents: int
    hosts: int
    agents_per_actor: int

    @property
    def registered(self) -> int:
        """How many agents there are in the second part."""
        return 10 * self.agents

    def settings(self, data_dir: Path) -> dict[str, object]:
        """Return the settings that differ from the defaults, and why it needs them is their names."""
        return {
            "data_dir": str(data_dir),
            "actors": {
                "warm": self.hosts,
                "max": self.hosts,
                "agents_per_actor": self.agents_per_actor,
                "idle_seconds": 3_600,
            },
            "models": {"max_concurrent": 2 * self.agents},
        }


FLEETS = {Size.SMOKE: Fleet(500, 1, 1_000), Size.FULL: Fleet(10_000, 10, 1_000)}


@dataclass(frozen=True, slots=True)
class Wave:
    """One wave of runs, measured."""

    times: RunTimes
    cpu: float
    peak: int
    peak_by_kind: Counter[str]
    growth: Counter[str]


def measured_wave(system: RunningSystem, store: StoreReader, names: list[str], say: Say) -> Wave:
    """Trigger each of the agents once, wait for the end of all runs, and return what that took."""
    before, cpu, last = memory_by_kind(system.process), system.cpu_seconds(), store.last_seq()
    with PeakMemory(system.process) as memory:
        latencies = trigger_each(system.url, names)
        say(f"{len(latencies)} triggers accepted")
        wait_until_done(store, say, seconds=_PATIENCE)
    spent = system.cpu_seconds() - cpu
    time.sleep(_SETTLE)
    growth = memory_by_kind(system.process)
    growth.subtract(before)
    return Wave(store.times(last), spent, memory.peak, memory.by_kind, growth)


def wait_for_hosts(process: psutil.Process, hosts: int, say: Say) -> None:
    """Return when so many agent actors live."""
    say(f"waiting for {hosts} warm agent actors")
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        names = [each.cmdline()[:1] for each in process.children(recursive=True)]
        if sum(name[0].startswith(f"ray::{_HOST}") for name in names if name) >= hosts:
            return
        time.sleep(0.5)
    raise RuntimeError(f"no {hosts} agent actors after {_PATIENCE:.0f} s")
