"""Many clients that follow runs, in a process of their own: `python -m benchmarks.stream_clients URL`.

Every line on stdin is a list of run ids to open an event stream for, all at once; it is answered with `Opened` as a line of JSON
when every stream was answered. An empty list is answered with `Heard`: what was heard since it was last asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

_AT = b'"at":"'


@dataclass
class Opened:
    """What became of streams that were asked for together. Times are in seconds from then on."""

    answered_after: dict[int, list[float]] = field(default_factory=dict)
    """By status; 0 for a connection that was closed without an answer."""


@dataclass
class Heard:
    """What came over all streams."""

    latencies: list[float] = field(default_factory=list)
    """Seconds from each event's `at` to its arrival; events from before the opening do not count."""
    comments: int = 0
    ended: int = 0
    """Streams that the server closed."""


class _Stream(asyncio.Protocol):
    def __init__(self, request: bytes, began: float, answered: asyncio.Future[tuple[int, float]], heard: Heard) -> None:
        self._request, self._began, self._answered, self._heard = request, began, answered, heard
        self._opened = 0.0
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.time()  # noqa: TID251 - as the clock of the system that is measured
        if not self._answered.done():
            self._opened = now
            status = int(data[9:12])
            self._answered.set_result((status, time.monotonic() - self._began))
            if status != 200:
                self._transport.close()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b": keep-alive"):
                self._heard.comments += 1
            if line.startswith(b"event: end"):
                self._transport.close()
            at = line.find(_AT)
            if line.startswith(b"data:") and at >= 0:
                start = at + len(_AT)
                committed = datetime.fromisoformat(line[start : line.index(b'"', start)].decode()).timestamp()
                if committed > self._opened:
                    self._heard.latencies.append(now - committed)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_result((0, time.monotonic() - self._began))
        self._heard.ended += 1


async def _open(host: str, port: int, run_ids: list[str], heard: Heard) -> Opened:
    loop, began, opened = asyncio.get_running_loop(), time.monotonic(), Opened()

    async def one(run_id: str) -> tuple[int, float]:
        request = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        answered: asyncio.Future[tuple[int, float]] = loop.create_future()
        try:
            await loop.create_connection(lambda: _Stream(request, began, answered, heard), host, port)
        except OSError:
            return 0, time.monotonic() - began
        return await answered

    for status, seconds in await asyncio.gather(*map(one, run_ids)):
        opened.answered_after.setdefault(status, []).append(seconds)
    return opened


async def _serve(url: str) -> None:
    parts, heard = urlsplit(url), Heard()
    while line := await asyncio.to_thread(sys.stdin.readline):
        run_ids = json.loads(line)
        if run_ids:
            answer = asdict(await _open(parts.hostname or "", parts.port or 80, run_ids, heard))
        else:
            answer = asdict(heard)
            heard.latencies, heard.comments = [], 0
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
