"""What browsers do that have pages of the console open, without browsers: they ask for a part of a page every few seconds, or follow a run.

Every page has a connection of its own, which stays. What is sent and read is HTTP/1.1 in its simplest form, so that the clients cost
little beside the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct, field


class Poll(Struct, frozen=True):
    """What a page asks for, and how often."""

    path: str
    every: float
    """Seconds."""


class Polled(Struct):
    """What became of all polls."""

    answered: int = 0
    failed: int = 0
    """Answers other than 200, and connections that ended."""
    bytes: int = 0
    seconds: list[float] = field(default_factory=list)
    """What each answer took."""


async def keep_open(url: str, pages: Sequence[Sequence[Poll]], seconds: float) -> Polled:
    """Have so many pages open for so long; the polls of many pages are spread evenly over their intervals."""
    polled, end = Polled(), time.monotonic() + seconds
    async with asyncio.TaskGroup() as clients:
        for at, page in enumerate(pages):
            for poll in page:
                clients.create_task(_poll(url, poll, at / len(pages), end, polled))
    return polled


async def _poll(url: str, poll: Poll, share: float, end: float, polled: Polled) -> None:
    await asyncio.sleep(poll.every * share)
    reader, writer = await _connected(url)
    due = time.monotonic()
    while due < end:
        began = time.monotonic()
        try:
            status, body = await _get(reader, writer, url, poll.path)
        except (OSError, asyncio.IncompleteReadError):
            polled.failed += 1
            writer.close()
            reader, writer = await _connected(url)
        else:
            polled.answered += status == 200
            polled.failed += status != 200
            polled.bytes += len(body)
            polled.seconds.append(time.monotonic() - began)
        due = max(due + poll.every, time.monotonic())
        await asyncio.sleep(min(due, end) - time.monotonic())
    writer.close()


class RunPageStream:
    """The event stream of a run's page."""

    def __init__(self, url: str, path: str) -> None:
        self._url, self._path = url, path
        self.heard: dict[int, float] = {}
        """When each entry came, in seconds of the system's clock, by its number; of those that came together the last alone has one."""
        self.opened = asyncio.Event()

    async def follow(self) -> None:
        """Follow the run until it is over."""
        reader, writer = await _connected(self._url)
        try:
            writer.write(_request(self._url, self._path))
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(head.partition(b"\r\n")[0].decode())
            self.opened.set()
            while line := await reader.readline():
                if line.startswith(b"id: "):
                    self.heard[int(line[4:])] = time.time()  # noqa: TID251 - as the clock of the system that is measured
                if line.startswith(b"event: end"):
                    return
        finally:
            writer.close()


async def with_streams_open(url: str, paths: Sequence[str], seconds: float) -> None:
    """Have these streams open for so long; raises a group with ConnectionError if one is refused, with TimeoutError if they do not open
    in time.
    """
    streams = [RunPageStream(url, path) for path in paths]
    async with asyncio.TaskGroup() as followers:
        tasks = [followers.create_task(each.follow()) for each in streams]
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.opened.wait() for each in streams))
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()


async def _connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    return await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 22)


def _request(url: str, path: str) -> bytes:
    host = urlsplit(url).netloc
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/problem+json\r\nAccept-Encoding: gzip\r\n\r\n".encode()


async def _get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str, path: str) -> tuple[int, bytes]:
    writer.write(_request(url, path))
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
    return int(head[9:12]), await reader.readexactly(int(length or 0))
