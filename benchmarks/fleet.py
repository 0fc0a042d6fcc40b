"""Thousands of agents on one machine, mostly waiting for their model: how long a wave of runs takes, and what memory it needs.

Each of the agents (shared isolation) gets one run over HTTP: two model calls of a second each, with a tool call between them; 2 s is
what one agent alone would need. The actors are warm, the agents are not: nobody has heard of them before. That is what
`actors.*` is set for; everything else is as it is by default, the slots for model calls too. A second
wave goes to the same agents, which are resident by then. The memory of a resident idle agent is the growth of the
processes that host agents, from before the first wave to after it, divided by the number of agents: it includes what an
allocator keeps of a run.

Then a system comes back to a store with ten times as many agents, one run queued for each (put there by the store's own commands),
and places for a tenth of them: the store must show each run completed in the end.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measuring import joined
from benchmarks.meter import Meter, disturbance
from benchmarks.past import queue_runs
from benchmarks.processes import difference
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from benchmarks.system import RunningSystem, running_system
from benchmarks.wave import RunTimes, StoreReader, check_completed, trigger_each, wait_until_done
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.kernel.system_clock import SystemClock
from serve.processes import command_line

TITLE = (
    "A wave of runs over ten thousand shared agents whose model takes a second a call; a hundred thousand registered."
)

IDEAL_SECONDS = 2.0
"""Two model calls."""
GOAL_SECONDS = 60.0
GOAL_BYTES = 100_000
_THINKING = """
rules:
  - turns:
      - latency: 1.0
        tool_calls:
          - name: log_decision
            arguments: {reasoning: Nothing needs to be done., decision_type: no_action}
      - latency: 1.0
        text: done
"""
_HOST = "AgentActor"
_WARM_UP = 20
_TIMEOUT_SECONDS = 600.0
_SETTLE_SECONDS = 5.0
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many agents, and the actors for them."""

    agents: int
    actors: int
    agents_per_actor: int = 1_000

    @property
    def registered(self) -> int:
        """How many agents the second part has: ten for each place."""
        return 10 * self.actors * self.agents_per_actor

    def names(self) -> list[str]:
        """Return the agents of the first part."""
        return [f"fleet:{number}" for number in range(self.agents)]

    def actor_settings(self) -> dict[str, object]:
        """Return places for all agents, in actors made ahead."""
        return {
            "warm": self.actors,
            "max": self.actors,
            "agents_per_actor": self.agents_per_actor,
            "idle_seconds": 3_600,
        }


FLEETS = {Size.SMOKE: Fleet(500, 1, 500), Size.FULL: Fleet(10_000, 10)}


@dataclass(frozen=True, slots=True)
class Wave:
    """One wave of runs."""

    times: RunTimes
    cpu: dict[str, float]
    """Seconds by process, the most first."""
    others_cores: float
    """What others used of the machine meanwhile."""
    peak: int
    growth: dict[str, float]
    """Bytes (PSS) by process that it left behind, the most first."""

    def told(self) -> dict[str, object]:
        """Return what else helps to judge it, as JSON values."""
        return {
            "wall_seconds": round(self.times.wall, 2),
            "accepting_seconds": round(self.times.accepting, 2),
            "most_runs_at_once": self.times.most_at_once,
            "cpu_seconds": self.cpu,
            "others_cores": self.others_cores,
            "peak_mb": self.peak // _MEGABYTE,
            "growth_mb": {name: round(grown / _MEGABYTE, 1) for name, grown in self.growth.items()},
        }


@dataclass(frozen=True, slots=True)
class Backlog:
    """A system's way through the queue that it found."""

    agents: int
    done: int
    by_status: dict[str, int]
    most_resident: int
    seconds: float
    """From the first run's start to the last outcome."""
    others_cores: float
    peak: int


