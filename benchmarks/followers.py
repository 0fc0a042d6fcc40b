"""What followers cost: event streams that are open and hear nothing, how soon an event reaches its follower, and who waits for them.

Every follower has a run of its own, which waits behind one whose model takes an hour, so that nothing happens unless it is made to
happen. Measured are the CPU of all processes of the system over a while with no stream and with all of them (comments that keep
them open included); the time from an event's `at`, which is taken before its commit, to its arrival at the client, while followed
runs are cancelled one after another; triggers and /healthz, one after another, while streams are opened in one burst and while all
are open; and what becomes of streams that are too many. The clients are a process of their own on the same machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

from benchmarks.distribution import percentile
from benchmarks.measuring import joined
from benchmarks.meter import Meter, disturbance
from benchmarks.processes import clean_environment
from benchmarks.question import Answer, Figure, Say, Size
from benchmarks.stream_clients import Heard, Opened
from benchmarks.system import RunningSystem, running_system
from owlclaw_ray.client import SyncClient
from serve.connections import connections

TITLE = "Event streams: idle cost, delay of an event, triggers beside them."
_GOAL = 10_000
_AGENTS = 100
_BATCH = 500
_TOO_MANY = 200
_EVENTS_A_SECOND = 20
_HOUR = '{"rules": [{"turns": [{"text": "at last", "latency": 3600}]}]}'


@dataclass(frozen=True, slots=True)
class _Amounts:
    followers: int
    burst: int
    """Streams that are opened at once."""
    idle_seconds: float
    events: int


def _amounts(size: Size) -> _Amounts:
    if size is Size.SMOKE:
        return _Amounts(followers=500, burst=200, idle_seconds=10.0, events=60)
    # The limit of open files may be too low for the goal.
    return _Amounts(followers=connections(_GOAL).streams, burst=2_000, idle_seconds=60.0, events=400)


@dataclass
class _Beside:
    """How long requests took that came one after another beside something else, in seconds."""

    triggers: list[float] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    failed: int = 0


def answer(size: Size, say: Say) -> Answer:
    """Open followers, leave them idle, give them events, and ask for more of them than there may be."""
    amounts = _amounts(size)
    agents: dict[str, dict[str, object]] = {
        "bench": {"model": "scripted:tool_once", "isolation": "shared"},
        "patient": {
            "model": "scripted:hour.yaml",
            "isolation": "shared",
            "limits": {"model_timeout": 7_200, "run_timeout": 7_200},
        },
    }
    environment = {"OWLCLAW_HTTP__STREAMS": str(amounts.followers)}
    with (
        running_system(agents, files={"agents/patient/hour.yaml": _HOUR}, environment=environment) as system,
        SyncClient(system.url, timeout=60) as client,
        _clients(system.url) as clients,
    ):
        system.settle()
        say(f"{amounts.followers} runs are queued behind runs that take an hour")
        runs = _queued_runs(client, amounts.followers + _TOO_MANY)
        system.settle()
        before = _idle(system, amounts.idle_seconds)
        say(f"idle without followers: {before.percent:.2f} % of a core")
        memory = system.pss_bytes()
        with _beside(system.url) as beside_burst:
            burst = clients.open(runs[: amounts.burst])
        say(f"{amounts.burst} streams at once: {_said(burst)}; beside them {_said_beside(beside_burst)}")
        opened = [clients.open(some) for some in _batches(runs[amounts.burst : amounts.followers])]
        system.settle()
        clients.heard()
        with_all = _idle(system, amounts.idle_seconds)
        memory = system.pss_bytes() - memory
        comments = clients.heard().comments / with_all.seconds
        say(f"idle with them: {with_all.percent:.2f} % of a core, {comments:.0f} comments/s")
        with _beside(system.url) as beside_all:
            _cancel(client, runs[: amounts.events])
            heard = clients.heard()
            clients.open(runs[amounts.followers - amounts.events : amounts.followers])
            too_many = clients.open(runs[amounts.followers :])
        say(f"{len(heard.latencies)} events; beside them {_said_beside(beside_all)}")
        system.kill()
    streams = burst.answered_after.get(200, []) + [each for some in opened for each in some.answered_after.get(200, [])]
    refused = too_many.answered_after.get(503, [])
    cost = with_all.percent - before.percent
    p95 = 1_000 * percentile(heard.latencies, 95)
    figures = (
        Figure(
            "streams open at once", len(streams), "", goal=f"{amounts.followers}", met=len(streams) == amounts.followers
        ),
        Figure(
            "idle cost of all of them",
            cost,
            "% of a core",
            baseline=before.percent,
            baseline_is="the same system without a stream",
            goal="under 2",
            met=cost < 2,
            note=disturbance(max(before.others_cores, with_all.others_cores)),
        ),
        Figure("event to client p50", 1_000 * percentile(heard.latencies, 50), "ms"),
        Figure("event to client p95", p95, "ms", goal="at most 50", met=p95 <= 50),
        _figure("trigger p95 beside all of them", beside_all.triggers, 200),
        _figure("/healthz p95 beside all of them", beside_all.probes, 200),
        _figure(f"trigger p95 while {amounts.burst} are opened at once", beside_burst.triggers, 200),
        _figure(f"/healthz p95 while {amounts.burst} are opened at once", beside_burst.probes, 200),
        Figure(
            "a stream too many refused, p95",
            1_000 * percentile(refused or [0.0], 95),
            "ms",
            note=f"{len(refused)} refused",
        ),
        Figure("memory of a stream", memory / amounts.followers / 1_000, "KB"),
    )
    details = {
        "burst": {status: len(each) for status, each in burst.answered_after.items()},
        "burst_seconds": max(each for some in burst.answered_after.values() for each in some),
        "too_many": {status: len(each) for status, each in too_many.answered_after.items()},
        "failed_beside": beside_burst.failed + beside_all.failed,
        "comments_per_second": comments,
        "idle_before": asdict(before),
        "idle_with_all": asdict(with_all),
    }
    return Answer("followers", figures, details=details)


def _figure(name: str, seconds: Sequence[float], goal: float) -> Figure:
    p95 = 1_000 * percentile(seconds, 95)
    return Figure(
        name,
        p95,
        "ms",
        goal=f"under {goal:.0f}",
        met=p95 < goal,
        note=f"{len(seconds)} of them, worst {1_000 * max(seconds):.0f} ms",
    )


def _said(opened: Opened) -> str:
    return joined(
        *(
            f"{len(each)} answered {status or 'not at all'} within {max(each):.1f} s"
            for status, each in opened.answered_after.items()
        )
    )


def _said_beside(beside: _Beside) -> str:
    triggers, probes = (1_000 * percentile(each, 95) for each in (beside.triggers, beside.probes))
    return joined(f"triggers p95 {triggers:.0f} ms", f"/healthz p95 {probes:.0f} ms", f"{beside.failed} failed")


@dataclass(frozen=True, slots=True)
class _Idle:
    percent: float
    """Of a core."""
    seconds: float
    cpu_seconds: dict[str, float]
    others_cores: float


def _idle(system: RunningSystem, seconds: float) -> _Idle:
    meter = Meter(system.tree)
    time.sleep(seconds)
    spent = meter.read()
    percent = 100 * sum(spent.cpu_seconds.values()) / spent.wall_seconds
    return _Idle(percent, spent.wall_seconds, spent.cpu_seconds, spent.others_cores)


def _queued_runs(client: SyncClient, number: int) -> list[str]:
    first = [f"patient:{at}" for at in range(_AGENTS)]
    agents = first + [first[at % _AGENTS] for at in range(number)]
    accepted = [
        each["accepted"]
        for some in _batches(agents)
        for each in client.submit_batch([{"agent": agent} for agent in some])
    ]
    return [each["run_id"] for each in accepted[_AGENTS:] if each is not None]


def _batches(every: Sequence[str]) -> Iterator[Sequence[str]]:
    return (every[at : at + _BATCH] for at in range(0, len(every), _BATCH))


def _cancel(client: SyncClient, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        client.cancel(run_id)
        time.sleep(1 / _EVENTS_A_SECOND)
    time.sleep(1)


@contextmanager
def _beside(url: str) -> Iterator[_Beside]:
    """Trigger and probe one after another until the block ends."""
    beside, over = _Beside(), threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            while not over.wait(0.05):
                for path, times in (("/v1/agents/bench/triggers", beside.triggers), ("/healthz", beside.probes)):
                    began = time.monotonic()
                    try:
                        found = client.get(path) if times is beside.probes else client.post(path)
                        beside.failed += not found.is_success
                    except httpx.TransportError:
                        beside.failed += 1
                    times.append(time.monotonic() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield beside
        over.wait(0.5)
    finally:
        over.set()
        thread.join()


class _Clients:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def open(self, run_ids: Sequence[str]) -> Opened:
        found = self._ask(list(run_ids))["answered_after"]
        return Opened({int(status): seconds for status, seconds in found.items()})

    def heard(self) -> Heard:
        return Heard(**self._ask([]))

    def _ask(self, run_ids: list[str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(run_ids) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def _clients(url: str) -> Iterator[_Clients]:
    command = [sys.executable, "-m", "benchmarks.stream_clients", url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment()
    ) as process:
        try:
            yield _Clients(process)
        finally:
            process.kill()
