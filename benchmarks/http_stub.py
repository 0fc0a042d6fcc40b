"""An HTTP server on loopback that stands for somebody else's, as cheap as Python makes it: it must not be what is measured."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable
from typing import cast

from benchmarks import load

Answer = Callable[[bytes, bytes], bytes]
"""(head, body) of a request → the bytes of its response; none for one that is never answered."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class _Connection(asyncio.Protocol):
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
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
        self._transport.write(self._answer(head, body))


def serve(answer: Answer, path: str = "") -> None:
    """Say `ready` with the URL of `path`, and answer until SIGTERM."""
    load.run(_serve(answer, path))


async def _serve(answer: Answer, path: str) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    server = await loop.create_server(lambda: _Connection(answer), "127.0.0.1", 0)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}", flush=True)
    await stopping.wait()
    server.close()
