"""Actor hosts, as the Directory sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.ids import RunId
from owlclaw_ray.placement.host import HostStatus


class HostGoneError(Exception):
    """The host's process is dead or does not answer; what it held is without an owner."""


class Host(Protocol):
    """One agent actor. Every call raises HostGoneError when the host cannot be reached."""

    @property
    def host_id(self) -> str:
        """Its name, unique among all hosts that ever were."""
        ...

    @property
    def node_id(self) -> str:
        """The machine that it lives on."""
        ...

    async def adopt(self, agents: Sequence[AgentRef], term: int) -> None:
        """See AgentHost.adopt; HostGoneError also when the host was drained."""
        ...

    async def wake(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See AgentHost.wake."""
        ...

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """See AgentHost.cancel."""
        ...

    async def release(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See AgentHost.release."""
        ...

    async def hand_over(self, agents: Sequence[AgentRef], grace: float | None = None) -> tuple[AgentRef, ...]:
        """See AgentHost.hand_over."""
        ...

    async def status(self, most: int) -> HostStatus:
        """See AgentHost.status; a host that does not answer within its heartbeat limit raises HostGoneError."""
        ...

    async def hosted(self) -> tuple[AgentRef, ...]:
        """See AgentHost.hosted; limited in time as `status`."""
        ...

    async def ended(self) -> None:
        """Return as soon as the host's process is dead; for a living one, never."""
        ...

    async def drain(self, grace: float) -> None:
        """See AgentHost.drain."""
        ...


class HostPool(Protocol):
    """Makes and ends hosts."""

    @property
    def nodes(self) -> Mapping[str, float]:
        """The machines on which hosts can be made, as far as is known, each with its number of CPUs."""
        ...

    @property
    def bare(self) -> frozenset[str]:
        """Those of `nodes` that offer Ray no CPU and count as one all the same: no request for machines can be met there."""
        ...

    async def spawn(self, node_id: str) -> Host:
        """Return a new host of that machine that answers; takes seconds.

        If the call fails, there may be one all the same: see `living`. Raises RetryableError for a machine that is gone.
        """
        ...

    async def living(self) -> Sequence[Host]:
        """Return the hosts that exist and have answered once, those included that nobody was told of."""
        ...

    async def kill(self, host: Host) -> None:
        """End the host's process at once; harmless if it is dead."""
        ...
