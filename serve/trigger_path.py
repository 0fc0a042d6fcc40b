"""The way of a trigger to its handler, which leads past the router: this is the hot path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.triggers import PATH

_BEGINNING, _END = PATH.split("{agent}")


class TriggerPath:
    """ASGI middleware around the router: calls the handler of triggers itself, and has `on_error` answer those of its `errors`.

    What FastAPI does for each request around any handler is a fifth of all that is done here for a trigger.
    """

    def __init__(
        self,
        app: ASGIApp,
        handler: Callable[[Request], Awaitable[Response]],
        errors: tuple[type[Exception], ...],
        on_error: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self._app, self._handler, self._errors, self._on_error = app, handler, errors, on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a trigger, or pass the request on."""
        agent = _agent_of(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else ""
        if not agent or scope.get("root_path"):  # the router knows where the root ends
            await self._app(scope, receive, send)
            return
        scope["path_params"] = {"agent": agent}
        request = Request(scope, receive, send)
        try:
            response = await self._handler(request)
        except self._errors as error:
            response = await self._on_error(request, error)
        await response(scope, receive, send)


def _agent_of(path: str) -> str:
    """Return the agent that a path of triggers names, empty for another path."""
    if not (path.startswith(_BEGINNING) and path.endswith(_END)):
        return ""
    agent = path[len(_BEGINNING) : -len(_END)]
    return "" if "/" in agent else agent
