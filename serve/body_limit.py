"""Limits of request bodies: of each of them, and of all of them at once.

A body of 1 MiB becomes 7 to 21 MB of objects while it is parsed, and blocks everything else in the process for that long. So bodies
over 64 KiB (LARGE) need one of a few places, as many as bodies of the largest size fit into the budget. A further one is not read before
its turn: tenants take turns, below them keys, and one key holds half of the places at most, one tenant three quarters of them. Of those
that were read one is passed on at a time, with a pause after it in which small requests are served: a handler parses a body as soon as
it gets it, and keeps it as text. Small bodies are bounded by the number of requests at once. A body of unknown size is small until it is
large.

Bodies of public operations, which anybody can send and can send slowly, have places of their own, a quarter as many: they take no room
from requests with a key. Of these one address holds half at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.kernel.fair_order import Owner
from owlclaw_ray.kernel.fair_queue import FairQueue
from serve.access_gate import ANYBODY
from serve.errors import BodiesOverloadedError, BodyTimeoutError, BodyTooLargeError
from serve.parameters import PRINCIPAL
from serve.problems import problem_of

BODIES_AT_ONCE = 32 * 1024 * 1024
_PUBLIC_PART = 4
_WAIT_SECONDS = 30.0
"""How long a request with a large body may wait for its turn."""
_REST = 2.5
"""Pause after a large body, as a multiple of the time that it kept the event loop from others."""
_HANDLED = "owlclaw.body_handled"


def body_handled(scope: Scope) -> None:
    """Release the request's place before its response is sent."""
    release: Callable[[], None] | None = scope.get(_HANDLED)
    if release is not None:
        release()


class BodyLimit:
    """ASGI middleware: a larger Content-Length is answered 413 at once; a larger stream ends in BodyTooLargeError, and one that is
    not over after `seconds` in BodyTimeoutError.

    A large body that has no place within 30 seconds ends in BodiesOverloadedError. An error is raised from `receive`, in the handler
    that reads, so that it becomes a response as any other error does. What no handler reads takes no place.
    """

    def __init__(self, app: ASGIApp, limit: int, seconds: float, at_once: int = BODIES_AT_ONCE) -> None:
        self._app, self._limit, self._seconds, self._turns = app, limit, seconds, _Turns()
        most = max(1, at_once // limit)
        self._places, self._public = (
            FairQueue(each, max(1, each // 2)) for each in (most, max(1, most // _PUBLIC_PART))
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        length = int(given) if given.isdigit() else 0
        if length > self._limit:
            await problem_of(BodyTooLargeError(self._limit)).response(scope["path"])(scope, receive, send)
            return
        places = self._public if scope.get(PRINCIPAL) is ANYBODY else self._places
        place = _BodyPlace(places, scope.get(PRINCIPAL, ANYBODY), scope.get("client"))
        body = _Body(receive, length, place, self._turns, limit=self._limit, seconds=self._seconds)
        scope[_HANDLED] = place.release
        try:
            await self._app(scope, body, send)
        finally:
            place.release()


class _Turns:
    """A queue for parsing large bodies one at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._rests_until = 0.0

    async def wait(self) -> None:
        """Return when the caller may parse a body, which it must do before it awaits anything."""
        loop = asyncio.get_running_loop()
        await self._turn.acquire()
        try:
            await asyncio.sleep(max(0.0, self._rests_until - loop.time()))
        except asyncio.CancelledError:
            self._turn.release()
            raise
        loop.call_soon(self._rest, loop.time())  # it comes when the caller has awaited something

    def _rest(self, began: float) -> None:
        now = asyncio.get_running_loop().time()
        self._rests_until = now + _REST * (now - began)
        self._turn.release()


class _BodyPlace:
    """The place of one request's body, if it is large. The request's scope refers to it: it must not refer to the scope."""

    def __init__(self, places: FairQueue, principal: Principal, client: tuple[str, int] | None) -> None:
        self._places, self._principal, self._client = places, principal, client
        self._holder: Owner | None = None

    @property
    def held(self) -> bool:
        """Whether it is held."""
        return self._holder is not None

    async def take(self) -> None:
        """Hold it, after waiting for it; raises BodiesOverloadedError."""
        owner = self._owner()
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._places.take(owner)
        except TimeoutError:
            raise BodiesOverloadedError from None
        self._holder = owner

    def release(self) -> None:
        """Give it back; does nothing the second time."""
        if self._holder is not None:
            owner, self._holder = self._holder, None
            self._places.give_back(owner)

    def _owner(self) -> Owner:
        """Return by whom places are shared out: keys and people, below their tenants, or the addresses of those who are nobody."""
        if self._principal is ANYBODY:
            host, _ = self._client or ("", 0)
            return DEFAULT_TENANT, host
        return self._principal.tenant, (self._principal.kind, self._principal.id)


class _Body:
    """`receive` of one request."""

    def __init__(
        self, receive: Receive, length: int, place: _BodyPlace, turns: _Turns, *, limit: int, seconds: float
    ) -> None:
        self._receive, self._length, self._limit, self._place, self._turns = receive, length, limit, place, turns
        self._seconds, self._deadline = seconds, asyncio.get_running_loop().time() + seconds
        self._size = 0
        self._whole = False

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        if self._length > LARGE:
            await self._reserve()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise BodyTimeoutError(self._seconds) from None
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            raise BodyTooLargeError(self._limit)
        if self._size > LARGE:
            await self._reserve()
        self._whole = not message.get("more_body", False)
        if self._whole and self._place.held:
            await self._turns.wait()
        return message

    async def _reserve(self) -> None:
        """Have a place. The sender's time does not run while it waits for one."""
        if not self._place.held:
            loop = asyncio.get_running_loop()
            began = loop.time()
            await self._place.take()
            self._deadline += loop.time() - began
