"""Ways to the pool of MCP servers of one's own node. This module imports nothing heavy: agent actors import it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from actors.remote import MCP_POOL, NamedActor
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import CallProgress
from owlclaw_ray.tools.mcp.api import McpCall, McpCatalog, McpProblem, McpServerView

_ANSWER_SECONDS = 10.0
"""What the pool may take longer than the server."""


class McpLink:
    """Implements McpNode."""

    def __init__(self, namespace: str) -> None:
        self._pool = NamedActor(MCP_POOL, namespace)

    async def catalog(self, known: str, seconds: float) -> McpCatalog | None:
        """See McpNode.catalog."""
        return await self._pool.call.catalog(known, seconds)

    async def progress(self, keys: Collection[str]) -> Mapping[str, CallProgress]:
        """See McpNode.progress."""
        return await self._pool.call.progress(keys)

    async def servers(self) -> Sequence[McpServerView]:
        """See McpNode.servers."""
        return await self._pool.call.servers()


class McpWorkerLink:
    """Implements McpServers from inside a tool worker."""

    def __init__(self, namespace: str) -> None:
        self._pool = NamedActor(MCP_POOL, namespace)

    def catalog(self, known: str) -> McpCatalog | None:
        """See McpServers.catalog."""
        return self._pool.call_now(lambda pool: pool.catalog(known, 0.0), _ANSWER_SECONDS)

    def call(self, call: McpCall) -> JsonObject | McpProblem:
        """See McpServers.call."""
        return self._pool.call_now(lambda pool: pool.call(call), call.seconds + _ANSWER_SECONDS)
