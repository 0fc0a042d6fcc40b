"""Somebody who is told of runs' ends: a real HTTP server on loopback that misbehaves as it is told."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Hang:
    """No answer until the client goes away."""


class Close:
    """The connection is closed instead of an answer."""


class Endless:
    """A 200 whose body never ends."""


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    def __init__(self):
        self.behaviours = deque()
        self.received = []
        self.port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/ended"

    async def serve(self, reader, writer):
        try:
            self.received.append(await self._request(reader))
            behaviour = self.behaviours.popleft() if self.behaviours else Answer()
            match behaviour:
                case Hang():
                    await reader.read()
                case Endless():
                    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                    while True:
                        writer.write(b"4\r\nmore\r\n")
                        await writer.drain()
                        await asyncio.sleep(0)
                case Answer(status, headers, body):
                    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
                    lines += [f"{name}: {value}" for name, value in headers.items()]
                    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                    await writer.drain()
                case Close():
                    pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _request(self, reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) if ": " in line else (line, "") for line in head[1:] if line)
        cased = {line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in head[1:] if line}
        body = await reader.readexactly(int(headers["content-length"]))
        return Received(head[0].split()[1], cased, body)


@asynccontextmanager
async def receiving():
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
