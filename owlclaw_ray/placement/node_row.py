"""Holding a node's row in the store: as long as it is renewed, and not marked, the node may run agents."""

from __future__ import annotations

import logging
from collections.abc import Callable

from owlclaw_ray.errors import OwlClawError, StoreUnavailableError
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import HoldNode, JoinNode, NodeExcluded, NodeHeld, NodeLost

logger = logging.getLogger(__name__)


class NodeRow:
    """Joins for a node, renews its row, and joins again when it was taken for lost."""

    def __init__(self, store: CommandStore, join: JoinNode, *, joined: Callable[[str, int], None]) -> None:
        """`joined` is told the node's id and generation before anything is done as this generation."""
        self._store, self._join, self._joined = store, join, joined
        self._generation = 0

    async def join(self) -> None:
        """Take up the row, made if it is new; raises StoreUnavailableError."""
        (outcome,) = await self._store.apply([self._join])
        if isinstance(outcome, NodeExcluded):
            message = f"a newer version migrated the database, which takes runtimes of schema {outcome.oldest} or newer: stop this cluster"
            raise StoreUnavailableError(message)
        if not isinstance(outcome, NodeHeld):
            raise StoreUnavailableError(f"this node did not join its cluster: {outcome}")
        self._generation = outcome.node.generation
        self._joined(outcome.node.node_id, self._generation)

    async def tick(self) -> None:
        """Renew the row once. To be called every second."""
        try:
            (outcome,) = await self._store.apply([HoldNode(self._join.node_id, self._generation)])
            if isinstance(outcome, NodeLost):
                logger.warning("this node was taken for lost; it joins again")
                await self.join()
        except OwlClawError as error:
            logger.warning("this node's row was not renewed: %s", error)
