"""Shorter forms of texts and JSON that say what is missing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from owlclaw_ray.domain.json import JsonValue

_CUT = " …[{} characters cut]… "
_LEFT_OUT = "…[{} more left out]…"


def cut_values(value: JsonValue, size: int) -> JsonValue:
    """Return JSON whose texts have `size` characters at most, and whose lists and objects as many items; marks say what is missing."""
    match value:
        case str():
            return cut_text(value, size)
        case list() | tuple():
            items = [cut_values(each, size) for each in value[:size]]
            return items if len(value) <= size else [*items, _LEFT_OUT.format(len(value) - size)]
        case dict():
            kept = {key: cut_values(each, size) for key, each in islice(value.items(), size)}
            return kept if len(value) <= size else kept | {_LEFT_OUT.format(len(value) - size): True}
        case _:
            return value


def cut_text(text: str, size: int, mark: Callable[[int], str] = _CUT.format) -> str:
    """Return the text, or, if it has more than `size` characters, that many of its beginning and end around a mark.

    The mark is made of how many characters are missing.
    """
    if len(text) <= size:
        return text
    head = head_length(size)
    return text[:head] + mark(len(text) - size) + (text[head - size :] if head < size else "")


def head_length(size: int) -> int:
    """Return how many of `size` characters that are kept of a longer text are of its beginning."""
    return size - size // 3
