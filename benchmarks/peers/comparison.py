"""OwlClaw beside its peers: who is measured when, and what the figures mean."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.peers import environments
from benchmarks.peers.contestants import RESTATE, WAYS, Load, Peer, Way
from benchmarks.peers.environments import CACHE, Environment, Missing
from benchmarks.peers.measuring import http_arguments, measure
from benchmarks.peers.ours import ABOUT, our_runs
from benchmarks.peers.plan import AGENTS, PLANS, Plan
from benchmarks.peers.sample import Sample
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size

OURS = "OwlClaw"
QUIET_CORES = 0.1


@dataclass
class Findings:
    """What was measured, in the order in which it was."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    """By the way's name; OwlClaw's under `OwlClaw`."""
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """By peer, what to type to install it."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer that can be measured."""

    environment: Environment
    server: Path | None
    """Restate's."""

    def arguments(self, way: Way) -> tuple[str, ...]:
        """Return what its module is started with."""
        if self.server is None:
            return way.arguments
        server, *ports = http_arguments(self.server)
        return (server, *way.arguments, *ports)


def compare(size: Size, say: Say, ways: Sequence[Way] = WAYS, cache: Path = CACHE) -> Answer:
    """Measure OwlClaw and the peers over HTTP in turn, each as often as the plan says, then the peers in process once each.

    Raises ModuleNotFoundError if no peer is installed.
    """
    plan, findings = PLANS[size], Findings()
    installed = find_all({way.peer for way in ways}, cache, findings, say)
    measurable = [way for way in ways if way.peer in installed]
    over_http = [way for way in measurable if way.peer.load is Load.HTTP]
    for _ in range(plan.rounds):
        _take(OURS, lambda: [our_runs(plan)], findings, say)
        for way in over_http:
            _measure(way, installed[way.peer], plan, findings, say)
    for way in measurable:
        if way not in over_http:
            _measure(way, installed[way.peer], plan, findings, say)
    return to_answer(measurable, findings)


def find_all(peers: Iterable[Peer], cache: Path, findings: Findings, say: Say) -> dict[Peer, Installed]:
    """Return those that can be measured, and note what to type for the others."""
    installed: dict[Peer, Installed] = {}
    for peer in sorted(peers, key=lambda each: each.name):
        found = _find(peer, cache, say)
        if isinstance(found, Missing):
            say(f"{peer.name} is not measured; install it with: {found.command}")
            findings.missing[peer.name] = found.command
        else:
            installed[peer] = found
            findings.versions |= found.environment.versions
    if not installed:
        raise ModuleNotFoundError("no peer is installed", name="restate-sdk")
    return installed


def _find(peer: Peer, cache: Path, say: Say) -> Installed | Missing:
    environment = environments.find(peer, cache)
    if isinstance(environment, Missing):
        return environment
    if peer is not RESTATE:
        return Installed(environment, None)
    server = environments.restate_server(cache, say)
    return server if isinstance(server, Missing) else Installed(environment, server)


def _measure(way: Way, installed: Installed, plan: Plan, findings: Findings, say: Say) -> None:
    arguments = installed.arguments(way)
    _take(way.name, lambda: measure(way, installed.environment, arguments, plan), findings, say)


def _take(name: str, measuring: Callable[[], list[Sample]], findings: Findings, say: Say) -> None:
    samples = measuring()
    findings.samples.setdefault(name, []).extend(samples)
    for each in samples:
        say(
            f"{name}, {each.in_flight} in flight: {each.runs_per_second:.1f} runs/s at {each.cpu_ms_per_run:.2f} CPU-ms"
            f" ({each.others_cores:g} cores used by others)"
        )


def to_answer(ways: Sequence[Way], findings: Findings) -> Answer:
    """Return the figures, rates first."""
    ours = best(findings.samples[OURS])
    measured = [(way, best(findings.samples[way.name])) for way in ways]
    note = "; ".join(f"{peer} was not measured: {command}" for peer, command in findings.missing.items())
    rates = [_rate(way, ours, peer) for way, peer in measured]
    costs = [_cost(way, ours, peer) for way, peer in measured]
    names = (OURS, *(way.name for way, _ in measured))
    bests = (ours, *(peer for _, peer in measured))
    return Answer(
        "peers",
        (Figure(f"runs_per_second, {AGENTS} agents", ours.rate, "runs/s", note=note), *rates, *costs),
        (
            _plot("Durable runs a second", "runs/s", names, [each.rate for each in bests]),
            _plot("CPU-milliseconds a run", "ms", names, [each.cpu_ms for each in bests]),
        ),
        {
            "versions": findings.versions,
            "missing": findings.missing,
            "samples": {name: [_as_json(each) for each in samples] for name, samples in findings.samples.items()},
            "owlclaw_is": ABOUT,
        },
    )


@dataclass(frozen=True, slots=True)
class Best:
    """The medians of the quiet rounds, with the number of runs at the same time that gives the higher rate."""

    rate: float
    cpu_ms: float
    in_flight: int
    others_cores: float


def quiet(samples: Sequence[Sample]) -> list[Sample]:
    """Return those in which others used hardly more of the machine than in the one in which they used least."""
    least = min(each.others_cores for each in samples)
    return [each for each in samples if each.others_cores <= least + QUIET_CORES]


def best(samples: Sequence[Sample]) -> Best:
    """Return it; raises ValueError without samples."""
    by_in_flight: dict[int, list[Sample]] = {}
    for sample in samples:
        by_in_flight.setdefault(sample.in_flight, []).append(sample)
    medians = [
        Best(
            statistics.median(each.runs_per_second for each in group),
            statistics.median(each.cpu_ms_per_run for each in group),
            in_flight,
            max(each.others_cores for each in group),
        )
        for in_flight, group in ((in_flight, quiet(group)) for in_flight, group in by_in_flight.items())
    ]
    return max(medians, key=lambda each: each.rate)


def _rate(way: Way, ours: Best, peer: Best) -> Figure:
    times = way.peer.at_least
    goal = "" if times is None else "ahead of the baseline" if times == 1 else f"at least {times:g} times the baseline"
    met = None if times is None else ours.rate > peer.rate if times == 1 else ours.rate >= times * peer.rate
    name = f"runs_per_second against {way.name}"
    return Figure(name, ours.rate, "runs/s", peer.rate, _about(way, peer), goal, met, _noise(ours, peer))


def _cost(way: Way, ours: Best, peer: Best) -> Figure:
    name, about = f"cpu_ms_per_run against {way.name}", _about(way, peer)
    return Figure(name, ours.cpu_ms, "ms", peer.cpu_ms, about, note=_noise(ours, peer))


def _about(way: Way, peer: Best) -> str:
    return f"{way.about}; {peer.in_flight} in flight"


def _noise(ours: Best, peer: Best) -> str:
    return f"others used {ours.others_cores:g} cores beside OwlClaw and {peer.others_cores:g} beside the peer"


def _plot(title: str, unit: str, names: tuple[str, ...], values: Sequence[float]) -> Plot:
    return Plot(title, "runtime", unit, (Series(title, names, tuple(values)),))


def _as_json(sample: Sample) -> Mapping[str, object]:
    rates = {"runs_per_second": sample.runs_per_second, "cpu_ms_per_run": sample.cpu_ms_per_run}
    return {**asdict(sample), **rates}
