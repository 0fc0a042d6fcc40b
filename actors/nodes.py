"""The machines of the Ray cluster, and what must hold of them before a runtime starts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import ray
from msgspec import Struct
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.remote import here
from owlclaw_ray.errors import ConfigurationError, Problem

_TOOL_RESOURCES = {"tool_slots": 8, "quick_slots": 2, "memory_slots": 4, "state_slots": 4}
"""What every node must offer, and how much of it, for example."""
_CGROUP = Path("/sys/fs/cgroup")


class Node(Struct, frozen=True):
    """A living machine of the cluster."""

    node_id: str
    host: str
    resources: frozenset[str]
    cpus: float = 1.0
    """1 for one that offers Ray none, so that it counts for something."""
    bare: bool = False
    """It offers Ray no CPU."""


def living_nodes() -> tuple[Node, ...]:
    """Return the machines that are there now, by id. It blocks."""
    return tuple(node_of(each) for each in sorted(_told(), key=lambda node: str(node["NodeID"])) if each["Alive"])


def own_resources() -> Mapping[str, float]:
    """Return what this process's node offers, by the names that Ray has for it. It blocks."""
    mine: Mapping[str, float] = next((each["Resources"] for each in _told() if each["NodeID"] == here()), {})
    return mine


def lost_hosts() -> frozenset[str]:
    """Return the names of machines that were there and are not now, as far as Ray remembers them. It blocks."""
    nodes = [(each["NodeManagerHostname"], each["Alive"]) for each in _told()]
    return frozenset(host for host, _ in nodes) - {host for host, alive in nodes if alive}


def _told() -> Sequence[Mapping[str, Any]]:
    """Return what Ray tells of the machines that it remembers, also of those that are gone."""
    told: Sequence[Mapping[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return told


def on_node(node_id: str, question: Callable[..., Any], *arguments: object) -> ray.ObjectRef[Any]:
    """Have a worker of that node call the function; return what is there when it has. It takes no CPU from Ray's accounts."""
    place = NodeAffinitySchedulingStrategy(node_id, soft=False)
    task: Any = ray.remote(question).options(num_cpus=0, max_retries=1, scheduling_strategy=place)
    answer: ray.ObjectRef[Any] = task.remote(*arguments)
    return answer


def node_of(told: Mapping[str, Any]) -> Node:
    """Return a machine as Ray tells of it; it leaves out resources of which there are none."""
    resources = told["Resources"]
    cpus = resources.get("CPU", 0.0)
    return Node(told["NodeID"], told["NodeManagerHostname"], frozenset(resources), max(1.0, cpus), bare=not cpus)


def is_connected() -> bool:
    """Return whether the cluster answers and counts this process's node among the living. It blocks, for long if it does not answer."""
    return here() in {node.node_id for node in living_nodes()}


def writer_name() -> str:
    """Return the name of the ledger chains that this node's Keeper writes: the machine's, as long as it has one Ray node only."""
    own = next(node for node in living_nodes() if node.node_id == here())
    alone = sum(node.host == own.host for node in living_nodes()) == 1
    return f"keeper@{own.host}" if alone else f"keeper@{own.host}-{own.node_id[:8]}"


def cluster_name(store_url: str) -> str:
    """Return what the lease of the store names this Ray cluster, another name after each start of its head; empty for a store that
    no other cluster can use.
    """
    if store_url.startswith("sqlite"):
        return ""
    node: Any = ray._private.worker.global_worker.node  # noqa: SLF001 - no public name
    return f"{node.session_name}@{ray.get_runtime_context().gcs_address}"


def check_nodes(store_url: str) -> int:
    """Return the number of machines; raises ConfigurationError if a runtime with this store cannot work on them."""
    nodes, problems = living_nodes(), []
    if len(nodes) > 1 and store_url.startswith("sqlite"):
        what = f"is an SQLite file, and the Ray cluster has {len(nodes)} nodes: only one machine can write it"
        fix = "set it to postgresql://user:password@host/database"
        problems.append(Problem("store_url", what, fix))
    for node in nodes:
        missing = sorted(_TOOL_RESOURCES.keys() - node.resources)
        if missing:
            what = f"node {node.host} does not offer {', '.join(missing)}, without which no tool can run there"
            problems.append(
                Problem(
                    "ray.address",
                    what,
                    f"start it with: owlclaw node …, or ray start --resources='{json.dumps(_TOOL_RESOURCES)}' …",
                )
            )
    if problems:
        raise ConfigurationError(problems)
    return len(nodes)


async def request_nodes(bundles: Sequence[Mapping[str, float]]) -> None:
    """See growth.Request: Ray's autoscaler is asked; without one in the cluster nothing comes of it."""
    from ray.autoscaler.sdk import request_resources  # which loads what a cloud needs

    await asyncio.to_thread(request_resources, bundles=[dict(each) for each in bundles])


def used_memory() -> float:
    """Return the used share, from 0 to 1, of the memory that this machine, or this container, has."""
    machine = psutil.virtual_memory()
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None and limit < machine.total:
        return max(0.0, used - _reclaimable()) / limit
    return float(machine.percent) / 100


def _reclaimable() -> float:
    """Return the bytes of the container's page cache that the kernel gives back when they are needed."""
    try:
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
    except OSError:
        return 0.0
    return float(next((line.split()[1] for line in lines if line.startswith("inactive_file ")), 0))


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
