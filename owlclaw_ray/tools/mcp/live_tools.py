"""Tools that come and go: what a host knows of them, and how it learns more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.tools.mcp.api import McpNode

SETTLE_SECONDS = 5.0
"""How long the first runs of a host wait for servers that are being started."""
START_SECONDS = 20.0
"""How long a run that goes on waits for a server whose tools it was begun with."""
_POLL_SECONDS = 25.0
_PREFIX = "mcp."
_PAUSE = 0.5

logger = logging.getLogger(__name__)


class McpCatalogWatcher:
    """Follows the MCP servers of its node. What a server last offered stays known while it is down: calls say that it is."""

    def __init__(self, node: McpNode, clock: Clock, learn: Callable[[tuple[ToolDefinition, ...]], None]) -> None:
        """`learn` is given all tools of all servers, whenever they are others."""
        self._node, self._clock, self._learn = node, clock, learn
        self._tools: dict[str, tuple[ToolDefinition, ...]] = {}
        self._settled, self._news = asyncio.Event(), asyncio.Event()

    async def settled(self, wanted: Collection[str] = ()) -> None:
        """Return when every server was reached, or failed to be, once; after a moment in any case, and then at once for good.

        A run that was begun with the tools `wanted` waits for those that no server has offered here yet, as long as a server
        may take to start: a call of theirs may be approved already.
        """
        if not self._settled.is_set():
            timer = self._clock.call_later(SETTLE_SECONDS, self._settled.set)
            try:
                await self._settled.wait()
            finally:
                timer.cancel()
        try:
            async with deadline(self._clock, START_SECONDS):
                while self._absent(wanted):
                    await self._news.wait()
        except TimeoutError:
            logger.warning("no server offers %s", ", ".join(self._absent(wanted)))

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
                known = {**self._tools, **catalog.tools}
                if known != self._tools:
                    self._tools = known
                    self._learn(tuple(tool for tools in known.values() for tool in tools))
                    news, self._news = self._news, asyncio.Event()
                    news.set()
                if catalog.settled:
                    self._settled.set()

    def _absent(self, wanted: Collection[str]) -> list[str]:
        live = [name for name in wanted if name.startswith(_PREFIX)]
        offered = {tool.name for tools in self._tools.values() for tool in tools} if live else set()
        return [name for name in live if name not in offered]
