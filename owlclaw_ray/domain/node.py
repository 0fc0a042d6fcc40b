"""The machines of a cluster, as somebody sees them who asks."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from owlclaw_ray.errors import NotFoundError, UserError


class NodeCondition(Enum):
    """How a node takes part."""

    ACTIVE = "active"
    JOINING = "joining"
    """Its root is being started."""
    DRAINING = "draining"
    """It was drained, or Ray drains it: it gets no new work."""
    NO_ROOT = "no_root"
    """It is a node of the Ray cluster, and nothing of the runtime is there."""
    SILENT = "silent"
    """Its root does not answer."""
    LOST = "lost"
    """Ray gave it up: the machine vanished, or was cut off."""


class Versions(Struct, frozen=True):
    """What a node's processes run on."""

    python: str
    ray: str
    owlclaw: str
    platform: str


class Disk(Struct, frozen=True):
    """A folder, and the bytes of the file system under it. Both are 0 if that does not answer, or the folder is not there."""

    path: str
    free: int
    total: int


class NodeLoad(Struct, frozen=True):
    """What a node has to do."""

    hosts: int
    agents: int
    """How many are activated."""
    running: int
    """How many of them are at work."""
    memory_used: float
    """The used share of the machine's memory, or the container's, from 0 to 1."""
    store_seconds: float | None
    """How long a small read of the store takes through the node's Keeper, the median of some; None if one failed."""
    store_problem: str
    waiting_calls: dict[str, int]
    """Calls of tools and memories that wait for one of the node's slots, by the slots' name."""


class NodeVariable(Struct, frozen=True):
    """A variable of the environment that must be the same on all nodes; of a secret one a hash that is another at each question."""

    name: str
    value: str | None


class NodeReport(Struct, frozen=True):
    """What a root says of its node."""

    versions: Versions
    memory: int
    """Bytes."""
    data_dir: Disk
    ray_dir: Disk
    """Where Ray keeps logs, sockets and objects that memory does not hold."""
    load: NodeLoad
    variables: tuple[NodeVariable, ...]
    application: str
    """A hash of the definitions and of the application's Python files; empty if its folder is not there, or does not answer."""
    shared_files: bool
    """Whether memories, artifacts or attempts are files in the data folder, which then must be the same one on all nodes."""
    folder_mark: str
    """What the Directory wrote into its data folder when it began, as it is seen there; empty if there is nothing."""


class NodeClock(Struct, frozen=True):
    """By how many seconds a node's clock is ahead of the server's."""

    skew: float
    uncertainty: float
    """The skew is right to so many seconds: half of the shortest round trip."""


class Slots(Struct, frozen=True):
    """A resource of Ray that tool calls take."""

    name: str
    total: float
    available: float


class NodeView(Struct, frozen=True):
    """A node of the Ray cluster."""

    node_id: str
    name: str
    """The machine's, with a part of the id if it has several nodes: the label `node` of metrics."""
    address: str
    head: bool
    state: NodeCondition
    problem: str
    """Why it is not active, if that is known."""
    cpus: float
    slots: tuple[Slots, ...]
    parts: tuple[str, ...]
    """The parts of the runtime that live there."""
    clock: NodeClock | None
    report: NodeReport | None
    """None if its root did not answer."""
    missing: tuple[str, ...] = ()
    """The parts that each node of this runtime has, and this one has not; of none that does not take part."""


class OtherCluster(Struct, frozen=True):
    """Another cluster with nodes in the same store, as they said of themselves when they joined."""

    cluster: str
    machines: tuple[str, ...]
    version: str
    """Of OwlClaw; empty if it is one that does not say so."""
    schema: str
    """The newest that it knows; empty as the version is."""
    since: str


class LeaseView(Struct, frozen=True):
    """The lease of the store, as this cluster knows it."""

    cluster: str
    """This cluster."""
    held: bool
    generation: int
    """How often the lease has changed hands; 0 if it is not known."""
    holder: str
    """The other cluster that holds it; empty if this one does, or if it is not known."""
    others: tuple[OtherCluster, ...] = ()
    """The other clusters that use the store, or did until lately."""


class ClusterView(Struct, frozen=True):
    """The nodes, and the lease: None if no other cluster can use the store, or the Directory does not answer."""

    nodes: tuple[NodeView, ...] = ()
    lease: LeaseView | None = None
    missing: tuple[str, ...] = ()
    """The parts of which this runtime has one, and that live nowhere now."""


def nodes_called(view: ClusterView, name: str) -> tuple[NodeView, ...]:
    """Return the nodes that are not lost and are meant by `all`, an id or its beginning, a name or an address: one, or all.

    Raises NotFoundError, and UserError if a name means several.
    """
    present = [node for node in view.nodes if node.state is not NodeCondition.LOST]
    if name == "all":
        return tuple(present)
    found = [node for node in present if name in {node.node_id, node.name, node.address}]
    found = found or [node for node in present if node.node_id.startswith(name)]
    if not found:
        raise NotFoundError("node", name)
    if len(found) > 1:
        raise UserError(f"{name!r} means several nodes: {', '.join(node.name for node in found)}; name one of them")
    return tuple(found)
