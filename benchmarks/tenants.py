"""What one tenant's flood is to another: how long the runs of one take over HTTP, while another has a hundred times its usual load.

Two tenants trigger agents of one definition at random times, each with its own key; a run asks its model twice, a second each, and
calls a tool in between. Of one tenant the wait for the outcome is taken, since the trigger was due. The other one first sends little, then
a hundred times as much, which is more than there are model calls at once: its runs queue up. What moves then is what places, model calls,
tool slots, commits and the cores of the machine share.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice, takewhile

from benchmarks import load
from benchmarks.distribution import percentile
from benchmarks.load import LoadResult, post_at, post_for
from benchmarks.measuring import BODY, CONNECTIONS, agent_paths, drain, some, unfinished_runs
from benchmarks.meter import Meter, disturbance
from benchmarks.processes import ProcessTree
from benchmarks.question import Answer, Figure, Say, Size
from benchmarks.system import running_system
from owlclaw_ray.client import SyncClient

TITLE = "One tenant's runs while another has a hundred times its load."
SECONDS = {Size.SMOKE: 20.0, Size.FULL: 90.0}
TIMES = 100
MODEST, GREEDY = 4.0, 1.0
"""Triggers a second."""
AGENTS = 200
"""Of each tenant."""
_MODEL = (
    '{"rules": [{"turns": [{"latency": 1.0, "tool_calls": [{"name": "log_decision", "arguments": {"reasoning": "Nothing"}}]},'
    ' {"latency": 1.0, "text": "done"}]}]}'
)
_WAIT = "?wait=60"
_MOST = 1.2


@dataclass(frozen=True, slots=True)
class Served:
    """What became of the modest tenant's triggers, beside a load of the other one."""

    runs: int
    refused: int
    broken: int
    p50_ms: float
    p99_ms: float
    greedy_a_second: float
    """Triggers of the other tenant that were accepted."""
    greedy_refused: int
    cpu_seconds: dict[str, float]
    """By process, the most first."""
    busy_cores: float
    others_cores: float


def answer(size: Size, say: Say) -> Answer:
    """Measure the modest tenant beside a small load, and beside a hundred times that."""
    seconds = SECONDS[size]
    agents: dict[str, dict[str, object]] = {"bench": {"model": "scripted:second.yaml", "isolation": "shared"}}
    with running_system(agents, files={"agents/bench/second.yaml": _MODEL}) as system:
        with SyncClient(system.url, timeout=120) as client:
            first = client.create_key("bench", ["admin"])["key"]
        with SyncClient(system.url, api_key=first, timeout=120) as client:
            keys = [_tenant(client, name) for name in ("modest", "greedy")]
        for key in keys:
            paths = islice(agent_paths(AGENTS), AGENTS)
            load.run(post_for(system.url, paths, body=BODY, connections=CONNECTIONS, key=key))
        drain(unfinished_runs(system.store))
        system.settle()
        usual = _beside(system.url, system.tree, keys, GREEDY, seconds)
        say(f"beside the usual load: {_said(usual)}")
        flood = _beside(system.url, system.tree, keys, TIMES * GREEDY, seconds)
        say(f"beside {TIMES} times that: {_said(flood)}")
        system.kill()
    note = disturbance(max(usual.others_cores, flood.others_cores))
    figures = (
        Figure(
            f"p99_ms of a run, beside {TIMES} times the load of another tenant",
            flood.p99_ms,
            "ms",
            baseline=usual.p99_ms,
            baseline_is="the same beside that tenant's usual load",
            goal=f"at most {_MOST} of the baseline",
            met=flood.p99_ms <= _MOST * usual.p99_ms,
            note=note,
        ),
        Figure(
            f"p50_ms of a run, beside {TIMES} times the load of another tenant",
            flood.p50_ms,
            "ms",
            baseline=usual.p50_ms,
            baseline_is="the same beside that tenant's usual load",
            note=note,
        ),
    )
    return Answer("tenants", figures, details={"usual": asdict(usual), "flood": asdict(flood)})


def _tenant(client: SyncClient, name: str) -> str:
    """Make a tenant; return a key of it."""
    client.create_tenant(name)
    return client.create_key("bench", ["operator"], tenant=name)["key"]


def _beside(url: str, tree: ProcessTree, keys: list[str], greedy: float, seconds: float) -> Served:
    """Have both tenants trigger runs, the other one at that rate."""
    modest_key, greedy_key = keys
    waited = (f"{path}{_WAIT}" for path in agent_paths(AGENTS))

    async def both() -> tuple[LoadResult, LoadResult]:
        return await asyncio.gather(
            post_at(url, waited, body=BODY, connections=CONNECTIONS, times=_times(MODEST, seconds, 1), key=modest_key),
            post_at(
                url,
                agent_paths(AGENTS),
                body=BODY,
                connections=CONNECTIONS,
                times=_times(greedy, seconds, 2),
                key=greedy_key,
            ),
        )

    meter = Meter(tree)
    modest, other = load.run(both())
    spent = meter.read()
    latencies = some(modest).latencies
    return Served(
        runs=modest.accepted,
        refused=modest.refused,
        broken=modest.broken + other.broken,
        p50_ms=1_000 * percentile(latencies, 50),
        p99_ms=1_000 * percentile(latencies, 99),
        greedy_a_second=other.accepted / seconds,
        greedy_refused=other.refused,
        cpu_seconds=spent.cpu_seconds,
        busy_cores=sum(spent.cpu_seconds.values()) / spent.wall_seconds,
        others_cores=spent.others_cores,
    )


def _times(a_second: float, seconds: float, seed: int) -> Iterator[float]:
    """Yield random times at which so many come a second on average."""
    dice = random.Random(seed)  # noqa: S311 - a load, not a secret

    def following() -> Iterator[float]:
        at = 0.0
        while True:
            at += dice.expovariate(a_second)
            yield at

    return takewhile(lambda at: at < seconds, following())


def _said(found: Served) -> str:
    return (
        f"{found.runs} runs, p50 {found.p50_ms:.0f}, p99 {found.p99_ms:.0f} ms, {found.refused} refused, {found.broken} broken; "
        f"the other tenant {found.greedy_a_second:.0f}/s, {found.busy_cores:.2f} cores{disturbance(found.others_cores)}"
    )
