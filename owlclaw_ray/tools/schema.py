"""The subset of JSON Schema that tools use (T3): how it is reached, checked and told in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.tools.expression import is_exponential

_TYPES = ("object", "string", "number", "integer", "boolean", "array")
_KEYWORDS = frozenset(
    {
        *("type", "enum", "required", "description", "properties", "items", "additionalProperties", "default"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "examples"),
    }
)
_DROPPED = frozenset({"title", "$schema", "$id", "$comment", "$defs", "definitions"})


def plain_schema(schema: JsonObject, where: str) -> JsonObject:
    """Return the schema within the subset: references inlined, titles dropped, `X or null` made X.

    Raises ConfigurationError with one problem for each keyword outside the subset, its path in `where`.
    """
    inlined = _Inliner(_mapping(schema.get("$defs")), where).inline(schema, "")
    problems = list(_subset_problems(inlined, "", where))
    if not problems and inlined.get("type") != "object":
        problems = [Problem(f"{where}: type", "is not 'object'", "arguments of a tool are one JSON object")]
    if not problems:
        try:
            encoded = orjson.dumps(inlined)
        except TypeError as error:
            what = f"cannot be sent to a model: {error}"
            raise ConfigurationError([Problem(where, what, "use JSON, its numbers within 64 bits")]) from error
        fault = _metaschema_fault(encoded)
        problems = [] if fault is None else [Problem(f"{where}: {fault[0]}", fault[1])]
    if problems:
        raise ConfigurationError(problems)
    return inlined


class _Inliner(Struct, frozen=True):
    """Puts definitions in the place of references to them."""

    definitions: JsonObject
    where: str

    def inline(self, node: JsonObject, path: str, inside: frozenset[str] = frozenset()) -> JsonObject:
        node = _without_null(node)
        name = str(node.get("$ref", "")).removeprefix("#/$defs/")
        if name in self.definitions:
            if name in inside:
                where, what = f"{self.where}: {_join(path, '$ref')}", f"refers to itself through {name}"
                raise ConfigurationError([Problem(where, what, "tools take no recursive types")])
            rest = {key: value for key, value in node.items() if key != "$ref"}
            return self.inline({**self.definitions[name], **rest}, path, inside | {name})
        return {key: self._below(key, value, path, inside) for key, value in node.items() if key not in _DROPPED}

    def _below(self, key: str, value: JsonValue, path: str, inside: frozenset[str]) -> JsonValue:
        if key == "properties" and isinstance(value, dict):
            return {
                name: self.inline(each, _join(path, key, name), inside) if isinstance(each, dict) else each
                for name, each in value.items()
            }
        if key in {"items", "additionalProperties"} and isinstance(value, dict):
            return self.inline(value, _join(path, key), inside)
        return value


def _without_null(node: JsonObject) -> JsonObject:
    """Return `anyOf [X, null]` as X and `const` as an enum of one; anything else as it is."""
    if "const" in node:
        node = {**{key: value for key, value in node.items() if key != "const"}, "enum": [node["const"]]}
    choices = node.get("anyOf")
    if not isinstance(choices, list):
        return node
    others = [each for each in choices if each != {"type": "null"}]
    if len(others) != 1 or len(choices) != 2 or not isinstance(others[0], dict):
        return node
    rest = {key: value for key, value in node.items() if key != "anyOf" and not (key == "default" and value is None)}
    return _without_null({**others[0], **rest})


def _subset_problems(node: JsonObject, path: str, where: str) -> Iterator[Problem]:
    for key in node.keys() - _KEYWORDS:
        fix = "use one of the types object, string, number, integer, boolean, array, with enum and the usual bounds"
        yield Problem(f"{where}: {_join(path, key)}", f"the keyword {key!r} is not supported in tool schemas", fix)
    if "type" in node and node["type"] not in _TYPES:
        what = f"{node['type']!r} is no type of a tool's schema"
        yield Problem(f"{where}: {_join(path, 'type')}", what, f"use one of {', '.join(_TYPES)}")
    for name, each in _mapping(node.get("properties")).items():
        below = _join(path, "properties", name)
        if not isinstance(each, dict) or not ({"type", "enum"} | (each.keys() - _KEYWORDS)) & each.keys():
            yield Problem(f"{where}: {below}", "has no type", "annotate it with a type other than Any")
        else:
            yield from _subset_problems(each, below, where)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _subset_problems(node[key], _join(path, key), where)
    pattern = node.get("pattern")
    if isinstance(pattern, str):
        place = f"{where}: {_join(path, 'pattern')}"
        try:
            re.compile(pattern)
        except re.error:
            yield Problem(place, f"{pattern!r} is no regular expression")
        else:
            if is_exponential(pattern):
                fix = "repeat no group that holds a repetition or alternatives, or do without look-around and back-references"
                yield Problem(place, f"{pattern!r} may take exponential time", fix)


@lru_cache(maxsize=4_096)
def _metaschema_fault(encoded: bytes) -> tuple[str, str] | None:
    """Return the path and the message of what is wrong; kept, because it takes a millisecond and every source is asked again."""
    try:
        Draft202012Validator.check_schema(orjson.loads(encoded))
    except SchemaError as error:
        return _join(*map(str, error.absolute_path)), error.message
    return None


def _mapping(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)
