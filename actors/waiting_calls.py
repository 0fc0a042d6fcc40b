"""How many model calls of all nodes wait for their providers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from actors.nodes import living_nodes
from actors.remote import GATEWAY, NamedActor, in_time

if TYPE_CHECKING:
    from actors.model_gateway import ModelGatewayActor

_ANSWER_SECONDS = 3.0

logger = logging.getLogger(__name__)


class WaitingCalls:
    """Asks the model gateways of all nodes."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._gateways: dict[str, NamedActor[ModelGatewayActor]] = {}

    async def count(self) -> int | None:
        """Return how many wait; None unless all gateways answer in time, and Ray says where they are."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                nodes = [node.node_id for node in await asyncio.to_thread(living_nodes)]
        except Exception as error:  # noqa: BLE001 - whatever Ray raises while its control store restarts
            logger.info("the nodes are not known for now: %s", error)
            return None
        self._gateways = {
            node: self._gateways.get(node) or NamedActor(GATEWAY, self._namespace, node) for node in nodes
        }
        answers = await asyncio.gather(
            *(in_time(each.call.slots(), _ANSWER_SECONDS) for each in self._gateways.values())
        )
        told = [answer for answer in answers if answer is not None]
        return sum(slots.waiting for answer in told for slots in answer) if len(told) == len(answers) else None
