"""What the arguments of a call must be, as people read it who change them: the first level of the tool's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from console.text import json_text
from owlclaw_ray.domain.json import JsonObject

_DEPTH = 3
"""Levels of a schema that its words tell of: lists of lists, and choices among choices."""
_LIMITS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("minLength", "length at least {}"),
    ("maxLength", "length at most {}"),
    ("minItems", "length at least {}"),
    ("maxItems", "length at most {}"),
    ("pattern", "matching {}"),
    ("format", "{}"),
)


class ArgumentField(Struct, frozen=True):
    """One argument of a tool."""

    name: str
    kind: str
    """Its type and limits in words; empty if the schema says nothing of them."""
    required: bool
    about: str


def argument_fields(schema: JsonObject) -> Sequence[ArgumentField]:
    """Return the arguments that a schema names, in its order; none if it names none."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return ()
    needed = required if isinstance(required, list) else ()
    return [
        ArgumentField(name, _words(each, 0), name in needed, str(each.get("description", "")))
        for name, each in properties.items()
        if isinstance(each, dict)
    ]


def _words(schema: Any, depth: int) -> str:
    if not isinstance(schema, dict) or depth >= _DEPTH:
        return ""
    if "const" in schema:
        return json_text(schema["const"])
    if isinstance(schema.get("enum"), list):
        return f"one of {', '.join(map(json_text, schema['enum']))}"
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list):
            return " or ".join(filter(None, dict.fromkeys(_words(each, depth + 1) for each in schema[name])))
    kinds = schema.get("type")
    kind = " or ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds or "")
    if kind == "array" and (items := _words(schema.get("items"), depth + 1)):
        kind = f"list of {items}"
    return ", ".join(filter(None, (kind, *_limits(schema))))


def _limits(schema: Mapping[str, Any]) -> Sequence[str]:
    return [words.format(schema[name]) for name, words in _LIMITS if isinstance(schema.get(name), (int, float, str))]
