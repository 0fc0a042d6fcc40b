"""A load generator that costs little: keep-alive connections, one request at a time on each, no HTTP library."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

T = TypeVar("T")

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after: *(\d+)", re.IGNORECASE)
_PAUSE = 0.1
"""Seconds before the next request on a connection whose last one was refused without saying when to come back."""
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_NO_ROOM_PAUSE = 0.005


@dataclass
class LoadResult:
    """What was accepted, and how long each acceptance took (seconds)."""

    accepted: int = 0
    refused: int = 0
    """Answers other than 2xx; the connection then waited as long as `Retry-After` told it to."""
    broken: int = 0
    """Connections that ended without an answer: that request was committed, or not."""
    latencies: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    retry_after: float


async def post_for(
    url: str,
    paths: Iterator[str],
    *,
    body: bytes,
    connections: int,
    seconds: float = float("inf"),
    room: Callable[[LoadResult], bool] = lambda _: True,
    key: str = "",
) -> LoadResult:
    """POST `body` to the next path on each of the connections again and again, with the access key if there is one.

    It ends when the time is up, or the paths are. While `room` says no to what was accepted so far, nothing is sent.
    """
    parts = urlsplit(url)
    load = _Load(
        parts.hostname or "", parts.port or 80, paths, body, time.monotonic() + seconds, room, _authorization(key)
    )
    await asyncio.gather(*(load.keep_posting() for _ in range(connections)))
    return load.result


async def post_at(
    url: str,
    paths: Iterator[str],
    *,
    body: bytes,
    connections: int,
    times: Iterator[float],
    key: str = "",
) -> LoadResult:
    """POST `body` to a path at each of these times, in seconds from now, whether or not earlier ones were answered.

    One that finds no free connection is sent late; its answer is waited for since its time all the same.
    """
    parts, begun = urlsplit(url), time.monotonic()
    load = _TimedLoad(
        parts.hostname or "",
        parts.port or 80,
        paths,
        body,
        float("inf"),
        lambda _: True,
        _authorization(key),
        times=(begun + each for each in times),
    )
    await asyncio.gather(*(load.keep_posting() for _ in range(connections)))
    return load.result


def _authorization(key: str) -> str:
    return f"Authorization: Bearer {key}\r\n" if key else ""


def run(load: Coroutine[Any, Any, T]) -> T:
    """Run the load in an event loop of its own, the fastest that is installed. A signal ends it, then does what it always does."""
    signals: list[int] = []
    try:
        with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
            return runner.run(_until_a_signal(load, signals))
    except asyncio.CancelledError:
        for number in signals[:1]:
            signal.raise_signal(number)
        raise


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


async def _until_a_signal(load: Coroutine[Any, Any, T], signals: list[int]) -> T:
    """Await the load; a signal cancels it. What a signal's handler raises in the middle of a callback, uvloop would swallow."""
    if threading.current_thread() is not threading.main_thread():
        return await load
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int) -> None:
        signals.append(number)
        task.cancel()

    for number in before:
        loop.add_signal_handler(number, stop, number)
    try:
        return await load
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@dataclass
class _Load:
    host: str
    port: int
    paths: Iterator[str]
    body: bytes
    end: float
    room: Callable[[LoadResult], bool]
    authorization: str
    """The header with its end, or nothing."""
    result: LoadResult = field(default_factory=LoadResult)

    async def keep_posting(self) -> None:
        """Use one connection after the other until there is nothing left to do."""
        connection: _Connection | None = None
        try:
            while following := await self._next():
                try:
                    if connection is None or connection.ending:
                        connection = await self._connect()
                    await self._post(connection, *following)
                except OSError:
                    self.result.broken += 1
                    await asyncio.sleep(_PAUSE)
        finally:
            if connection is not None:
                connection.close()

    async def _next(self) -> tuple[str, float] | None:
        """Return the next path, and since when its answer is waited for; None at the end."""
        while time.monotonic() < self.end:
            if self.room(self.result):
                path = next(self.paths, None)
                return None if path is None else (path, time.monotonic())
            await asyncio.sleep(_NO_ROOM_PAUSE)
        return None

    async def _connect(self) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, self.host, self.port)
        return connection

    async def _post(self, connection: _Connection, path: str, since: float) -> None:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
            f"{self.authorization}Content-Length: {len(self.body)}\r\n\r\n"
        )
        response = await connection.ask(head.encode() + self.body)
        if 200 <= response.status < 300:
            self.result.accepted += 1
            self.result.latencies.append(time.monotonic() - since)
        else:
            self.result.refused += 1
            await asyncio.sleep(min(response.retry_after, max(0.0, self.end - time.monotonic())))


@dataclass(kw_only=True)
class _TimedLoad(_Load):
    times: Iterator[float]

    async def _next(self) -> tuple[str, float] | None:
        at, path = next(self.times, None), next(self.paths, None)
        if at is None or path is None:
            return None
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        return path, at


class _Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self) -> None:
        self.ending = False
        """Whether it has ended, or the server said that it will: a request more would not be answered."""
        self._received = b""
        self._answer: asyncio.Future[_Response] | None = None
        self._transport: asyncio.Transport | None = None

    def ask(self, request: bytes) -> asyncio.Future[_Response]:
        """Send the request; the response, or ConnectionError if the connection ends before it."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._received = b""
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are, but do not say so

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or self._answer is None or self._answer.done():
            return
        length = _LENGTH.search(head)
        if length is None:
            self._answer.set_exception(ConnectionError("an answer without Content-Length"))
            self.close()
        elif len(body) >= int(length[1]):
            if _CLOSE.search(head):  # a proxy that is replaced by its successor says this to all
                self.ending = True
                self.close()
            later = _RETRY_AFTER.search(head)
            self._answer.set_result(_Response(int(head[9:12]), float(later[1]) if later else _PAUSE))

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.ending = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the connection ended without an answer"))
