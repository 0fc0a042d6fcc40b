"""Output of unknown length in bounded memory: its beginning and its end."""

from __future__ import annotations


class BoundedText:
    """Takes bytes as they come and keeps at most `limit` of them: the first half and the last."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Bytes that came."""

    def add(self, data: bytes) -> None:
        """Take more."""
        self.total += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    @property
    def left_out(self) -> int:
        """Bytes that came and are not kept."""
        return self.total - len(self._head) - len(self._tail)

    def whole(self) -> bytes | None:
        """Return everything, or None if something is left out."""
        return None if self.left_out else bytes(self._head + self._tail)

    def text(self) -> str:
        """Return what is kept as text, with a mark where something is left out; what is no UTF-8 is replaced."""
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = self._head.decode("utf-8", "ignore"), self._tail.decode("utf-8", "ignore")
        return f"{head}\n…[{self.left_out} bytes left out]…\n{tail}"
