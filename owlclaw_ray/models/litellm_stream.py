"""What is in a reply of litellm, whether it came whole or in chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

from msgspec import Struct, field

Call: TypeAlias = tuple[str | None, str, str]
"""Id (None or empty if the provider gave none), name, arguments."""


class BrokenStreamError(Exception):
    """The stream ended before the model did; what came of it must not pass for a reply."""


class ReplyParts(Struct):
    """The parts of a reply that matter, `usage` in litellm's own form."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)
    usage: Any = None
    model: str = ""
    """As the provider calls it."""


async def collect(response: Any) -> ReplyParts:
    """Return the parts of a whole response, or of a stream after reading it to its end. Raises BrokenStreamError."""
    if hasattr(response, "choices"):
        return _whole(response)
    parts = await _streamed(response)
    if getattr(response, "received_finish_reason", "unknown") is None:
        raise BrokenStreamError("the stream ended in the middle of the reply")
    return parts


def _whole(response: Any) -> ReplyParts:
    message = response.choices[0].message
    calls = [(call.id, call.function.name or "", call.function.arguments or "") for call in message.tool_calls or ()]
    return ReplyParts(message.content or "", calls, getattr(response, "usage", None), response.model or "")


async def _streamed(chunks: AsyncIterator[Any]) -> ReplyParts:
    texts: list[str] = []
    calls = _CallDeltas()
    parts = ReplyParts()
    async for chunk in chunks:
        parts.usage = getattr(chunk, "usage", None) or parts.usage
        parts.model = chunk.model or parts.model
        for choice in chunk.choices:
            texts.append(choice.delta.content or "")
            for delta in choice.delta.tool_calls or ():
                calls.add(delta)
    parts.text, parts.calls = "".join(texts), calls.joined()
    return parts


class _CallDeltas:
    """Puts tool calls together by their index; a second name at an index begins another call, as some servers send it."""

    def __init__(self) -> None:
        self._calls: list[tuple[str | None, str, list[str]]] = []
        self._at: dict[int, int] = {}

    def add(self, delta: Any) -> None:
        index, name = delta.index or 0, delta.function.name
        if name or index not in self._at:
            self._at[index] = len(self._calls)
            self._calls.append((delta.id, name or "", []))
        self._calls[self._at[index]][2].append(delta.function.arguments or "")

    def joined(self) -> list[Call]:
        return [(call_id, name, "".join(pieces)) for call_id, name, pieces in self._calls]
