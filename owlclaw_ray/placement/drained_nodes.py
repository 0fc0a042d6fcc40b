"""Which nodes are drained: the store says so, and refuses their claims from that moment on. And which clusters have nodes there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from owlclaw_ray.domain.node import OtherCluster
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    ClusterNode,
    Command,
    ForgetNode,
    JoinNode,
    MarkNode,
    NodeForgotten,
    NodeMarked,
    NodeState,
)
from owlclaw_ray.store.queries import ClusterNodes

FORGET_SECONDS = 600.0
"""How long the row of a drained node has to stand still before it is removed."""

logger = logging.getLogger(__name__)


class DrainedNodes:
    """The rows of the drained nodes, as they were last seen. Those of nodes that are gone are removed in the end."""

    def __init__(
        self, store: Store, cluster: str, node_id: str, clock: Clock, *, present: Callable[[], Collection[str]]
    ) -> None:
        """`node_id`: this node. `present` returns the nodes of this cluster that Ray knows: their rows stay, even if they stand still."""
        self._store, self._cluster, self._node_id, self._clock, self._present = store, cluster, node_id, clock, present
        self._own: ClusterNode | None = None
        self._still: dict[str, tuple[ClusterNode, float]] = {}
        """The rows of drained nodes that may be gone, and since when each has been as it is."""
        self.known: frozenset[str] = frozenset()
        self.others: tuple[OtherCluster, ...] = ()
        """The other clusters of which nodes are not lost."""

    async def look(self) -> frozenset[str]:
        """Return the ids of the nodes that are drained now; raises StoreUnavailableError."""
        rows = await self._forget(await self._store.read(ClusterNodes()))
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

    async def _forget(self, rows: Sequence[ClusterNode]) -> Sequence[ClusterNode]:
        """Remove the rows of drained nodes that have stood still for long; return the others.

        Time counts only while this node's own row is seen to be renewed: a store that takes no writes lets all of them stand still.
        """
        now, present, before = self._clock.monotonic(), self._present(), self._still
        own = next((row for row in rows if row.node_id == self._node_id), None)
        if own is None or own == self._own:
            before = {}
        self._own, self._still = own, {}
        forgotten = set()
        for row in rows:
            if row.state is not NodeState.DRAINING or row.node_id == self._node_id:
                continue
            if row.cluster == self._cluster and row.node_id in present:
                continue
            seen, since = before.get(row.node_id, (row, now))
            since = since if seen == row else now
            self._still[row.node_id] = (row, since)
            if now - since >= FORGET_SECONDS:
                (outcome,) = await self._store.apply([ForgetNode(row.node_id, row)])
                if isinstance(outcome, NodeForgotten):
                    logger.info("node %s (%s) was drained and is gone; its row is removed", row.node_id, row.machine)
                    forgotten.add(row.node_id)
        return [row for row in rows if row.node_id not in forgotten]

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
