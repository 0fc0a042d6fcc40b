"""Tools that come and go: what a host knows of them, and how it learns more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.mcp import McpCatalog, McpNode

SETTLE_SECONDS = 5.0
"""How long the first runs of a host wait for servers that are being started."""
_POLL_SECONDS = 25.0
_PAUSE = 0.5

logger = logging.getLogger(__name__)


class LiveTools:
    """Follows the MCP servers of its node. What a server last offered stays known while it is down: calls say that it is."""

    def __init__(self, node: McpNode, clock: Clock, learn: Callable[[tuple[ToolDefinition, ...]], None]) -> None:
        """`learn` is given all tools of all servers, whenever they are others."""
        self._node, self._clock, self._learn = node, clock, learn
        self._tools: dict[str, tuple[ToolDefinition, ...]] = {}
        self._settled = asyncio.Event()

    async def settled(self) -> None:
        """Return when every server was reached, or failed to be, once; after a moment in any case, and then at once for good."""
        if self._settled.is_set():
            return
        timer = self._clock.call_later(SETTLE_SECONDS, self._settled.set)
        try:
            await self._settled.wait()
        finally:
            timer.cancel()

    async def follow(self) -> None:
        """Learn what changes, until cancelled."""
        version = ""
        while True:
            try:
                catalog = await self._node.catalog(version, _POLL_SECONDS)
            except RuntimeUnavailableError as error:
                logger.info("the tools of MCP servers stay as they were: %s", error)
                await self._clock.sleep(_PAUSE)
                continue
            except Exception:
                logger.exception("the tools of MCP servers cannot be asked for; the next try comes in %g s", _PAUSE)
                await self._clock.sleep(_PAUSE)
                continue
            if catalog is not None:
                version = catalog.version
                self._take(catalog)

    def _take(self, catalog: McpCatalog) -> None:
        known = {**self._tools, **catalog.tools}
        if known != self._tools:
            self._tools = known
            self._learn(tuple(tool for tools in known.values() for tool in tools))
        if catalog.settled:
            self._settled.set()
