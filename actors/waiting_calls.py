"""How many calls of all nodes wait: those of models for their providers, those of tools for slots."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from actors.nodes import living_nodes
from actors.remote import GATEWAY, ROOT, NamedActor, NamedRoot, PartName, in_time
from owlclaw_ray.domain.queue_length import Queue

if TYPE_CHECKING:
    from actors.model_gateway import ModelGatewayActor

_ANSWER_SECONDS = 3.0

logger = logging.getLogger(__name__)

A = TypeVar("A")
R = TypeVar("R")


class WaitingCalls:
    """Asks the model gateways and roots of all nodes."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._gateways: dict[str, NamedActor[ModelGatewayActor]] = {}
        self._roots: dict[str, NamedRoot] = {}

    async def lengths(self) -> Mapping[Queue, int]:
        """Return how many wait; without those of a kind unless all nodes answer in time, and none unless Ray says which there are."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                nodes = [node.node_id for node in await asyncio.to_thread(living_nodes)]
        except Exception as error:  # noqa: BLE001 - whatever Ray raises while its control store restarts
            logger.info("the nodes are not known for now: %s", error)
            return {}
        self._gateways = self._on_each(GATEWAY, nodes, self._gateways)
        self._roots = self._on_each(ROOT, nodes, self._roots)
        slots, calls = await asyncio.gather(
            _answers(each.call.slots for each in self._gateways.values()),
            _answers(each.call.waiting_calls for each in self._roots.values()),
        )
        found = {}
        if slots is not None:
            found[Queue.WAITING_MODEL_CALLS] = sum(each.waiting for of_node in slots for each in of_node)
        if calls is not None:
            found[Queue.WAITING_TOOL_CALLS] = sum(number for of_node in calls for number in of_node.values())
        return found

    def _on_each(
        self, part: PartName[A], nodes: Iterable[str], known: Mapping[str, NamedActor[A]]
    ) -> dict[str, NamedActor[A]]:
        return {node: known.get(node) or NamedActor(part, self._namespace, node) for node in nodes}


async def _answers(questions: Iterable[Callable[[], Awaitable[R]]]) -> list[R] | None:
    """Return the answers of all; None unless all answer in time."""
    answers = await asyncio.gather(*(in_time(ask(), _ANSWER_SECONDS) for ask in questions))
    told = [answer for answer in answers if answer is not None]
    return told if len(told) == len(answers) else None
