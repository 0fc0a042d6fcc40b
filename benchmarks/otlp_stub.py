"""A receiver of traces that takes everything at once; below `/hang` it never answers."""

from __future__ import annotations

from benchmarks.http_stub import serve

HANGING = "/hang"
_TAKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def _take(head: bytes, _body: bytes) -> bytes:
    return b"" if head.startswith(f"POST {HANGING}".encode()) else _TAKEN


if __name__ == "__main__":
    serve(_take)
