"""Reading server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct


class ServerSentEvent(Struct, frozen=True):
    """One event; `event` is empty for a plain message."""

    event: str
    data: bytes


async def parse(chunks: AsyncIterator[bytes]) -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a stream; one that is cut off in the middle is dropped.

    Lines end in LF, with or without CR before it, and nowhere else: JSON may hold other line separators as they are.
    """
    event, data = "", list[bytes]()
    async for line in _lines(chunks):
        if line:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"event":
                event = value.decode()
            elif name == b"data":
                data.append(value)
            continue
        if data:
            yield ServerSentEvent(event, b"\n".join(data))
        event, data = "", []


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