def answer(size: Size, say: Say) -> Answer:
    """Measure both parts."""
    fleet = FLEETS[size]
    first, second, before = waves(fleet, say)
    backlog = work_off_backlog(fleet, say)
    return Answer(
        "fleet",
        (*wave_figures(fleet, first, second), *backlog_figures(fleet, backlog)),
        plots(before, first),
        {
            "settings": {"actors": fleet.actor_settings(), "models": "default"},
            "first_wave": first.told(),
            "second_wave": second.told(),
            "backlog": {"by_status": backlog.by_status, "peak_mb": backlog.peak // _MEGABYTE},
        },
    )


def waves(fleet: Fleet, say: Say) -> tuple[Wave, Wave, dict[str, int]]:
    """Return a wave over agents that nobody has heard of, one over the same when they are resident, and the memory before both."""
    agents = {"fleet": {"model": "scripted:thinking.yaml", "isolation": "shared"}}
    script = {"agents/fleet/thinking.yaml": _THINKING}
    with running_system(agents, files=script, actors=fleet.actor_settings()) as system:
        store = StoreReader(system.store)
        trigger_each(system.url, fleet.names()[:_WARM_UP])
        wait_until_done(store, say, seconds=_TIMEOUT_SECONDS)
        wait_for_actors(system, fleet.actors, say)
        system.settle()
        before = system.tree.pss_by_name()
        first = measured_wave(system, store, fleet, say)
        second = measured_wave(system, store, fleet, say)
        system.kill()
    return first, second, before


def measured_wave(system: RunningSystem, store: StoreReader, fleet: Fleet, say: Say) -> Wave:
    """Trigger each of the agents once, wait for the end of all runs, and return what that took."""
    before, last, meter = system.tree.pss_by_name(), store.last_seq(), Meter(system.tree)
    with system.peak_memory() as peak:
        trigger_each(system.url, fleet.names())
        wait_until_done(store, say, seconds=_TIMEOUT_SECONDS)
    spent = meter.read()
    check_completed(store)
    time.sleep(_SETTLE_SECONDS)
    times = store.times(last)
    say(f"{fleet.agents} agents in {times.wall:.1f} s, at most {times.most_at_once} runs at once")
    grown = difference(before, system.tree.pss_by_name())
    return Wave(times, spent.cpu_seconds, spent.others_cores, peak.bytes, grown)


def work_off_backlog(fleet: Fleet, say: Say) -> Backlog:
    """Start on a store with a queued run for each registered agent, and return how it was worked off."""
    with TemporaryDirectory(prefix="owl-bench-") as name:
        file = Path(name) / "owlclaw.db"
        say(f"queueing a run for each of {fleet.registered} agents")
        registered = [AgentRef.parse(f"fleet:{number}") for number in range(fleet.registered)]
        asyncio.run(queue_runs(file, registered, SystemClock().now()))
        agents = {"fleet": {"model": "scripted:echo", "isolation": "shared"}}
        with running_system(agents, data_dir=name, actors=fleet.actor_settings()) as system:
            store, meter = StoreReader(file), Meter(system.tree)
            with system.peak_memory() as peak:
                most = wait_until_done(store, say, seconds=_TIMEOUT_SECONDS)
            times = store.times()
            found = Backlog(
                agents=store.registered(),
                done=store.agents_done(),
                by_status=store.by_status(),
                most_resident=most,
                seconds=max(times.finished) - min(times.started),
                others_cores=meter.read().others_cores,
                peak=peak.bytes,
            )
            system.kill()
    return found


def wait_for_actors(system: RunningSystem, count: int, say: Say) -> None:
    """Return when so many agent actors live. Raises TimeoutError."""
    say(f"waiting for {count} agent actors")
    end = time.monotonic() + _TIMEOUT_SECONDS
    while sum(_is_host(command_line(each)) for each in system.tree.processes()) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"fewer than {count} agent actors after {_TIMEOUT_SECONDS:.0f} s")
        time.sleep(0.5)


def _is_host(command: list[str]) -> bool:
    return bool(command) and command[0].startswith(f"ray::{_HOST}")


def wave_figures(fleet: Fleet, first: Wave, second: Wave) -> tuple[Figure, ...]:
    """Return what the two waves say."""
    agents = f"{fleet.agents} agents"
    alone = "one agent alone: its two model calls"
    cpu, held = sum(first.cpu.values()), first.growth.get(_HOST, 0.0)
    return (
        Figure(
            f"wall_seconds, {agents}, first run",
            first.times.wall,
            "s",
            baseline=IDEAL_SECONDS,
            baseline_is=alone,
            goal=f"at most {GOAL_SECONDS:g} s",
            met=first.times.wall <= GOAL_SECONDS,
            note=joined(
                f"triggers accepted over {first.times.accepting:.1f} s, at most {first.times.most_at_once} runs at once",
                disturbance(first.others_cores),
            ),
        ),
        Figure(
            f"wall_seconds, {agents}, resident",
            second.times.wall,
            "s",
            baseline=IDEAL_SECONDS,
            baseline_is=alone,
            note=disturbance(second.others_cores),
        ),
        Figure(f"cpu_ms_per_run, {agents}, first run", 1_000 * cpu / fleet.agents, "ms", note="all processes"),
        Figure(f"peak_memory, {agents}", first.peak / _MEGABYTE, "MB", note="all processes, shared pages once"),
        Figure(
            "memory_per_idle_resident_agent",
            held / fleet.agents / 1_000,
            "KB",
            goal=f"at most {GOAL_BYTES // 1_000} KB",
            met=0 < held / fleet.agents <= GOAL_BYTES,
            note="growth of the agents' processes; of all processes together:"
            f" {sum(first.growth.values()) / fleet.agents / 1_000:.1f} KB",
        ),
    )


def backlog_figures(fleet: Fleet, backlog: Backlog) -> tuple[Figure, ...]:
    """Return what the second part says."""
    places = fleet.actors * fleet.agents_per_actor
    return (
        Figure(
            f"agents_done, {fleet.registered} registered",
            backlog.done,
            "agents",
            baseline=fleet.registered,
            baseline_is="agents with a run queued",
            goal="all of them",
            met=backlog.done == backlog.agents == fleet.registered and set(backlog.by_status) == {"completed"},
            note=f"{places} places, at most {backlog.most_resident} resident at a look",
        ),
        Figure(
            f"runs_per_second, {fleet.registered} registered",
            fleet.registered / backlog.seconds,
            "/s",
            note=joined(
                f"one model call and no tool; {backlog.seconds:.0f} s in all", disturbance(backlog.others_cores)
            ),
        ),
        Figure(f"peak_memory, {fleet.registered} registered", backlog.peak / _MEGABYTE, "MB", note="all processes"),
    )


def plots(before: dict[str, int], first: Wave) -> tuple[Plot, ...]:
    """Return where memory and CPU go, by process."""
    grown = Counter({name: size / _MEGABYTE for name, size in first.growth.items()}).most_common(6)
    base = {name: size / _MEGABYTE for name, size in before.items()}
    names = tuple(name for name, _ in grown)
    cpu = list(first.cpu.items())[:8]
    memory = (
        Series("before", names, tuple(round(base.get(name, 0.0), 1) for name in names)),
        Series("added by the wave", names, tuple(round(size, 1) for _, size in grown)),
    )
    return (
        Plot("Memory that a fleet adds", "process", "MB", memory),
        Plot("CPU of a wave", "process", "s", (Series("CPU", *zip(*cpu, strict=True)),)),
    )
