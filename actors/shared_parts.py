"""The parts of which the cluster has one: a root makes those that there are not, and fetches them from a node that is of no use to them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ray.actor import ActorHandle

from actors.remote import KEEPER, NamedActor, PartName, find, full_name, here, kill, registered
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.placement.node_fence import RowAge
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS

LOOK_SECONDS = 0.5
"""Between two looks at the rows of the nodes that have the parts."""
MOVE_SECONDS = 2.0
"""How old a node's row may be, by the word of its Keeper at two looks, before the parts leave it: less than a Directory waits before it
gives all agents up, because it cannot renew the lease."""
_FRESH_SECONDS = 1.5
"""How old this node's own row may be for parts to come here: then the store answers, and it is the other node that does not reach it."""
_LOCATE_SECONDS = 2.0
_PAUSE = 0.1

logger = logging.getLogger(__name__)


class SharedParts:
    """Several roots may do the same at once: names in Ray are unique, so one of them makes the part."""

    def __init__(
        self,
        make: Mapping[PartName[Any], Callable[[], ActorHandle[Any]]],
        namespace: str,
        own: RowAge,
        clock: Clock,
    ) -> None:
        """Make those that there are not. `make` returns the part, made on this node if it is nowhere; `own` is this node's row."""
        self._make, self._namespace, self._own, self._clock = make, namespace, own, clock
        self.actors = {name: made() for name, made in make.items()}
        self._homes: dict[PartName[Any], str] = {}
        """The nodes of parts that are elsewhere."""
        self._located = -math.inf
        self._rows: dict[str, RowAge] = {}
        self._cut: set[str] = set()
        """The nodes that were found cut at the latest look: at the next one, too, their parts are fetched."""

    def complete(self, present: Collection[str]) -> None:
        """Make those that are not among the names; a node that does not reach the store leaves that to others."""
        if self._own.known and self._own.seconds >= MOVE_SECONDS:
            return
        for name, make in self._make.items():
            if full_name(name) not in present:
                logger.warning("the cluster has no %s; this root makes one", name)
                self.actors[name] = make()

    async def tick(self) -> None:
        """Fetch what is on a node whose row is not renewed, if this node's row is. To be called every LOOK_SECONDS."""
        if self._clock.monotonic() - self._located >= _LOCATE_SECONDS:
            await self._locate()
        if not self._homes:
            return
        await asyncio.gather(self._own.look(), *(row.look() for row in self._rows.values()))
        if not self._own.answered or self._own.seconds >= _FRESH_SECONDS:
            self._cut = set()
            return
        before, self._cut = self._cut, {node_id for node_id, row in self._rows.items() if _is_cut(row)}
        cut = before & self._cut  # a Keeper that was only held up has renewed its row by the second look
        if not cut.isdisjoint(self._homes.values()):
            await self._locate()
            await asyncio.gather(*(self._fetch(name, home) for name, home in self._homes.items() if home in cut))
            await self._locate()

    async def _locate(self) -> None:
        places = await asyncio.gather(*(registered(actor) for actor in self.actors.values()))
        self._homes = {}
        for name, place in zip(tuple(self.actors), places, strict=True):
            if place is None:
                known = await asyncio.to_thread(find, name, self._namespace)
                self.actors[name] = known or self.actors[name]
            elif place.node_id != here():
                self._homes[name] = place.node_id
        self._rows = {node_id: self._rows.get(node_id) or self._row(node_id) for node_id in set(self._homes.values())}
        self._located = self._clock.monotonic()

    def _row(self, node_id: str) -> RowAge:
        return RowAge(NamedActor(KEEPER, self._namespace, node_id).call.unrenewed, self._clock)

    async def _fetch(self, name: PartName[Any], home: str) -> None:
        logger.warning("the %s moves here from node %s, whose row in the store is not renewed", name, home)
        while await registered(self.actors[name]) is not None:
            kill(self.actors[name])
            await self._clock.sleep(_PAUSE)
        self.actors[name] = self._make[name]()


def _is_cut(row: RowAge) -> bool:
    """Return whether a node is of no use to the parts; one whose Keeper says nothing may have a new one in a moment."""
    return row.seconds >= (MOVE_SECONDS if row.answered else EXPIRE_SECONDS)
