"""Limits of request bodies: of each of them, and of all of them at once.

A body of 1 MiB becomes 7 to 21 MB of objects while it is parsed, and blocks everything else in the process for that long. So bodies
over 64 KiB (LARGE) share a budget of bytes: beyond it a request is answered 503 before its body is read. Of those that were read one
is passed on at a time, with a pause after it in which small requests are served: a handler parses a body as soon as it gets it, and
keeps it as text. Small bodies are bounded by the number of requests at once.

Bodies of public operations, which anybody can send and can send slowly, have a budget of their own, a quarter as large: they take no room
from requests with a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from owlclaw_ray.domain.json import LARGE
from serve.access_gate import ANYBODY
from serve.errors import BodiesOverloadedError, BodyTimeoutError, BodyTooLargeError
from serve.parameters import PRINCIPAL
from serve.problems import problem_of

BODIES_AT_ONCE = 32 * 1024 * 1024
_PUBLIC_PART = 4
_REST_SECONDS = 25e-9
"""Pause after a large body, for each of its bytes: two to three times as long as parsing it takes."""
_HANDLED = "owlclaw.body_handled"


def body_handled(scope: Scope) -> None:
    """Release the request's share of the budget before its response is sent."""
    release: Callable[[], None] | None = scope.get(_HANDLED)
    if release is not None:
        release()


class BodyLimit:
    """ASGI middleware: a larger Content-Length is answered 413 at once; a larger stream ends in BodyTooLargeError, and one that is
    not over after `seconds` in BodyTimeoutError.

    Where large bodies take `at_once` bytes already, a further one is answered 503 at once, or ends in BodiesOverloadedError. An error
    is raised from `receive`, in the handler that reads, so that it becomes a response as any other error does.
    """

    def __init__(self, app: ASGIApp, limit: int, seconds: float, at_once: int = BODIES_AT_ONCE) -> None:
        self._app, self._limit, self._seconds = app, limit, seconds
        self._bodies = _LargeBodies(max(at_once, limit), turns := _Turns())
        self._public = _LargeBodies(max(at_once // _PUBLIC_PART, limit), turns)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        bodies = self._public if scope.get(PRINCIPAL) is ANYBODY else self._bodies
        body = _Body(receive, self._limit, self._seconds, bodies)
        try:
            length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
            body.expect(int(length) if length.isdigit() else 0)
        except (BodyTooLargeError, BodiesOverloadedError) as error:
            await problem_of(error).response(scope["path"])(scope, receive, send)
            return
        scope[_HANDLED] = body.release
        try:
            await self._app(scope, body, send)
        finally:
            body.release()


class _Turns:
    """A queue for parsing large bodies one at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._rests_until = 0.0

    async def wait(self, size: int) -> None:
        """Return when the caller may parse that many bytes, which it must do before it awaits anything."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(max(0.0, self._rests_until - loop.time()))
            self._rests_until = loop.time() + size * _REST_SECONDS


class _LargeBodies:
    """The bytes that large bodies use."""

    def __init__(self, most: int, turns: _Turns) -> None:
        self._most, self._taken, self.turns = most, 0, turns

    def take(self, size: int) -> None:
        if self._taken + size > self._most:
            raise BodiesOverloadedError
        self._taken += size

    def give_back(self, size: int) -> None:
        self._taken -= size


class _Body:
    """`receive` of one request."""

    def __init__(self, receive: Receive, limit: int, seconds: float, bodies: _LargeBodies) -> None:
        self._receive, self._limit, self._bodies = receive, limit, bodies
        self._seconds, self._deadline = seconds, asyncio.get_running_loop().time() + seconds
        self._size = self._taken = 0
        self._whole = False

    def expect(self, size: int) -> None:
        """Reserve that many bytes in all; raises BodyTooLargeError, BodiesOverloadedError."""
        if size > self._limit:
            raise BodyTooLargeError(self._limit)
        if size > max(LARGE, self._taken):
            self._bodies.take(size - self._taken)
            self._taken = size

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise BodyTimeoutError(self._seconds) from None
        self._size += len(message.get("body", b""))
        self.expect(self._size)
        self._whole = not message.get("more_body", False)
        if self._whole and self._taken:
            await self._bodies.turns.wait(self._size)
        return message

    def release(self) -> None:
        """Give the bytes back; does nothing the second time."""
        self._bodies.give_back(self._taken)
        self._taken = 0
