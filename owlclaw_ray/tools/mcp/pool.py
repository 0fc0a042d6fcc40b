"""All MCP servers of a node: one connection for each that is configured differently, whoever uses it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import psutil

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import CallProgress
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.secrets.api import AskSecret, no_secrets
from owlclaw_ray.tools.mcp.api import McpCall, McpCatalog, McpProblem, McpServerView, McpState, McpTrouble
from owlclaw_ray.tools.mcp.connection import Account, Connection
from owlclaw_ray.tools.mcp.options import Address, Command, Endpoint, McpOptions, McpServerOptions, shown_target
from owlclaw_ray.tools.mcp.server_tools import ServerTools, offering_of
from owlclaw_ray.tools.mcp.tenant_connections import TenantConnections

_LOOK_SECONDS = 0.5
_Shared: TypeAlias = tuple[Endpoint, frozenset[TenantId]]


@asynccontextmanager
async def caller_ended(pid: int) -> AsyncIterator[asyncio.Future[None]]:
    """Have a future that is done when the process ends; it never is for 0 and for this process."""
    loop = asyncio.get_running_loop()
    if pid in {0, os.getpid()}:
        yield loop.create_future()
        return
    watching = asyncio.ensure_future(_end(pid))
    try:
        yield watching
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _end(pid: int) -> None:
    if sys.platform != "linux":
        while psutil.pid_exists(pid):  # noqa: ASYNC110 (nobody tells of another process's end here)
            await asyncio.sleep(_LOOK_SECONDS)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


class ConnectionLeases:
    """Connections by what is connected to, and for which tenants: servers that have both in common share one, and the last to give
    it back ends it.
    """

    def __init__(self, make: Callable[[str, Endpoint], Connection]) -> None:
        self._make = make
        self._connections: dict[_Shared, Connection] = {}
        self._users: dict[_Shared, int] = {}
        self._lives: dict[_Shared, asyncio.Task[None]] = {}

    def take(self, server: McpServerOptions) -> Connection:
        """Return the connection, begun by the first who takes it."""
        shared = server.endpoint, server.tenants
        if shared not in self._connections:
            connection = self._connections[shared] = self._make(server.name, server.endpoint)
            self._lives[shared] = asyncio.create_task(connection.run())
        self._users[shared] = self._users.get(shared, 0) + 1
        return self._connections[shared]

    async def give_back(self, server: McpServerOptions) -> None:
        """Return when nothing is left of it, if this was the last who had it."""
        shared = server.endpoint, server.tenants
        self._users[shared] -= 1
        if self._users[shared] == 0:
            del self._users[shared]
            self._connections.pop(shared).stop()
            await self._lives.pop(shared)


class McpPool:
    """Implements McpNode. Of one event loop. It starts no server before `start`, and waits for none."""

    def __init__(
        self,
        options: McpOptions,
        *,
        environ: Mapping[str, str],
        clock: Clock,
        jitter: Callable[[], float],
        incarnation: str,
        secret: AskSecret = no_secrets,
    ) -> None:
        """`incarnation` is another one for every pool: versions of its catalog begin with it. `secret` is asked for those of tenants."""
        self._servers = {server.name: server for server in options.servers}
        self._clock, self._incarnation = clock, incarnation
        self._leases = ConnectionLeases(
            lambda name, endpoint: Connection(
                name, endpoint, options, environ=environ, clock=clock, jitter=jitter, changed=self._change
            )
        )
        self._of_tenants = TenantConnections(
            lambda server, tenant, secrets: Connection(
                server.name,
                server.endpoint,
                options,
                environ=environ,
                clock=clock,
                jitter=jitter,
                changed=lambda: None,
                account=Account(tenant, secrets),
            ),
            secret,
            clock,
        )
        self._connections: dict[str, Connection] = {}
        self._offerings: dict[str, tuple[object, ServerTools]] = {}
        self._catalog = McpCatalog(f"{incarnation}-0")
        self._changes, self._changed = 0, asyncio.Event()

    async def start(self) -> None:
        """Begin to start every server."""
        for server in self._servers.values():
            self._connections[server.name] = self._leases.take(server)
        self._change()

    async def stop(self) -> None:
        """End every server; returns when no process of them is left."""
        servers = [self._servers[name] for name in self._connections]
        self._connections.clear()
        leaving = (self._leases.give_back(server) for server in servers)
        await asyncio.gather(*leaving, self._of_tenants.stop())

    async def catalog(self, known: str, seconds: float) -> McpCatalog | None:
        """See McpNode.catalog."""
        waiting = asyncio.timeout(seconds)
        try:
            async with waiting:
                while self._catalog.version == known:
                    await self._changed.wait()
        except TimeoutError:
            return None
        return self._catalog

    async def call(self, call: McpCall) -> JsonObject | McpProblem:
        """Return the result of a call, or what went wrong; a call whose caller's process ends is cancelled.

        A server that the caller's tenant does not have is answered as one that nobody has.
        """
        connection = self._connections.get(call.server)
        if connection is None or not self._servers[call.server].is_for(call.tenant):
            return McpProblem(McpTrouble.NOT_SENT, f"there is no MCP server {call.server} here.")
        server = self._servers[call.server]
        own = isinstance(server.endpoint, Address) and server.endpoint.secret_headers
        asked = asyncio.create_task(self._of_tenants.call(server, call) if own else connection.call(call))
        async with caller_ended(call.caller) as ended:
            try:
                either: set[asyncio.Future[Any]] = {asked, ended}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not asked.done():
                    return McpProblem(McpTrouble.LOST, "nobody waits for the call any more.")
                return await asked
            finally:
                if not asked.done():
                    asked.cancel()
                    await asyncio.wait({asked})

    async def progress(self, keys: Collection[str]) -> Mapping[str, CallProgress]:
        """See McpNode.progress."""
        sources = [each.progress for each in self._connections.values()]
        said = {key: each for one in (*sources, self._of_tenants.progress) for key, each in one.items()}
        return {key: said[key] for key in keys if key in said}

    async def servers(self) -> Sequence[McpServerView]:
        """See McpNode.servers."""
        return tuple(self._view(self._servers[name]) for name in sorted(self._connections))

    def _view(self, server: McpServerOptions) -> McpServerView:
        connection, offering = (
            self._connections[server.name],
            self._offerings.get(server.name, (None, ServerTools()))[1],
        )
        return McpServerView(
            name=server.name,
            transport="stdio" if isinstance(server.endpoint, Command) else "http",
            target=shown_target(server.endpoint),
            state=connection.state,
            since=connection.since,
            problem=connection.problem,
            starts=connection.traffic.starts,
            calls=connection.traffic.calls + self._of_tenants.calls[server.name],
            running=connection.traffic.running + self._of_tenants.running[server.name],
            tenants=tuple(sorted(server.tenants)),
            tools=tuple(sorted(each.name for each in offering.definitions)),
            left_out=offering.left_out,
        )

    def _change(self) -> None:
        """Take in what connections say; the catalog has another version if its tools are others."""
        for name, connection in self._connections.items():
            listed = connection.listed
            if listed is not None and self._offerings.get(name, (None,))[0] is not listed:
                offering = offering_of(self._servers[name], listed)
                offering.warn(name)
                self._offerings[name] = (listed, offering)
        tools = {name: offering.definitions for name, (_, offering) in sorted(self._offerings.items())}
        settled = len(self._connections) == len(self._servers) and all(
            each.listed is not None or each.state is McpState.DOWN or each.traffic.starts > 1
            for each in self._connections.values()
        )
        if tools != self._catalog.tools or settled != self._catalog.settled:
            self._changes += 1
            self._catalog = McpCatalog(f"{self._incarnation}-{self._changes}", tools, settled)
            self._changed.set()
            self._changed = asyncio.Event()
