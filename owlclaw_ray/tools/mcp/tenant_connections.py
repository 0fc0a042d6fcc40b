"""Connections to servers that are called with secrets of the tenant: each tenant has its own, and each value of a secret another one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from owlclaw_ray.configuration.placeholders import names_in
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import CallProgress
from owlclaw_ray.errors import NotFoundError, OwlClawError, RetryableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock, Timer
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.secrets.api import AskSecret
from owlclaw_ray.tools.mcp.api import McpCall, McpProblem, McpTrouble
from owlclaw_ray.tools.mcp.connection import Connection
from owlclaw_ray.tools.mcp.options import Address, McpServerOptions

IDLE_SECONDS = 120.0
"""For how long a connection that nobody uses is kept."""


class TenantConnections:
    """Calls servers with what the tenant of each call has for them, asked for at each call. One event loop.

    A connection is used for calls of its tenant alone, and only while the secrets are what it was made of. One that is replaced ends with
    its last call.
    """

    def __init__(
        self,
        make: Callable[[McpServerOptions, TenantId, Mapping[str, str]], Connection],
        secret: AskSecret,
        clock: Clock,
    ) -> None:
        """`make` returns a connection that was not begun, with these secrets by their names."""
        self._make, self._secret, self._clock = make, secret, clock
        self._present: dict[tuple[str, TenantId], _Held] = {}
        self._all: set[_Held] = set()
        self._stopped = False
        self.running: Counter[str] = Counter()
        """Calls under way, by server."""
        self.calls: Counter[str] = Counter()
        """Calls that have ended."""

    @property
    def progress(self) -> Mapping[str, CallProgress]:
        """What servers said last of calls that run, by their keys."""
        return {key: each for held in self._all for key, each in held.connection.progress.items()}

    async def call(self, server: McpServerOptions, call: McpCall) -> JsonObject | McpProblem:
        """Return the tool's result in the form of the protocol, or what went wrong. Without the secrets nothing is sent."""
        self.running[server.name] += 1
        try:
            secrets = await self._secrets(server, call)
            if isinstance(secrets, McpProblem):
                if secrets.trouble is McpTrouble.NO_SECRET:
                    self._let_go(server.name, call.tenant)
                return secrets
            if self._stopped:
                return McpProblem(McpTrouble.NOT_SENT, f"the MCP server {server.name} is being stopped.")
            held = self._held(server, call.tenant, secrets)
            held.users += 1
            try:
                return await held.connection.call(call)
            finally:
                held.users -= 1
                self._rest(held)
        finally:
            self.running[server.name] -= 1
            self.calls[server.name] += 1

    async def stop(self) -> None:
        """End all connections; returns when nothing is left of them, and there will be none."""
        self._stopped = True
        for each in self._all:
            each.end()
        await asyncio.gather(*(each.life for each in self._all))

    async def _secrets(self, server: McpServerOptions, call: McpCall) -> Mapping[str, str] | McpProblem:
        assert isinstance(server.endpoint, Address)
        found: dict[str, str] = {}
        for name in sorted({name for _, text in server.endpoint.secret_headers for name in names_in(text)}):
            needed = f"the MCP server {server.name} is called with the tenant's secret {name}"
            try:
                async with deadline(self._clock, call.seconds):
                    value = await self._secret(call.tenant, name)
            except NotFoundError:
                return McpProblem(McpTrouble.NO_SECRET, f"{needed}, and there is none of that name: nothing was sent.")
            except (RetryableError, TimeoutError) as error:
                why = str(error) or f"no answer within {call.seconds:g} s"
                return McpProblem(McpTrouble.NOT_SENT, f"{needed}, and cannot have it now: {why}. Try again later.")
            except OwlClawError as error:
                return McpProblem(McpTrouble.NO_SECRET, f"{needed}, which cannot be read: {error}. Nothing was sent.")
            if not (value.isascii() and value.isprintable()):
                return McpProblem(
                    McpTrouble.NO_SECRET, f"{needed}, whose value cannot stand in a header: nothing was sent."
                )
            found[name] = value
        return found

    def _held(self, server: McpServerOptions, tenant: TenantId, secrets: Mapping[str, str]) -> _Held:
        held = self._present.get((server.name, tenant))
        if held is None or held.secrets != secrets:
            self._let_go(server.name, tenant)
            held = self._present[server.name, tenant] = _Held(self._make(server, tenant, secrets), secrets)
            self._all.add(held)
            held.life.add_done_callback(partial(self._ended, held))
        held.forget_timer()
        return held

    def _let_go(self, server: str, tenant: TenantId) -> None:
        """Have the next call of the tenant get another connection."""
        held = self._present.pop((server, tenant), None)
        if held is not None:
            held.replaced = True
            self._rest(held)

    def _rest(self, held: _Held) -> None:
        """End it if nobody uses it and it was replaced; else after a while."""
        if held.users == 0:
            held.forget_timer()
            if held.replaced:
                held.end()
            else:
                held.timer = self._clock.call_later(IDLE_SECONDS, lambda: self._unused(held))

    def _ended(self, held: _Held, _life: asyncio.Task[None]) -> None:
        self._all.discard(held)

    def _unused(self, held: _Held) -> None:
        for key, each in [*self._present.items()]:
            if each is held:
                self._let_go(*key)


class _Held:
    """A connection, and who uses it."""

    def __init__(self, connection: Connection, secrets: Mapping[str, str]) -> None:
        self.connection, self.secrets = connection, secrets
        self.life = asyncio.create_task(connection.run())
        self.users, self.replaced = 0, False
        self.timer: Timer | None = None

    def end(self) -> None:
        self.forget_timer()
        self.connection.stop()

    def forget_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
