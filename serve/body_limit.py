"""Refuses request bodies over a limit, without reading them."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import BodyTooLargeError
from serve.problems import problem_of


class BodyLimit:
    """ASGI middleware: a larger Content-Length is answered 413 at once; a larger stream ends in BodyTooLargeError.

    The error is raised from `receive`, in the handler that reads, so that it becomes a response as any other error does.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
        elif _content_length(scope) > self._limit:
            response = problem_of(BodyTooLargeError(self._limit)).response(scope["path"])
            await response(scope, receive, send)
        else:
            await self._app(scope, _Counted(receive, self._limit), send)


class _Counted:
    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._size = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            raise BodyTooLargeError(self._limit)
        return message


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
