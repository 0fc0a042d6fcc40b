"""The nodes of the cluster, asked when somebody wants to know of them."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import IntEnum
from typing import Any

import ray
from msgspec import Struct
from msgspec.structs import replace
from ray._private.state import available_resources_per_node, state  # no public name

from actors.plan import RuntimePlan, ToolSlots
from actors.remote import (
    DIRECTORY,
    EXPORTER,
    GATEWAY,
    KEEPER,
    MCP_POOL,
    ROOT,
    SCHEDULER,
    NamedActor,
    NamedRoot,
    PartName,
    find,
    in_time,
    registered,
)
from actors.tool_task import slot_resources
from owlclaw_ray.domain.node import ClusterView, NodeClock, NodeCondition, NodeView, Slots
from owlclaw_ray.kernel.clock import Clock

ANSWER_SECONDS = 4.0
"""What a root has for its report; the things in it that may hang have less."""
_ROUND_TRIPS = 3
_MAX_LOST = 20
_HEAD = "node:__internal_head__"
_NODE_PARTS: tuple[PartName[Any], ...] = (ROOT, KEEPER, GATEWAY, MCP_POOL)
_SHARED_PARTS: tuple[PartName[Any], ...] = (DIRECTORY, SCHEDULER, EXPORTER)
_TAKES_PART = frozenset({NodeCondition.ACTIVE, NodeCondition.DRAINING})


class _Death(IntEnum):
    """Ray's reasons for the death of a node."""

    EXPECTED = 1
    IDLE = 4


class RayNode(Struct, frozen=True):
    """What Ray says of a node."""

    node_id: str
    host: str
    address: str
    alive: bool
    resources: dict[str, float]
    available: dict[str, float]
    draining: bool
    death: str

    @property
    def slots(self) -> tuple[Slots, ...]:
        """What tool calls take there; the total is 0 where the node does not offer it."""
        names = slot_resources(ToolSlots(1))
        return tuple(Slots(each, self.resources.get(each, 0.0), self.available.get(each, 0.0)) for each in names)


