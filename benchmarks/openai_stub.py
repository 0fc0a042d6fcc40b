"""A provider that answers at once: OpenAI's chat completions over HTTP, as cheap as Python makes it.

A conversation without a tool's result gets a call of log_decision, any other a text. What it was first asked in each case it
writes down in its folder (`first.json`, `second.json`), so that others can ask the same.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path
from typing import cast

import orjson

from benchmarks import load

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "log_decision", "arguments": '{"reasoning":"a benchmark","decision_type":"no_action"}'},
}


def _response(message: dict[str, object], reason: str) -> bytes:
    body = orjson.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": "gpt-4o-mini",
            "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}],
            "usage": {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920},
        }
    )
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


_FIRST = _response({"content": None, "tool_calls": [_CALL]}, "tool_calls")
_SECOND = _response({"content": "done"}, "stop")


class _Conversation(asyncio.Protocol):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
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
        second = b'"role":"tool"' in body or b'"role": "tool"' in body
        self._write_down(self._folder / ("second.json" if second else "first.json"), body)
        assert self._transport is not None
        self._transport.write(_SECOND if second else _FIRST)

    def _write_down(self, path: Path, body: bytes) -> None:
        if path.name not in _WRITTEN:
            _WRITTEN.add(path.name)
            path.write_bytes(body)


_WRITTEN: set[str] = set()


async def _serve(folder: Path) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    server = await loop.create_server(lambda: _Conversation(folder), "127.0.0.1", 0)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await stopping.wait()
    server.close()


if __name__ == "__main__":
    load.run(_serve(Path(sys.argv[1])))
