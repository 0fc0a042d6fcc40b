"""The types of JSON, for the edges where data has no better shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import orjson

LARGE = 64 * 1024
"""Bytes of JSON beyond which a value is carried as text."""

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, list of JsonValue, or dict of str to JsonValue (mypy has no use for the recursive form here)."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object."""


class JsonText:
    """A JSON value as text: a tenth, at times a twentieth, of the memory of its objects, and nobody parses it on the way.

    No struct, so that encoders tell it from an object with a text.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonText) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def value(self) -> JsonValue:
        """Return the value, parsed anew each time."""
        return orjson.loads(self.text)


def texts_in(value: JsonValue) -> Iterator[str]:
    """Yield the strings of a JSON value, those at any depth too; not the names in objects."""
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from texts_in(each)
        case dict():
            for each in value.values():
                yield from texts_in(each)
