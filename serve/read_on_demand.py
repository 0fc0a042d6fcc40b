"""Large request bodies are read as the API asks for them, and not before.

Serve's replica reads every request to its end as soon as it comes, to notice when its client goes, and keeps what it has read in a queue
without a bound. So all large bodies that arrive at once would lie in its memory, however few of them BodyLimit lets in, and reading them
would keep its event loop from everything else. `ReadOnDemand` stands before that, in the replica's HTTP server, where Ray puts what a
variable in the environment names; `Demand` is the outermost part of the API. What is not asked for stays with HAProxy and the sender,
for the HTTP server reads no more than 64 KiB ahead.

In other processes, such as Serve's own proxy, nobody would ask: there is nothing of it there.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve as ray_serve
from ray.serve.exceptions import RayServeException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from owlclaw_ray.domain.json import LARGE

_BODY = "owlclaw.body_on_demand"


def of_replica() -> list[Any]:
    """Return the middleware of a replica's HTTP server; none where this process is no replica."""
    try:
        ray_serve.get_replica_context()
    except RayServeException:
        return []
    return [Middleware(ReadOnDemand)]


class ReadOnDemand:
    """ASGI middleware: of a body that is large, or whose size is unknown, no message is received until `Demand` asks for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http" and _may_be_large(scope):
            receive = scope[_BODY] = _BodyOnDemand(receive)
        await self._app(scope, receive, send)


class Demand:
    """ASGI middleware: asks for each message that is received within it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        body: _BodyOnDemand | None = scope.get(_BODY)
        if body is None:
            await self._app(scope, receive, send)
            return

        async def asking() -> Message:
            body.ask()
            return await receive()

        await self._app(scope, asking, send)


def _may_be_large(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return True
        if name == b"content-length":
            return value.isdigit() and int(value) > LARGE
    return False


class _BodyOnDemand:
    """`receive` of one request. Behind the body only the client's going is awaited, and that need not be asked for."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._asked, self._whole = receive, asyncio.Event(), False
        self._loop = asyncio.get_running_loop()

    def ask(self) -> None:
        """Have the next message read. Asking for it twice reads no more; any thread may ask."""
        self._loop.call_soon_threadsafe(self._asked.set)

    async def __call__(self) -> Message:
        if not self._whole:
            await self._asked.wait()
        message = await self._receive()
        self._asked.clear()
        self._whole = not message.get("more_body", False)
        return message
