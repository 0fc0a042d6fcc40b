"""What Serve's own proxy says of the API while that is not deployed: 503, and not 404, which clients take for the last word.

Between the start of Serve and the deployment of the application, and while it is being deleted, its proxy knows no route. A variable in the
environment of each node (`node_environment`) has Ray put what `of_proxy` returns into its proxies.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from owlclaw_ray.errors import RuntimeUnavailableError
from serve.problems import problem_of
from serve.read_on_demand import of_replica

_PATHS = ("/v1/", "/console", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json")
_NO_ROUTE = b"' not found. Ping http://.../-/routes for available routes."


def of_proxy() -> list[Any]:
    """Return the middleware of a proxy, and of replicas that HAProxy reaches without it."""
    return [Middleware(UntilDeployed), *of_replica()]


class UntilDeployed:
    """ASGI middleware that answers for the API as long as the proxy has no route for its paths."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and its answer, unless that is the proxy's own 404."""
        if scope["type"] != "http" or not scope["path"].startswith(_PATHS):
            await self._app(scope, receive, send)
            return
        begin: Message | None = None
        answered = False

        async def replacing(message: Message) -> None:
            nonlocal begin, answered
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.NOT_FOUND:
                begin = message
            elif begin is None:
                await send(message)
            elif not answered and message.get("body", b"").endswith(_NO_ROUTE):
                answered = True
                unavailable = RuntimeUnavailableError("the API is not deployed yet, or not any more: try again soon")
                await problem_of(unavailable, scope["path"]).response(scope["path"])(scope, receive, send)
            elif not answered:
                begun, begin = begin, None
                await send(begun)
                await send(message)

        await self._app(scope, receive, replacing)
