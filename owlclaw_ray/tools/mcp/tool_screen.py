"""One tool that is not what the protocol says must not take the others away: the SDK refuses a list of tools as a whole.

So lists are looked at before the SDK sees them. A tool that it would refuse is replaced by one that it takes, of the same name,
which says in its `_meta` why nobody can be given it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, Tool
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.tools.mcp.server_tools import UNUSABLE

_METHOD = "tools/list"
_SHOWN = 3
"""Problems of one tool that are told."""


class ToolScreen:
    """Screens the lists of tools in one connection's answers."""

    def __init__(self) -> None:
        self.version = ""
        """Of the protocol. Nothing is screened before it is set: nothing is listed before it is agreed on."""

    @asynccontextmanager
    async def over(self, transport: Transport) -> AsyncIterator[Any]:
        """Return the transport, screened."""
        async with transport as (incoming, outgoing):
            yield _Screened(incoming, self), outgoing

    def screened(self, message: SessionMessage | Exception) -> SessionMessage | Exception:
        """Return the message with every tool in it one that the SDK takes; the message itself if it has no others."""
        if not self.version or isinstance(message, Exception) or not isinstance(message.message, JSONRPCResponse):
            return message
        result = message.message.result
        tools = result.get("tools")
        if not isinstance(tools, list) or not self._problem(result) or self._problem({**result, "tools": []}):
            return message
        taken = []
        for tool in tools:
            problem = self._problem({**result, "tools": [tool]})
            name = tool.get("name", "") if isinstance(tool, dict) else ""
            stand_in = {"name": str(name), "inputSchema": {"type": "object"}, "_meta": {UNUSABLE: problem}}
            taken.append(stand_in if problem else tool)
        answer = message.message.model_copy(update={"result": {**result, "tools": taken}})
        return replace(message, message=answer)

    def _problem(self, result: JsonObject) -> str:
        """Return why the SDK would refuse a list of tools, or the empty text."""
        try:
            validate_server_result(_METHOD, self.version, result)
            for tool in result["tools"]:
                Tool.model_validate(tool, by_name=False)
        except ValidationError as error:
            told = []
            for each in error.errors(include_url=False, include_context=False, include_input=False)[:_SHOWN]:
                place = each["loc"][2:] if each["loc"][:1] == ("tools",) else each["loc"]
                told.append(": ".join(filter(None, (".".join(map(str, place)), each["msg"]))))
            return "; ".join(told)
        except KeyError:
            return ""
        return ""


class _Screened:
    """Implements the SDK's ReadStream over another one."""

    def __init__(self, incoming: Any, screen: ToolScreen) -> None:
        self._incoming, self._screen = incoming, screen

    @property
    def last_context(self) -> Any:
        return getattr(self._incoming, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._screen.screened(await self._incoming.receive())

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
