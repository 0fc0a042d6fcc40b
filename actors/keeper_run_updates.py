"""The news of all Keepers about runs, as another process hears it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from actors.nodes import living_nodes
from actors.remote import KEEPER, NamedActor, here
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.run_updates import RunUpdateSource, SubscriptionId

logger = logging.getLogger(__name__)


class KeeperRunUpdates:
    """Implements `RunUpdateSource` at the Keeper of one node."""

    def __init__(self, namespace: str, node_id: str) -> None:
        self._keeper = NamedActor(KEEPER, namespace, node_id)

    async def begin(self, box_id: SubscriptionId) -> None:
        """See RunUpdateSource.begin."""
        await self._keeper.call.begin_run_updates(box_id)

    async def follow(self, box_id: SubscriptionId, added: Sequence[RunId], dropped: Sequence[RunId]) -> bool:
        """See RunUpdateSource.follow."""
        return await self._keeper.call.follow_run_updates(box_id, added, dropped)

    async def news(self, box_id: SubscriptionId, seconds: float) -> Sequence[RunId] | None:
        """See RunUpdateSource.news."""
        return await self._keeper.call.news(box_id, seconds)


class Keepers:
    """The Keepers of the living nodes. Any of them may commit for a run: the one of the node where its agent is, or was."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._known: dict[str, RunUpdateSource] = {}

    async def __call__(self) -> Mapping[str, RunUpdateSource]:
        """Return them by their nodes; those that were known before, if Ray does not say."""
        try:
            nodes = {each.node_id for each in await asyncio.to_thread(living_nodes)}
        except Exception as error:  # noqa: BLE001 - whatever Ray raises while its control store restarts
            logger.info("the nodes are not known for now: %s", error)
            nodes = {here(), *self._known}
        self._known = {node: self._known.get(node) or KeeperRunUpdates(self._namespace, node) for node in nodes}
        return self._known
