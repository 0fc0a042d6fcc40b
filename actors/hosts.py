"""Actor hosts for the Directory: made by the root, reached through their handles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import ray
from ray.actor import ActorHandle

from actors.remote import ROOT, Named, ask
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.engine.host import HostStatus
from owlclaw_ray.engine.host_pool import Host, HostGoneError
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import RunId

_BIRTH_SECONDS = 60.0


class ActorHost:
    """Implements `Host` over an AgentActor."""

    def __init__(self, host_id: str, actor: ActorHandle[Any], patience: float) -> None:
        self._host_id, self.actor, self._patience = host_id, actor, patience

    @property
    def host_id(self) -> str:
        """See Host.host_id."""
        return self._host_id

    async def adopt(self, agents: Sequence[AgentRef]) -> None:
        """See Host.adopt."""
        await self._ask("adopt", agents)

    async def wake(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.wake."""
        return cast("tuple[AgentRef, ...]", await self._ask("wake", agents))

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """See Host.cancel."""
        return cast("bool", await self._ask("cancel", agent, run_id))

    async def release(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.release."""
        return cast("tuple[AgentRef, ...]", await self._ask("release", agents))

    async def status(self) -> HostStatus:
        """See Host.status."""
        try:
            async with asyncio.timeout(self._patience):
                return cast("HostStatus", await self._ask("status"))
        except TimeoutError as error:
            raise HostGoneError(f"{self._host_id} did not answer within {self._patience:g} s") from error

    async def drain(self, grace: float) -> None:
        """See Host.drain."""
        await self._ask("drain", grace)

    async def _ask(self, method: str, *arguments: object) -> Any:
        try:
            return await ask(self.actor, method, *arguments)
        except RuntimeUnavailableError as error:
            raise HostGoneError(f"{self._host_id}: {error}") from error


class RootedPool:
    """Implements `HostPool`: the node's root owns the actors, so that their tool tasks share warm workers."""

    def __init__(self, namespace: str, patience: float) -> None:
        self._root, self._patience = Named(ROOT, namespace), patience

    async def spawn(self) -> Host:
        """See HostPool.spawn."""
        host_id, actor = await self._root.ask("spawn_host")
        host = ActorHost(host_id, actor, self._patience)
        try:
            async with asyncio.timeout(_BIRTH_SECONDS):
                await ask(actor, "identify")
        except (TimeoutError, RuntimeUnavailableError) as error:
            await self.kill(host)
            raise RuntimeUnavailableError(f"the new host {host_id} did not answer") from error
        return host

    async def living(self) -> Sequence[Host]:
        """See HostPool.living."""
        hosts = await self._root.ask("hosts")
        return [ActorHost(host_id, actor, self._patience) for host_id, actor in hosts]

    async def kill(self, host: Host) -> None:
        """See HostPool.kill."""
        if isinstance(host, ActorHost):
            ray.kill(host.actor, no_restart=True)
        await self._root.ask("forget_host", host.host_id)
