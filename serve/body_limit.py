"""Refuses request bodies over a limit, without reading them, and those that do not come in time."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import BodyTimeoutError, BodyTooLargeError
from serve.problems import problem_of


class BodyLimit:
    """ASGI middleware: a larger Content-Length is answered 413 at once; a larger stream ends in BodyTooLargeError, and one that is
    not over after `seconds` in BodyTimeoutError.

    The errors are raised from `receive`, in the handler that reads, so that they become responses as any other error does.
    """

    def __init__(self, app: ASGIApp, limit: int, seconds: float) -> None:
        self._app = app
        self._limit, self._seconds = limit, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
        elif _content_length(scope) > self._limit:
            response = problem_of(BodyTooLargeError(self._limit)).response(scope["path"])
            await response(scope, receive, send)
        else:
            await self._app(scope, _Limited(receive, self._limit, self._seconds), send)


class _Limited:
    def __init__(self, receive: Receive, limit: int, seconds: float) -> None:
        self._receive = receive
        self._limit, self._seconds = limit, seconds
        self._size, self._over = 0, False
        self._deadline = asyncio.get_running_loop().time() + seconds

    async def __call__(self) -> Message:
        if self._over:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise BodyTimeoutError(self._seconds) from None
        self._over = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            raise BodyTooLargeError(self._limit)
        return message


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
