"""A provider that answers at once: OpenAI's chat completions over HTTP.

A conversation without a tool's result gets a call of log_decision, any other a text. What it was first asked in each case it
writes down in its folder (`first.json`, `second.json`), so that others can ask the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from benchmarks.http_stub import serve

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


class _Provider:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: set[str] = set()

    def answer(self, _head: bytes, body: bytes) -> bytes:
        second = b'"role":"tool"' in body or b'"role": "tool"' in body
        self._write_down("second.json" if second else "first.json", body)
        return _SECOND if second else _FIRST

    def _write_down(self, name: str, body: bytes) -> None:
        if name not in self._written:
            self._written.add(name)
            (self._folder / name).write_bytes(body)


if __name__ == "__main__":
    serve(_Provider(Path(sys.argv[1])).answer, "/v1")
