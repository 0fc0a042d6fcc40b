"""A run's journal as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
from starlette.requests import Request

from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import Problem, RetryableError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.ports.runtime import Runtime
from serve.errors import InvalidRequestError
from serve.representations import event_body

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
KEEP_ALIVE = b": keep-alive\n\n"
LAST_EVENT_ID = 999_999_999
"""The highest that is read."""


async def stream(
    runtime: Runtime, tenant: TenantId, run_id: RunId, after: int, keep_alive: float
) -> AsyncIterator[bytes]:
    """Yield the run's events over `after` as they are committed, then `event: end`.

    A comment goes out after every `keep_alive` seconds without one. When the runtime cannot answer, the stream ends
    without `end`: the client comes back with Last-Event-ID and misses nothing.
    """
    while True:
        try:
            watched = await runtime.watch(tenant, run_id, after, keep_alive)
        except RetryableError as error:
            yield b": interrupted: %s\n\n" % str(error).replace("\n", " ").encode()
            return
        if watched.entries:
            after = watched.entries[-1].seq
            yield b"".join(_event(entry) for entry in watched.entries)
        if watched.status.final:
            yield _end(watched.status)
            return
        if not watched.entries:
            yield KEEP_ALIVE


def last_event_id(request: Request) -> int:
    """Return the header Last-Event-ID, 0 without one; raises InvalidRequestError."""
    text = request.headers.get("last-event-id")
    if text is None:
        return 0
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise InvalidRequestError([Problem("header Last-Event-ID", f"is {text!r}", "the `id` of an event of this stream")])


def _event(entry: JournalEntry) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (entry.seq, entry.kind.value.encode(), orjson.dumps(event_body(entry)))


def _end(status: RunStatus) -> bytes:
    return b"event: end\ndata: %s\n\n" % orjson.dumps({"status": status.value})
