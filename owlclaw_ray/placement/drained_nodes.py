"""Which nodes are drained: the store says so, and refuses their claims from that moment on. And which clusters have nodes there."""

from __future__ import annotations

from collections.abc import Sequence

from owlclaw_ray.domain.node import OtherCluster
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ClusterNode, Command, JoinNode, MarkNode, NodeMarked, NodeState
from owlclaw_ray.store.queries import ClusterNodes


class DrainedNodes:
    """The rows of the drained nodes, as they were last seen."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store, self._cluster = store, cluster
        self.known: frozenset[str] = frozenset()
        self.others: tuple[OtherCluster, ...] = ()
        """The other clusters of which nodes are not lost."""

    async def look(self) -> frozenset[str]:
        """Return the ids of the nodes that are drained now; raises StoreUnavailableError."""
        rows = await self._store.read(ClusterNodes())
        self.known = frozenset(row.node_id for row in rows if row.state is NodeState.DRAINING)
        self.others = _others(self._cluster, rows)
        return self.known

    async def drain(self, nodes: Sequence[str]) -> None:
        """Mark these nodes; one that has no row yet gets one, so that it is drained when it joins. Raises StoreUnavailableError."""
        present = {row.node_id for row in await self._store.read(ClusterNodes())}
        commands: list[Command] = [JoinNode(each, self._cluster, "") for each in nodes if each not in present]
        await self._mark([*commands, *(MarkNode(each, NodeState.DRAINING) for each in nodes)])

    async def undrain(self, nodes: Sequence[str]) -> None:
        """Let those of these nodes that are drained run agents again; raises StoreUnavailableError."""
        drained = await self.look()
        await self._mark([MarkNode(each, NodeState.ACTIVE) for each in nodes if each in drained])

    async def _mark(self, commands: Sequence[Command]) -> None:
        outcomes = await self._store.apply(commands) if commands else ()
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(command, MarkNode) and not isinstance(outcome, NodeMarked):
                raise StoreUnavailableError(f"node {command.node_id} was not marked as {command.state}: {outcome}")
        await self.look()


def _others(own: str, rows: Sequence[ClusterNode]) -> tuple[OtherCluster, ...]:
    found: dict[str, list[ClusterNode]] = {}
    for row in rows:
        if row.cluster != own and row.state is not NodeState.LOST:
            found.setdefault(row.cluster, []).append(row)
    return tuple(_other(name, found[name]) for name in sorted(found))


def _other(name: str, rows: Sequence[ClusterNode]) -> OtherCluster:
    said = next((row.details for row in rows if "schema" in row.details), {})
    version, schema, since = (str(said.get(each, "")) for each in ("version", "schema", "since"))
    return OtherCluster(name, tuple(sorted({row.machine for row in rows} - {""})), version, schema, since)
