"""How many triggers a second are accepted (202: committed), against an echo under the same flags that answers 202 and keeps nothing.

Runs compete with their own acceptance for the cores, so a rate taken while they run says how the cores were shared, not what
acceptance costs. It is therefore measured twice on the same 1,000 agents. *Runs deferred*: every agent is in a run whose model
takes an hour, so triggers are validated, committed and announced to the agent's host as ever, but queue behind it: acceptance
alone, which the goal is about. *Runs competing*: the same with a model that replies at once and nothing held back, as a burst
arrives at a busy machine. CPU for an accepted trigger is that of all processes, the load generator's not in it.

In the end a key is made, and the first of them is measured again with it: nobody is let in without one then. Each trigger costs a little
more than those before it, for queues that are longer, and two measurements differ by more than what a key can cost: so the check itself is
measured alone, too (`key_checks`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from benchmarks import load
from benchmarks.child import running
from benchmarks.distribution import percentile
from benchmarks.key_checks import key_check_ms
from benchmarks.load import post_for
from benchmarks.measuring import BODY, CONNECTIONS, agent_paths, drain, joined, some, unfinished_runs
from benchmarks.meter import Meter, disturbance
from benchmarks.processes import ProcessTree
from benchmarks.question import Answer, Figure, Say, Size
from benchmarks.system import running_system
from benchmarks.wave import trigger_each
from owlclaw_ray.client import SyncClient

TITLE = "Triggers accepted a second over 64 connections, 1,000 agents."
AGENTS = 1_000
SECONDS = {Size.SMOKE: 3.0, Size.FULL: 8.0}
_WARM_SECONDS = 2.0
_MOST_MS_OF_A_CHECK = 0.05
_HOUR = '{"rules": [{"turns": [{"text": "at last", "latency": 3600}]}]}'
_ECHO = "a Serve application that answers 202 and keeps nothing"


@dataclass(frozen=True, slots=True)
class Accepted:
    """What one load did."""

    accepted: int
    refused: int
    broken: int
    wall_seconds: float
    p50_ms: float
    p95_ms: float
    cpu_seconds: dict[str, float]
    """By process, the most first."""
    generator_cpu_seconds: float
    others_cores: float
    """See Spent.others_cores."""

    @property
    def rate(self) -> float:
        """Accepted a second."""
        return self.accepted / self.wall_seconds

    @property
    def cpu_ms(self) -> float:
        """For one accepted."""
        return 1_000 * sum(self.cpu_seconds.values()) / self.accepted


def answer(size: Size, say: Say) -> Answer:
    """Measure the echo, OwlClaw, and the echo again (in full size)."""
    seconds = SECONDS[size]
    echoes = [_echo(seconds, say)]
    competing, deferred, keyed = _owlclaw(seconds, say)
    check = key_check_ms()
    say(f"checking a key: {1_000 * check:.1f} CPU-µs")
    if size is Size.FULL:
        echoes.append(_echo(seconds, say))
    echo = statistics.median(each.rate for each in echoes)
    figures = (
        Figure(
            "accepted_per_second, runs deferred",
            deferred.rate,
            "/s",
            baseline=echo,
            baseline_is=_ECHO,
            goal="at least 0.5 of the baseline",
            met=deferred.rate >= 0.5 * echo,
            note=disturbance(max(each.others_cores for each in (deferred, *echoes))),
        ),
        Figure(
            "accepted_per_second, runs competing",
            competing.rate,
            "/s",
            baseline=echo,
            baseline_is=_ECHO,
            note=disturbance(competing.others_cores),
        ),
        Figure(
            "cpu_ms_per_accepted, runs deferred",
            deferred.cpu_ms,
            "ms",
            baseline=statistics.median(each.cpu_ms for each in echoes),
            baseline_is=_ECHO,
        ),
        Figure(
            "accept_p95_ms, runs deferred",
            deferred.p95_ms,
            "ms",
            baseline=statistics.median(each.p95_ms for each in echoes),
            baseline_is=_ECHO,
        ),
        Figure(
            "cpu_ms_per_accepted, runs deferred, with a key",
            keyed.cpu_ms,
            "ms",
            baseline=deferred.cpu_ms,
            baseline_is="the same without a key, before there was one",
            note=disturbance(max(keyed.others_cores, deferred.others_cores)),
        ),
        Figure("cpu_ms_per_key_check", check, "ms", goal="at most 0.05", met=check <= _MOST_MS_OF_A_CHECK),
    )
    details = {
        "echo": [asdict(each) for each in echoes],
        "deferred": asdict(deferred),
        "competing": asdict(competing),
        "keyed": asdict(keyed),
    }
    return Answer("ingress", figures, details=details)


def _echo(seconds: float, say: Say) -> Accepted:
    with running("benchmarks.echo") as echo:
        echo.tree.settle()
        _accept(echo.url, echo.tree, agent_paths(AGENTS), _WARM_SECONDS)
        found = _accept(echo.url, echo.tree, agent_paths(AGENTS), seconds)
        echo.tree.kill()
    say(f"echo: {_said(found)}")
    return found


def _owlclaw(seconds: float, say: Say) -> tuple[Accepted, Accepted, Accepted]:
    agents: dict[str, dict[str, object]] = {
        "bench": {"model": "scripted:tool_once", "isolation": "shared"},
        "patient": {
            "model": "scripted:hour.yaml",
            "isolation": "shared",
            "limits": {"model_timeout": 7_200, "run_timeout": 7_200},
        },
    }
    with running_system(agents, files={"agents/patient/hour.yaml": _HOUR}) as system:
        system.settle()
        unfinished = unfinished_runs(system.store)
        _accept(system.url, system.tree, agent_paths(AGENTS), _WARM_SECONDS)
        drain(unfinished)
        competing = _accept(system.url, system.tree, agent_paths(AGENTS), seconds)
        say(f"OwlClaw, runs competing: {_said(competing)}, {unfinished()} of them not run at the end")
        drain(unfinished)
        trigger_each(system.url, [f"patient:{number}" for number in range(AGENTS)])
        system.settle()
        deferred = _accept(system.url, system.tree, agent_paths(AGENTS, "patient"), seconds)
        say(f"OwlClaw, runs deferred: {_said(deferred)}")
        with SyncClient(system.url, timeout=120) as client:
            key = client.create_key("bench", ["runs:write"])["key"]
        _accept(system.url, system.tree, agent_paths(AGENTS, "patient"), _WARM_SECONDS, key)
        keyed = _accept(system.url, system.tree, agent_paths(AGENTS, "patient"), seconds, key)
        say(f"the same with a key: {_said(keyed)}")
        system.kill()
    return competing, deferred, keyed


def _accept(url: str, tree: ProcessTree, paths: Iterator[str], seconds: float, key: str = "") -> Accepted:
    meter = Meter(tree)
    result = load.run(post_for(url, paths, body=BODY, connections=CONNECTIONS, seconds=seconds, key=key))
    spent = meter.read()
    return Accepted(
        accepted=result.accepted,
        refused=result.refused,
        broken=result.broken,
        wall_seconds=spent.wall_seconds,
        p50_ms=1_000 * percentile(some(result).latencies, 50),
        p95_ms=1_000 * percentile(result.latencies, 95),
        cpu_seconds=spent.cpu_seconds,
        generator_cpu_seconds=spent.generator_cpu_seconds,
        others_cores=spent.others_cores,
    )


def _said(found: Accepted) -> str:
    return joined(
        f"{found.rate:.0f}/s at {found.cpu_ms:.2f} CPU-ms, p95 {found.p95_ms:.0f} ms",
        f"{found.refused} refused" if found.refused else "",
        disturbance(found.others_cores),
    )
