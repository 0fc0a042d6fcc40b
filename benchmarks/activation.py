"""From a trigger to the run's first entry: for an agent that nobody has heard of, a passivated one and a resident one.

*Cold* agents have a key that is new; *passivated* ones were here, left their actor when they were idle, and come back with their state;
*resident* ones are in memory. One at a time, each is triggered over HTTP and followed to its end before the next. The journal's
clock counts from the time of run_queued to that of run_started; the client's from before its request until it reads run_started in
the stream of events, for which it needs a second request. Then the same while a load of other agents' runs keeps the machine busy, then
many cold agents at once.

The baseline is what every activation would cost without warm actors: making an actor of plain Ray, on the same cluster, until its
first call is answered. Its memory is compared with that of an agent actor that holds a dedicated agent.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks import load
from benchmarks.attached import ask_inside
from benchmarks.distribution import percentile
from benchmarks.first_entries import FirstEntries, Started
from benchmarks.load import LoadResult, post_for
from benchmarks.measuring import BODY
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from benchmarks.system import RunningSystem, running_system
from benchmarks.wave import StoreReader, WaveError, check_completed, trigger_each, wait_until_done

TITLE = "From a trigger to the run's first entry, for cold, passivated and resident agents."

GOAL_TIMES = 50.0
GOAL_MEMORY = 1.15
_DEDICATED_AT_ONCE = 6
_IDLE_SECONDS = 3.0
_TIMEOUT_SECONDS = 120.0
_LOAD_RUNS = 8
"""Unfinished runs that the load keeps up."""
_LOAD_AGENTS = 200
_KINDS = ("cold", "passivated", "resident")
_PERCENTILES = (50, 95, 99)
_MEGABYTE = 1_000_000
_EMPTY_IS = "making an actor of plain Ray until its first call is answered"


@dataclass(frozen=True, slots=True)
class Numbers:
    """How often everything is done."""

    shared: int
    dedicated: int
    """A multiple of the actors that are warm."""
    at_once: int
    raw_actors: int


NUMBERS = {Size.SMOKE: Numbers(30, 6, 300, 2), Size.FULL: Numbers(200, 30, 2_000, 10)}


def answer(size: Size, say: Say) -> Answer:
    """Measure plain Ray first, then all kinds of agents, idle and under load."""
    numbers = NUMBERS[size]
    agents = {
        "shared": {"model": "scripted:tool_once", "isolation": "shared"},
        "dedicated": {"model": "scripted:tool_once", "isolation": "dedicated"},
        "load": {"model": "scripted:tool_once", "isolation": "shared"},
    }
    warm = _DEDICATED_AT_ONCE + 1
    actors = {"warm": warm, "max": warm + 3, "idle_seconds": _IDLE_SECONDS, "heartbeat_seconds": 0.5}
    with running_system(agents, actors=actors) as system:
        system.settle()
        raw = ask_inside(
            system,
            "benchmarks.raw_actors",
            say,
            system.folder,
            system.process.pid,
            numbers.raw_actors,
            _DEDICATED_AT_ONCE,
        )
        found = measure(system, numbers, say)
        rate = at_once(system, numbers, say)
        system.kill()
    return Answer(
        "activation",
        (*latency_figures(found, raw["seconds"]), *other_figures(rate, numbers, raw)),
        (plot_of(found, raw["seconds"]),),
        {"by_client_ms": {name: _percentiles([each.by_client for each in starts]) for name, starts in found.items()}}
        | {"raw_actors": raw},
    )


def measure(system: RunningSystem, numbers: Numbers, say: Say) -> dict[str, list[Started]]:
    """Return the starts by kind of agent."""
    store = StoreReader(system.store)
    found: dict[str, list[Started]] = {}
    with FirstEntries(system.url, store) as entries:
        entries.of(["shared:warm", "dedicated:warm"])
        wait_until_passivated(store)
        found |= _shared(entries, store, numbers.shared, "")
        say(f"shared agents: {_said(found)}")
        own = _dedicated(entries, store, numbers.dedicated)
        say(f"dedicated agents: {_said(own)}")
        with loaded(system) as result:
            loaded_starts = _shared(entries, store, numbers.shared, ", under load")
        if not result.accepted:
            raise WaveError("there was no load: none of its triggers was accepted")
        say(f"beside {result.accepted} other runs: {_said(loaded_starts)}")
    wait_until_done(store, say, seconds=_TIMEOUT_SECONDS)
    return found | own | loaded_starts


def _shared(entries: FirstEntries, store: StoreReader, count: int, circumstances: str) -> dict[str, list[Started]]:
    names = [f"shared:{circumstances.strip(', ').replace(' ', '_')}{number}" for number in range(count)]
    cold = entries.of(names)
    wait_until_passivated(store, names)
    passivated = entries.of(names)
    resident = entries.of(itertools.repeat(names[-1], count))
    return _by_kind(f"shared{circumstances}", cold, passivated, resident)


def _dedicated(entries: FirstEntries, store: StoreReader, count: int) -> dict[str, list[Started]]:
    names = [f"dedicated:{number}" for number in range(count)]
    rounds: list[list[Started]] = []
    for _ in ("cold", "passivated"):
        starts: list[Started] = []
        for first in range(0, count, _DEDICATED_AT_ONCE):
            wait_until_passivated(store)
            starts += entries.of(names[first : first + _DEDICATED_AT_ONCE])
        rounds.append(starts)
    resident = entries.of(itertools.repeat(names[-1], 3 * count))
    return _by_kind("dedicated", *rounds, resident)


def _by_kind(agents: str, *starts: list[Started]) -> dict[str, list[Started]]:
    return {f"{kind}, {agents}": each for kind, each in zip(_KINDS, starts, strict=True)}


@contextmanager
def loaded(system: RunningSystem) -> Iterator[LoadResult]:
    """Keep a few runs of other agents going until the block ends; the result is of use after it."""
    over, total = threading.Event(), LoadResult()

    def keep_busy() -> None:
        looking = StoreReader(system.store)
        paths = (f"/v1/agents/load:{number % _LOAD_AGENTS}/triggers" for number in itertools.count())
        while not over.is_set():
            room = lambda _: looking.unfinished() < _LOAD_RUNS  # noqa: E731 - one use
            result = load.run(post_for(system.url, paths, body=BODY, connections=2, seconds=1.0, room=room))
            total.accepted += result.accepted

    thread = threading.Thread(target=keep_busy, name="load")
    thread.start()
    try:
        yield total
    finally:
        over.set()
        thread.join()


def at_once(system: RunningSystem, numbers: Numbers, say: Say) -> float:
    """Return how many cold agents a second are activated when all are triggered at once."""
    store = StoreReader(system.store)
    last = store.last_seq()
    trigger_each(system.url, [f"shared:at_once{number}" for number in range(numbers.at_once)])
    wait_until_done(store, say, seconds=_TIMEOUT_SECONDS)
    check_completed(store)
    times = store.times(last)
    rate = len(times.started) / (max(times.started) - min(times.created))
    say(f"{numbers.at_once} cold agents at once: {rate:.0f} activated a second")
    return rate


def wait_until_passivated(store: StoreReader, agents: Sequence[str] = ()) -> None:
    """Return when none of these agents is resident, of all agents if none is named. Raises TimeoutError."""
    end = time.monotonic() + _TIMEOUT_SECONDS
    while resident := store.resident(agents):
        if time.monotonic() > end:
            raise TimeoutError(f"{resident} agents are still resident after {_TIMEOUT_SECONDS:.0f} s")
        time.sleep(0.2)


def latency_figures(found: dict[str, list[Started]], raw: Sequence[float]) -> tuple[Figure, ...]:
    """Return the percentiles of each kind beside those of a raw actor."""
    figures = []
    for kind, starts in found.items():
        by_journal = _percentiles([each.by_journal for each in starts])
        by_client = _percentiles([each.by_client for each in starts])
        for name, value in by_journal.items():
            baseline = _percentiles(raw)[name]
            judged = name == "p95" and not kind.startswith("resident") and "load" not in kind
            figures.append(
                Figure(
                    f"{name}_ms, {kind}",
                    value,
                    "ms",
                    baseline=baseline,
                    baseline_is=_EMPTY_IS,
                    goal=f"at most a {GOAL_TIMES:g}th of the baseline" if judged else "",
                    met=GOAL_TIMES * value <= baseline if judged else None,
                    note=f"by a client's clock {by_client[name]:.1f} ms; {len(starts)} starts",
                )
            )
    return tuple(figures)


def other_figures(rate: float, numbers: Numbers, raw: dict[str, Sequence[float]]) -> tuple[Figure, ...]:
    """Return the rate of activations, what a raw actor costs, and the memory of agent actors."""
    seconds = statistics.fmean(raw["seconds"])
    agent, empty = statistics.median(raw["agent_pss"]), statistics.median(raw["empty_pss"])
    return (
        Figure(
            f"activations_per_second, {numbers.at_once} cold shared agents at once",
            rate,
            "/s",
            baseline=1 / seconds,
            baseline_is="actors of plain Ray, one after another",
            note="their runs and their acceptance over HTTP compete for the same cores",
        ),
        Figure("cpu_seconds, an actor of plain Ray", float(raw["cpu_seconds_each"]), "s"),  # type: ignore[arg-type]
        Figure(
            "memory, dedicated agent actor",
            agent / _MEGABYTE,
            "MB",
            baseline=empty / _MEGABYTE,
            baseline_is="an empty actor of plain Ray",
            goal=f"at most {GOAL_MEMORY} of the baseline",
            met=agent <= GOAL_MEMORY * empty,
            note=f"proportional set size; medians of {len(raw['agent_pss'])} and {len(raw['empty_pss'])}",
        ),
    )


def plot_of(found: dict[str, list[Started]], raw: Sequence[float]) -> Plot:
    """Return the latencies as bars; a raw actor beside them would dwarf them and is named in the title."""
    names = tuple(found)
    return Plot(
        f"To the first entry (an actor of plain Ray: {1_000 * statistics.median(raw):,.0f} ms)",
        "agents",
        "ms by the journal",
        tuple(
            Series(
                f"p{percent}",
                names,
                tuple(_percentiles([s.by_journal for s in found[name]])[f"p{percent}"] for name in names),
            )
            for percent in _PERCENTILES
        ),
    )


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    return {f"p{percent}": round(1_000 * percentile(seconds, percent), 2) for percent in _PERCENTILES}


def _said(found: dict[str, list[Started]]) -> str:
    return "; ".join(
        f"{kind} {_percentiles([each.by_journal for each in starts])['p50']:.1f} ms" for kind, starts in found.items()
    )
