"""Tool slots between the hosts of a node and its root, which lends them: it outlives no host, and no host outlives it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from actors.plan import ToolSlots
from actors.remote import ROOT, AgentHandle, NamedActor, calls
from actors.tool_task import LENT, slot_pools
from owlclaw_ray.domain.tool import ToolClass
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.borrowed_places import BorrowedPlaces, Places
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.fair_order import Weights
from owlclaw_ray.kernel.place_lender import BorrowerId, PlaceLender, PlaceNews, PlaceRequest, PoolName

_PAUSE = 0.2

logger = logging.getLogger(__name__)


class SlotLink:
    """A host's end: implements `Lender`, and has the places that the host was lent."""

    def __init__(self, host_id: str, namespace: str, slots: ToolSlots, clock: Clock) -> None:
        self._host_id, self._root = BorrowerId(host_id), NamedActor(ROOT, namespace)
        self._borrowed = BorrowedPlaces(self, slot_pools(slots), clock)
        self.told = self._borrowed.told

    @property
    def places(self) -> Mapping[ToolClass, Places]:
        """The places of each class of tools."""
        return {kind: self._borrowed.pool(name) for kind, name in LENT.items()}

    async def request(self, request: PlaceRequest) -> PlaceNews:
        """See Lender.request."""
        return await self._root.call.lend_slots(self._host_id, request)


class SlotDesk:
    """The root's end."""

    def __init__(
        self, slots: ToolSlots, host: Callable[[str], AgentHandle | None], weight: Weights, clock: Clock
    ) -> None:
        """`host` returns the handle of one that lives."""
        places = {name: size.places for name, size in slot_pools(slots).items()}
        self._lender = PlaceLender(places, weight, self._tell_soon)
        self._host, self._clock = host, clock
        self._telling: dict[BorrowerId, asyncio.Task[None]] = {}
        self._untold: set[BorrowerId] = set()

    def request(self, host_id: BorrowerId, request: PlaceRequest) -> PlaceNews:
        """See PlaceLender.request; raises RuntimeUnavailableError for a host that is being ended."""
        if self._host(host_id) is None:
            raise RuntimeUnavailableError(f"{host_id} is no host of this node")
        return self._lender.request(host_id, request)

    def waiting(self, pool: PoolName) -> int:
        """Return how many calls of that class the hosts have told of that wait."""
        return self._lender.waiting(pool)

    def forget(self, host_id: str) -> None:
        """See PlaceLender.forget."""
        self._lender.forget(BorrowerId(host_id))

    def _tell_soon(self, host_id: BorrowerId) -> None:
        self._untold.add(host_id)
        if host_id not in self._telling:
            self._telling[host_id] = asyncio.create_task(self._tell(host_id))

    async def _tell(self, host_id: BorrowerId) -> None:
        try:
            while host_id in self._untold:
                self._untold.discard(host_id)
                news = self._lender.news(host_id)
                while (host := self._host(host_id)) is not None and self._lender.knows(host_id):
                    try:
                        await calls(host).told_slots(news)
                        break
                    except RuntimeUnavailableError as error:
                        logger.info("%s was not told of tool slots, and is told again: %s", host_id, error)
                        await self._clock.sleep(_PAUSE)
        finally:
            del self._telling[host_id]
