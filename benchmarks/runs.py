"""What a durable run costs: model → built-in tool as a Ray task → model, submitted over HTTP, scripted model without latency.

CPU is that of all processes of the system; the load generator's is not counted. The rate counts from the first trigger to the last
outcome.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time

import httpx
import orjson

from benchmarks.load import post_for
from benchmarks.system import RunningSystem, running_system

BODY = b'{"payload": {"price": 7}}'


def unfinished(system: RunningSystem) -> int:
    """Return how many runs are queued or running, up to a page of each."""
    count = 0
    for status in ("queued", "running"):
        page = httpx.get(f"{system.url}/v1/runs", params={"status": status, "limit": 1}, timeout=30)
        count += len(page.json()["runs"])
    return count


def measure(system: RunningSystem, agents: int, connections: int, seconds: float) -> dict[str, float]:
    """Return runs per second and CPU-milliseconds per run under this load."""
    paths = (f"/v1/agents/bench:{number % agents}/triggers" for number in itertools.count())
    cpu, started = system.cpu_seconds(), time.monotonic()
    load = asyncio.run(post_for(system.url, paths, body=BODY, connections=connections, seconds=seconds))
    while unfinished(system):
        time.sleep(0.2)
    wall = time.monotonic() - started
    latencies = sorted(load.latencies)
    return {
        "runs": load.accepted,
        "refused": load.refused,
        "broken": load.broken,
        "runs_per_second": round(load.accepted / wall, 1),
        "cpu_ms_per_run": round(1_000 * (system.cpu_seconds() - cpu) / max(load.accepted, 1), 2),
        "accept_p95_ms": round(1_000 * latencies[int(0.95 * len(latencies))], 1),
    }


def main() -> None:
    """Print one JSON line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    agents = {"bench": {"model": "scripted:tool_once", "isolation": "shared"}}
    with running_system(agents) as system:
        measure(system, options.agents, 4, 4.0)
        for _ in range(2):
            result = measure(system, options.agents, options.connections, options.seconds)
            print(orjson.dumps({"agents": options.agents, "connections": options.connections, **result}).decode())


if __name__ == "__main__":
    main()
