"""A load generator that costs little: keep-alive connections over asyncio streams, one request at a time on each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class LoadResult:
    """What was accepted, and how long each answer took (seconds)."""

    accepted: int = 0
    refused: int = 0
    broken: int = 0
    """Connections that ended without an answer: that request was committed, or not."""
    latencies: list[float] = field(default_factory=list)


async def post_for(url: str, paths: Iterator[str], *, body: bytes, connections: int, seconds: float) -> LoadResult:
    """POST `body` to the next path on each of the connections again and again until the time is up."""
    result = LoadResult()
    end = time.monotonic() + seconds
    await asyncio.gather(*(_connection(url, paths, body, end, result) for _ in range(connections)))
    return result


async def _connection(url: str, paths: Iterator[str], body: bytes, end: float, result: LoadResult) -> None:
    while time.monotonic() < end:
        try:
            await _requests(url, paths, body, end, result)
        except (OSError, EOFError):
            result.broken += 1


async def _requests(url: str, paths: Iterator[str], body: bytes, end: float, result: LoadResult) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        while time.monotonic() < end:
            started = time.monotonic()
            head = f"POST {next(paths)} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            status = await _answer(reader)
            result.latencies.append(time.monotonic() - started)
            if status == 202:
                result.accepted += 1
            else:
                result.refused += 1
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = head.split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length"))
    await reader.readexactly(length)
    return int(lines[0].split()[1])
