"""Schemas and given values in words, for models that have to correct a call."""

from __future__ import annotations

import json

from owlclaw_ray.domain.json import JsonObject, JsonValue

_SHOWN_CHARACTERS = 80


def allowed(schema: JsonObject) -> str:
    """Return what the schema allows, such as `integer, at least 1, at most 20`."""
    if "enum" in schema:
        return "one of " + ", ".join(given(value) for value in schema["enum"])
    parts = [str(schema.get("type", "any JSON value"))]
    parts += [words.format(schema[key]) for key, words in _BOUNDS if key in schema]
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict) and "type" in schema["items"]:
        parts[0] += f" of {schema['items']['type']}"
    if schema.get("type") == "object" and schema.get("properties"):
        parts.append("with " + ", ".join(schema["properties"]))
    return ", ".join(parts)


_BOUNDS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("pattern", "matching {}"),
    ("format", "in the format {}"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
)


def given(value: JsonValue) -> str:
    """Return the value as JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
