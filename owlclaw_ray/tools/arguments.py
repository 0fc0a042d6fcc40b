"""Arguments of tools: one source gives the schema that models see and the check that runs before the handler (T3)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import orjson
from jsonschema import Draft202012Validator, ValidationError, validators
from jsonschema.protocols import Validator
from msgspec import Struct
from pydantic import BaseModel
from pydantic import ValidationError as ModelError

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.kernel.json_limits import KEPT, JsonLimitError, check_limits
from owlclaw_ray.tools.expression import expression

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


_KEPT_SCHEMAS = 4_096
"""Schemas, those that were used last."""


def validator_of(schema: JsonObject) -> Validator:
    """Return the validator of a schema: the same one for equal schemas."""
    return _compiled(orjson.dumps(schema))


def _search(_validator: Validator, pattern: str, instance: JsonValue, _schema: JsonObject) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not expression(pattern).found_in(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator: type[Validator] = validators.extend(Draft202012Validator, {"pattern": _search})  # type: ignore[no-untyped-call]
"""Matches patterns in linear time, and compiles each once."""


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _compiled(encoded: bytes) -> Validator:
    return _Validator(orjson.loads(encoded))


_MAX_DEPTH = 100
"""Levels of arguments, as of everything that is stored."""
_TOO_DEEP = "nested too deeply"


class HandlerArguments(Struct, frozen=True):
    """What a handler is called with."""

    positional: tuple[object, ...] = ()
    by_name: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Arguments:
    """The schema of a tool's arguments and the way from JSON text to a handler's parameters."""

    schema: JsonObject
    convert: Callable[[JsonObject], HandlerArguments]
    """Turns checked JSON into parameters; may raise pydantic's ValidationError for what a schema cannot say."""
    _validator: Validator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_validator", validator_of(self.schema))

    def read(self, tool: str, text: str) -> HandlerArguments:
        """Return the parameters, or raise ToolArgumentsError with a line a problem: path, what was given, what is allowed."""
        return self.read_object(tool, decode_arguments(tool, text))

    def read_object(self, tool: str, decoded: JsonObject) -> HandlerArguments:
        """As `read`, for arguments that are decoded already."""
        cleaned = _without_optional_nulls(decoded, self.schema)
        problems = _problems(self._validator, cleaned)
        if problems:
            raise ToolArgumentsError(tool, problems)
        try:
            return self.convert(cleaned)
        except ModelError as error:
            lines = [f"{_path(each['loc'])}: {each['msg']}" for each in error.errors()]
            raise ToolArgumentsError(tool, lines) from error


def decode_arguments(tool: str, text: str) -> JsonObject:
    """Return the JSON object that the text holds (none, for an empty text), or raise ToolArgumentsError."""
    try:
        decoded = json.loads(text, parse_constant=_refuse_constant) if text.strip() else {}
        check_limits(decoded)
    except JsonLimitError as error:
        line = f"{error.place.removeprefix('.') or 'arguments'}: it {error.what}; allowed: {KEPT}"
        raise ToolArgumentsError(tool, [line]) from error
    except (ValueError, RecursionError) as error:
        shown = text.encode("utf-8", "replace").decode()
        line = f"arguments: given {given(shown)}; allowed: one JSON object ({error or _TOO_DEEP})"
        raise ToolArgumentsError(tool, [line]) from error
    if not isinstance(decoded, dict):
        raise ToolArgumentsError(tool, [f"arguments: given {given(decoded)}; allowed: one JSON object"])
    return decoded


def argument_problems(schema: JsonObject, arguments: JsonObject) -> list[str]:
    """Return a line for each thing that is wrong with arguments for a tool of that schema."""
    return _problems(validator_of(schema), arguments)


def as_model(model: type[BaseModel]) -> Callable[[JsonObject], HandlerArguments]:
    """Return a conversion to one parameter, an instance of the model."""
    return lambda arguments: HandlerArguments(positional=(model.model_validate(arguments),))


def as_object(arguments: JsonObject) -> HandlerArguments:
    """Convert to one parameter, the JSON object itself."""
    return HandlerArguments(positional=(arguments,))


def _refuse_constant(constant: str) -> JsonValue:
    raise ValueError(f"{constant} is no JSON number")


def _without_optional_nulls(value: JsonValue, schema: JsonObject) -> JsonValue:
    """Drop nulls that stand for absent optional properties: models send them though no schema allows null."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_without_optional_nulls(each, schema["items"]) for each in value]
    if not isinstance(value, dict):
        return value
    properties, required = schema.get("properties", {}), schema.get("required", ())
    return {
        name: _without_optional_nulls(each, properties.get(name, {}))
        for name, each in value.items()
        if each is not None or name not in properties or name in required
    }


def _problems(validator: Validator, value: JsonObject) -> list[str]:
    lines: set[str] = set()
    for error in validator.iter_errors(value):
        path = list(error.absolute_path)
        schema: JsonObject = error.schema if isinstance(error.schema, dict) else {}
        properties = schema.get("properties", {})
        if error.validator == "required" and isinstance(error.instance, dict):
            for name in schema.get("required", ()):
                if name not in error.instance:
                    expected = allowed(properties.get(name, {}))
                    lines.add(f"{_path([*path, name])}: given nothing; allowed: {expected} (required)")
        elif error.validator == "additionalProperties" and isinstance(error.instance, dict):
            for name in error.instance.keys() - properties.keys():
                close = difflib.get_close_matches(name, properties, n=1)
                hint = f" (did you mean {close[0]}?)" if close else ""
                known = ", ".join(properties) or "nothing"
                lines.add(f"{_path([*path, name])}: unknown; allowed: {known}{hint}")
        else:
            lines.add(f"{_path(path)}: given {given(error.instance)}; allowed: {allowed(schema)}")
    return sorted(lines)


def _path(parts: Sequence[int | str]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".") or "arguments"
