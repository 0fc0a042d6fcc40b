"""Asks whoever makes machines for more of them, when agents wait for places and no machine can take a host."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

logger = logging.getLogger(__name__)

WAIT_BEATS = 5
"""Heartbeats that an agent waits before a machine is asked for: turns and idle agents may make place before."""
QUIET_BEATS = 60
"""Heartbeats without an agent that waits before the request is withdrawn, or lowered to the machines that are needed."""
_FITS = 0.7
"""The share of the hosts of the machines that would remain."""

Request = Callable[[Sequence[Mapping[str, float]]], Awaitable[None]]
"""Asks for machines with these bundles of resources, all together, the present ones included; an empty sequence withdraws it."""


class Growth:
    """One request that stands until it is changed. It holds the machines that are there, whose CPUs look free to Ray: agents reserve
    none, and would be thought to fit there.
    """

    def __init__(self, request: Request, most_machines: int) -> None:
        """At most so many machines are asked for, those that are there included."""
        self._request, self._most = request, most_machines
        self._asked: list[dict[str, float]] | None = None
        """None: what an earlier Directory asked for may still stand, or what was asked without an answer."""
        self._asking: asyncio.Future[None] | None = None
        """The question that has no answer yet: who asked it may have been cancelled."""
        self._calm = 0

    async def beat(self, cpus: Mapping[str, float], *, waited: int, room: int, used: int, most_hosts: int) -> None:
        """Change the request if this heartbeat says so.

        `cpus`: what the machines that are there offer Ray; one that offers none, as a head may, is in no request. `waited`: heartbeats
        that the first agent in the line has waited, 0 if there is none. `room`: hosts that could be made. `used`: hosts with agents,
        of at most `most_hosts` a machine.
        """
        self._calm = 0 if waited else self._calm + 1
        present = [{"CPU": each} for each in sorted(cpus.values()) if each][: self._most]
        if waited >= WAIT_BEATS and room <= 0 and len(cpus) < self._most:
            wanted = [*present, {"CPU": 1.0}]
        elif self._calm >= QUIET_BEATS and self._asked != []:
            wanted = [] if used <= _FITS * most_hosts * (len(cpus) - 1) else present
        else:
            return
        if wanted != self._asked and self._asking is None:
            await self._ask(wanted)
            logger.info("asked for %d machines with CPUs; %d are there, those without included", len(wanted), len(cpus))

    async def withdraw(self) -> None:
        """Have nothing stand that was asked for, once what is being asked is answered; raises what the request raises.

        For the end: nobody else changes the request when no `beat` comes any more.
        """
        if self._asking is not None:
            await asyncio.wait({self._asking})
        if self._asked != []:
            await self._ask([])
            logger.info("withdrew what was asked for: this Directory ends")

    async def _ask(self, wanted: list[dict[str, float]]) -> None:
        self._asked = None
        self._asking = asking = asyncio.ensure_future(self._request(wanted))
        asking.add_done_callback(self._answered)
        await asyncio.shield(asking)
        self._asked = wanted

    def _answered(self, _asking: asyncio.Future[None]) -> None:
        self._asking = None
