"""Watching the rows of the other nodes: who stands still is lost, by the store's word, whatever is wrong with it. Of a cluster that hands
its agents over, a drained node that stands still is forgotten: it has none any more.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ClusterNode, ForgetNode, MarkNode, NodeForgotten, NodeMarked, NodeState
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS
from owlclaw_ray.store.queries import ClusterNodes

MAX_BLIND_SECONDS = 2.5
"""How long the own row may not be seen to be renewed; nothing is known of the others meanwhile."""
ALONE_SECONDS = 5.0
"""Between two looks while there is no other node."""

logger = logging.getLogger(__name__)


class NodeWatch:
    """Marks nodes lost whose rows stand still, and says which ones are lost.

    No two clocks are compared. A row stands still only while this node's own row is seen to be renewed: then the store takes and shows
    what is written, and neither it nor this process has paused.
    """

    def __init__(self, store: Store, node_id: str, clock: Clock, *, changed: Callable[[frozenset[str]], None]) -> None:
        """`node_id`: this node, which is not judged here. `changed` is told the ids of all lost nodes when they are others than before."""
        self._store, self._node_id, self._clock, self._changed = store, node_id, clock, changed
        self._since: dict[str, tuple[int, int, float]] = {}
        """Of each other node: its generation and beats, and since when they have been these."""
        self._own: tuple[int, int] | None = None
        self._proved = -math.inf
        """When the own row was last seen to have been renewed."""
        self._looked: float | None = None
        self._lost: frozenset[str] = frozenset()
        self.clusters: frozenset[str] | None = None
        """Those that had nodes which were not lost at the last look; None before the first one."""

    async def tick(self) -> None:
        """Look once, and mark who is lost. To be called every second; raises StoreUnavailableError."""
        began = self._clock.monotonic()
        if self._looked is not None and not self._since and began - self._looked < ALONE_SECONDS:
            return
        nodes = await self._store.read(ClusterNodes())
        now = self._looked = self._clock.monotonic()
        if not self._can_judge(nodes, began, now):
            self._since.clear()
        still = self._standing_still(nodes, began, now)
        lost = {node.node_id for node in nodes if node.state is NodeState.LOST}
        for node in still:
            if await self._take_for_lost(node) and node.state is NodeState.ACTIVE:
                lost.add(node.node_id)
        self.clusters = frozenset(node.cluster for node in nodes if node.node_id not in lost)
        if lost != self._lost:
            self._lost = frozenset(lost)
            self._changed(self._lost)

    async def _take_for_lost(self, node: ClusterNode) -> bool:
        is_drained = node.state is NodeState.DRAINING
        command = ForgetNode(node.node_id, node) if is_drained else MarkNode(node.node_id, NodeState.LOST, seen=node)
        (outcome,) = await self._store.apply([command])
        if not isinstance(outcome, NodeMarked | NodeForgotten):
            return False
        logger.warning("node %s (%s) is lost: it does not renew its row", node.node_id, node.machine)
        return True

    def _can_judge(self, nodes: Sequence[ClusterNode], began: float, now: float) -> bool:
        """Return whether the own row has been renewed again and again until this look."""
        own = next(((each.generation, each.beats) for each in nodes if each.node_id == self._node_id), None)
        if own is None or now - self._proved > MAX_BLIND_SECONDS:
            self._own, self._proved = own, now
            return False
        if own != self._own:
            self._own, self._proved = own, began
        return True

    def _standing_still(self, nodes: Sequence[ClusterNode], began: float, now: float) -> list[ClusterNode]:
        """Note the rows as they are; return those that have been so for long enough. The own cluster's drained nodes let go of their agents
        by themselves.
        """
        own = next((each.cluster for each in nodes if each.node_id == self._node_id), None)
        watched = [each for each in nodes if each.node_id != self._node_id and each.state is not NodeState.LOST]
        others = [each for each in watched if each.state is NodeState.ACTIVE or own not in {None, each.cluster}]
        before, self._since = self._since, {}
        for node in others:
            generation, beats, since = before.get(node.node_id, (-1, -1, now))
            same = (generation, beats) == (node.generation, node.beats)
            self._since[node.node_id] = (node.generation, node.beats, since if same else now)
        return [node for node in others if began - self._since[node.node_id][2] >= EXPIRE_SECONDS]
