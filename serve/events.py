"""A run's journal as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from owlclaw_ray.errors import NotFoundError, Problem, RetryableError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.followers import RunFollower
from owlclaw_ray.store.queries import RunProgress
from serve.errors import InvalidRequestError
from serve.parameters import PRINCIPAL
from serve.representations import event_body
from serve.streams import KeepAliveTimer, OpenRequestLimit

LAST_EVENT_ID = 999_999_999
"""The highest `Last-Event-ID`."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_KEEP_ALIVE = b": keep-alive\n\n"


def json_events(watched: RunProgress) -> bytes:
    """Return an event for each entry, and the last one if the run is over."""
    body = b"".join(
        b"id: %d\nevent: %s\ndata: %s\n\n" % (each.seq, each.kind.value.encode(), orjson.dumps(event_body(each)))
        for each in watched.entries
    )
    if watched.over:
        body += b"event: end\ndata: %s\n\n" % orjson.dumps({"status": watched.status.value})
    return body


class EventStream(Response):
    """The run's events after `after` as they are committed, then `event: end`, with comments between them.

    An unknown run, an unavailable store and too many streams are answered with problems, as for any request. When the store
    fails later, the stream ends without `end`: the client reconnects with Last-Event-ID and misses nothing. So it does if the run
    is removed before it was read to its end: there is no such run then. `form` writes the events.
    """

    def __init__(
        self,
        runtime: Runtime,
        tenant: TenantId,
        run_id: RunId,
        after: int,
        *,
        places: OpenRequestLimit,
        pulse: KeepAliveTimer,
        form: Callable[[RunProgress], bytes] = json_events,
    ) -> None:
        self._runtime, self._tenant, self._run_id, self._after = runtime, tenant, run_id, after
        self._places, self._pulse, self._form = places, pulse, form
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the run is over or the client disconnects."""
        with self._places.one(scope[PRINCIPAL]):
            async with AsyncExitStack() as following:
                async with self._places.opening:
                    follower = await following.enter_async_context(
                        self._runtime.follow(self._tenant, self._run_id, self._after)
                    )
                    first = await follower.next(0)
                    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})

                async def nudge_on_disconnect() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        continue
                    follower.nudge()

                gone = asyncio.create_task(nudge_on_disconnect())
                try:
                    with self._pulse.beating(follower):
                        await _stream_entries(first, follower, gone, send, self._form)
                finally:
                    gone.cancel()
        await send({"type": "http.response.body"})


async def _stream_entries(
    watched: RunProgress,
    follower: RunFollower,
    gone: asyncio.Task[None],
    send: Send,
    form: Callable[[RunProgress], bytes],
) -> None:
    while not gone.done():
        body = form(watched)
        await send({"type": "http.response.body", "body": body or _KEEP_ALIVE, "more_body": True})
        if watched.over:
            return
        try:
            watched = await follower.next()
        except RetryableError as error:
            interrupted = b": interrupted: %s\n\n" % str(error).replace("\n", " ").encode()
            await send({"type": "http.response.body", "body": interrupted, "more_body": True})
            return
        except NotFoundError:
            return


def last_event_id(request: Request) -> int:
    """Return the header Last-Event-ID, 0 without one; raises InvalidRequestError."""
    text = request.headers.get("last-event-id")
    if text is None:
        return 0
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise InvalidRequestError([Problem("header Last-Event-ID", f"is {text!r}", "the `id` of an event of this stream")])
