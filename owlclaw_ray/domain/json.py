"""The types of JSON, for the edges where data has no better shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, list of JsonValue, or dict of str to JsonValue (mypy has no use for the recursive form here)."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object."""


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
