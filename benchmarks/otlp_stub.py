"""A receiver of traces that takes everything at once, as cheap as Python makes it; below `/hang` it never answers."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import cast

from benchmarks import load

HANGING = "/hang"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TAKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class _Delivery(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or length is None or len(body) < int(length[1]):
            return
        self._received = b""
        assert self._transport is not None
        if not head.startswith(f"POST {HANGING}".encode()):
            self._transport.write(_TAKEN)


async def _serve() -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    server = await loop.create_server(_Delivery, "127.0.0.1", 0)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stopping.wait()
    server.close()


if __name__ == "__main__":
    load.run(_serve())