def ray_nodes() -> tuple[RayNode, ...]:
    """Return all nodes by id: the living, and the latest of those that Ray lost. It blocks."""
    table: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    free: Mapping[str, dict[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]
    draining = state.get_draining_nodes()
    lost = [each for each in table if not each["Alive"] and each["DeathReason"] not in {*_Death}]
    return tuple(
        RayNode(
            node_id=each["NodeID"],
            host=each["NodeManagerHostname"],
            address=each["NodeManagerAddress"],
            alive=each["Alive"],
            resources=dict(each["Resources"]),
            available=free.get(each["NodeID"], {}),
            draining=each["NodeID"] in draining,
            death=each["DeathReasonMessage"] or "",
        )
        for each in sorted(
            [*(each for each in table if each["Alive"]), *lost[-_MAX_LOST:]], key=lambda each: str(each["NodeID"])
        )
    )


def node_names(nodes: Sequence[RayNode]) -> dict[str, str]:
    """Return what each node is called: as its machine, if that has one living Ray node only."""
    machines = Counter(node.host for node in nodes if node.alive)
    return {
        node.node_id: node.host if node.alive and machines[node.host] == 1 else f"{node.host}-{node.node_id[:8]}"
        for node in nodes
    }


class FleetNodes:
    """Asks the roots of all nodes at once. One that does not answer in time is told as such, and delays nobody."""

    def __init__(self, plan: RuntimePlan, clock: Clock) -> None:
        self._namespace, self._clock = plan.namespace, clock
        self._of_one_node = plan.store_url.startswith("sqlite")
        self._directory = NamedActor(DIRECTORY, plan.namespace)
        unused = {part for part, options in ((MCP_POOL, plan.mcp), (EXPORTER, plan.tracing)) if options is None}
        self._of_each_node = [part for part in _NODE_PARTS if part not in unused]
        self._of_the_cluster = [part for part in _SHARED_PARTS if part not in unused]

    async def __call__(self) -> ClusterView:
        """Return the nodes that there are now, and the lease."""
        nodes = await asyncio.to_thread(ray_nodes)
        names, salt = node_names(nodes), secrets.token_bytes(16)
        shared, drained = await asyncio.gather(
            self._shared_parts(), in_time(self._directory.call.drained(), ANSWER_SECONDS)
        )
        views, lease = await asyncio.gather(
            asyncio.gather(*(self._view(node, names[node.node_id], shared, salt) for node in nodes)),
            in_time(self._directory.call.lease(), ANSWER_SECONDS),
        )
        missing = tuple(str(part) for part in self._of_the_cluster if part not in shared)
        return ClusterView(tuple(_marked(view, drained or ()) for view in views), lease, missing)

    async def _view(self, node: RayNode, name: str, shared: Mapping[str, str], salt: bytes) -> NodeView:
        report, clock, parts = None, None, tuple[str, ...]()
        if not node.alive:
            node_state, problem = NodeCondition.LOST, node.death
        else:
            node_state, problem = await self._state(node)
            parts = await asyncio.to_thread(self._parts, node.node_id)
        missing = tuple(str(part) for part in self._of_each_node if node_state in _TAKES_PART and part not in parts)
        if node_state in _TAKES_PART:
            root: NamedRoot = NamedActor(ROOT, self._namespace, node.node_id)
            clock = await in_time(clock_of(root.call.now, lambda: self._clock.now().timestamp()), ANSWER_SECONDS)
            report = None if clock is None else await in_time(root.call.inspect(salt), ANSWER_SECONDS)
            if report is None:
                node_state, problem = NodeCondition.SILENT, f"its root did not answer within {ANSWER_SECONDS:g} s"
        return NodeView(
            node_id=node.node_id,
            name=name,
            address=node.address,
            head=_HEAD in node.resources,
            state=node_state,
            problem=problem,
            cpus=node.resources.get("CPU", 0.0),
            slots=node.slots,
            parts=(*parts, *(part for part, home in shared.items() if home == node.node_id)),
            clock=clock,
            report=report,
            missing=missing,
        )

    async def _state(self, node: RayNode) -> tuple[NodeCondition, str]:
        root = await asyncio.to_thread(find, ROOT, self._namespace, node.node_id)
        if root is None:
            why = "the store is an SQLite file, which serves one node" if self._of_one_node else "it has no root yet"
            return NodeCondition.NO_ROOT, why
        if await registered(root) is None:
            return NodeCondition.JOINING, "its root is being started"
        return (NodeCondition.DRAINING, "Ray drains it") if node.draining else (NodeCondition.ACTIVE, "")

    def _parts(self, node_id: str) -> tuple[str, ...]:
        return tuple(str(part) for part in _NODE_PARTS if find(part, self._namespace, node_id) is not None)

    async def _shared_parts(self) -> dict[str, str]:
        """Return the node of each part of which the cluster has one."""
        found = {}
        for part in _SHARED_PARTS:
            actor = await asyncio.to_thread(find, part, self._namespace)
            place = None if actor is None else await registered(actor)
            if place is not None:
                found[str(part)] = place.node_id
        return found


def _marked(view: NodeView, drained: Collection[str]) -> NodeView:
    if view.state is not NodeCondition.ACTIVE or view.node_id not in drained:
        return view
    return replace(view, state=NodeCondition.DRAINING, problem="it is drained: owlclaw drain NODE --undo takes it back")


async def clock_of(remote: Callable[[], Awaitable[float]], now: Callable[[], float]) -> NodeClock:
    """Return how a clock elsewhere differs from the one here, by the shortest of some round trips."""
    found: list[NodeClock] = []
    for _ in range(_ROUND_TRIPS):
        asked = now()
        there = await remote()
        answered = now()
        found.append(NodeClock(round(there - (asked + answered) / 2, 6), round(max(0.0, answered - asked) / 2, 6)))
    return min(found, key=lambda each: each.uncertainty)
