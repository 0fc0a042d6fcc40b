"""What is in a reply of litellm, whether it came whole or in chunks."""

from __future__ import annotations

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
        message = response.choices[0].message
        calls = [
            (each.id, each.function.name or "", each.function.arguments or "") for each in message.tool_calls or ()
        ]
        return ReplyParts(message.content or "", calls, getattr(response, "usage", None), response.model or "")
    parts = ReplyParts()
    texts: list[str] = []
    begun: list[tuple[str | None, str, list[str]]] = []
    arguments: dict[int, list[str]] = {}
    async for chunk in response:
        parts.usage = getattr(chunk, "usage", None) or parts.usage
        parts.model = chunk.model or parts.model
        for choice in chunk.choices:
            texts.append(choice.delta.content or "")
            for delta in choice.delta.tool_calls or ():
                index, name = delta.index or 0, delta.function.name
                if (
                    name or index not in arguments
                ):  # a second name at an index begins another call, as some servers send it
                    arguments[index] = []
                    begun.append((delta.id, name or "", arguments[index]))
                arguments[index].append(delta.function.arguments or "")
    if getattr(response, "received_finish_reason", "unknown") is None:
        raise BrokenStreamError("the stream ended in the middle of the reply")
    parts.text = "".join(texts)
    parts.calls = [(call_id, name, "".join(pieces)) for call_id, name, pieces in begun]
    return parts
