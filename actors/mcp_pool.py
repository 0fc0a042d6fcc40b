"""The pool of its node's MCP servers: one process, or connection, for each, for all tool workers and agent actors of the node."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Collection, Mapping, Sequence

from actors.garbage import collect_rarely
from actors.keeper_client import secrets_at_keeper
from actors.logs import configure
from actors.plan import RuntimePlan
from actors.remote_actor import RemoteActor
from actors.secrets import take_over
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import CallProgress
from owlclaw_ray.ids import RandomIds
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.tools.mcp.api import McpCall, McpCatalog, McpProblem, McpServerView
from owlclaw_ray.tools.mcp.options import McpOptions

_VERBOSE_LOGGERS = ("mcp", "client", "httpx2", "httpcore2")
"""Loggers of the SDK and its HTTP client, which would log addresses and traces. What goes wrong is logged here, without secrets."""


class McpPoolActor(RemoteActor):
    """A thin shell around McpPool. When its process dies, guards end the servers, and the next one starts them again."""

    def __init__(self, plan: RuntimePlan) -> None:
        from owlclaw_ray.tools.mcp.pool import McpPool

        take_over()
        configure(plan.worker.log)
        for name in _VERBOSE_LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        collect_rarely()
        self._pool = McpPool(
            plan.mcp or McpOptions(()),
            environ=dict(os.environ),  # noqa: TID251 - servers get what the configuration names of it
            clock=SystemClock(),
            jitter=random.random,
            incarnation=RandomIds().make("pool"),
            secret=secrets_at_keeper(plan.namespace),
        )
        self._starting = asyncio.create_task(self._pool.start())

    async def catalog(self, known: str, seconds: float) -> McpCatalog | None:
        """See McpNode.catalog."""
        return await self._pool.catalog(known, seconds)

    async def call(self, call: McpCall) -> JsonObject | McpProblem:
        """See McpServers.call."""
        return await self._pool.call(call)

    async def progress(self, keys: Collection[str]) -> Mapping[str, CallProgress]:
        """See McpNode.progress."""
        return await self._pool.progress(keys)

    async def servers(self) -> Sequence[McpServerView]:
        """See McpNode.servers."""
        return await self._pool.servers()

    async def stop(self) -> None:
        """End all servers."""
        await self._starting
        await self._pool.stop()
