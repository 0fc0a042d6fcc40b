"""What an empty Ray actor costs, on a running system's cluster, and what its agent actors take beside it.

`python -m benchmarks.raw_actors <cluster> <folder> <pid of the system> <actors> <agents>`; see `benchmarks.attached`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks import attached
from benchmarks.processes import ProcessTree
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.trigger import Trigger, TriggerKind

AGENT_ACTOR = "ray::AgentActor"
_WAIT_SECONDS = 60.0


class Empty:
    """Does nothing."""

    async def here(self) -> bool:
        """Return as soon as the actor lives."""
        return True


def pss_of_each(tree: ProcessTree, title: str, is_meant: Callable[[int], bool] = lambda _: True) -> list[int]:
    """Return the memory (PSS) of each living process with that title whose number is meant."""
    found = []
    for process in tree.processes():
        try:
            command = process.cmdline()
            if command and command[0].startswith(title) and is_meant(process.pid):
                found.append(int(process.memory_full_info().pss))
        except psutil.Error:
            continue
    return found


def pids_of_hosts() -> set[int]:
    """Return the process numbers of the agent actors that hold an agent now: those made ahead, which hold none, are lighter."""
    import ray

    from actors.cluster import NAMESPACE
    from actors.remote import ROOT, NamedActor

    actors: list[Any] = [actor for _, actor in NamedActor(ROOT, NAMESPACE).call_now(lambda root: root.hosts())]
    return {ray.get(actor.__ray_call__.remote(_pid)) for actor in actors if ray.get(actor.hosted.remote())}


def _pid(_actor: object) -> int:
    return os.getpid()


async def run_dedicated(folder: Path, agents: int) -> None:
    """Give each of so many dedicated agents a run and wait for its end: they are resident and idle then."""
    from actors.runtime import ray_runtime
    from owlclaw_ray.settings import load_settings
    from serve.runtime_plan import plan_of

    runtime = ray_runtime(plan_of(load_settings(folder, {})))
    trigger = Trigger(TriggerKind.API)
    for number in range(agents):
        agent = AgentRef.parse(f"dedicated:memory{number}")
        accepted = await runtime.submit(agent, trigger)
        end = time.monotonic() + _WAIT_SECONDS
        while not (await runtime.run(agent.tenant, accepted.run_id)).status.final:
            if time.monotonic() > end:
                raise TimeoutError(f"{agent} did not finish within {_WAIT_SECONDS:.0f} s")
            await asyncio.sleep(0.05)


def main(address: str, folder: str, pid: int, actors: int, agents: int) -> None:
    """Make the actors one after another, then look at the memory of all."""
    import ray

    attached.attach(address)
    tree = ProcessTree(psutil.Process(pid))
    kind = ray.remote(Empty).options(num_cpus=0)
    cpu, seconds, alive = tree.cpu_seconds(), [], []
    for _ in range(actors):
        started = time.perf_counter()
        actor: Any = kind.remote()
        ray.get(actor.here.remote())
        seconds.append(time.perf_counter() - started)
        alive.append(actor)
    cpu = tree.cpu_seconds() - cpu
    attached.tell(f"{actors} empty actors, {statistics.median(seconds):.1f} s each")
    asyncio.run(run_dedicated(Path(folder), agents))
    hosts = pids_of_hosts()
    attached.found(
        {
            "seconds": seconds,
            "cpu_seconds_each": cpu / actors,
            "empty_pss": pss_of_each(tree, f"ray::{Empty.__name__}"),
            "agent_pss": pss_of_each(tree, AGENT_ACTOR, hosts.__contains__),
            "spare_pss": pss_of_each(tree, AGENT_ACTOR, lambda pid: pid not in hosts),
        }
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
