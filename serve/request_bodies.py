"""JSON bodies of requests, checked against their types in `wire`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, NotRequired, TypeVar, cast, get_args, get_origin, get_type_hints

import orjson
from msgspec import Meta, Struct, ValidationError, convert

from owlclaw_ray import wire
from owlclaw_ray.counting import counted
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.errors import Problem
from owlclaw_ray.kernel.json_limits import KEPT, JsonLimitError
from owlclaw_ray.kernel.json_limits import read_json as read_limited
from serve.errors import InvalidRequestError, MalformedJsonError

Body = TypeVar("Body")
_SHOWN = 80
"""The longest JSON that a message repeats."""


class _Field(Struct, frozen=True):
    type: Any
    right: str
    """What a value must be, in words."""
    required: bool
    unseen: bool
    """Whether no message repeats a value."""
    checks: tuple[Callable[[Any], object], ...]
    """Further checks of a value of the type: they raise ValueError."""


def read_json(body: bytes) -> JsonValue:
    """Return the JSON of a body; raises MalformedJsonError, or InvalidRequestError with the place of what cannot be kept."""
    try:
        return read_limited(body)
    except JsonLimitError as error:
        raise InvalidRequestError([Problem(f"body{error.place}", error.what, KEPT)]) from None
    except orjson.JSONDecodeError as error:
        raise MalformedJsonError.at(error) from None


def read_body(body: bytes, shape: type[Body]) -> Body:
    """Return the body as that TypedDict of `wire`; an empty body is an empty object.

    Raises MalformedJsonError, or InvalidRequestError with everything that is wrong.
    """
    return checked(read_json(body or b"{}"), shape)


def checked(value: JsonValue, shape: type[Body]) -> Body:
    """Return the value as that TypedDict of `wire`; raises InvalidRequestError with everything that is wrong."""
    kind: Any = shape
    fields = _fields(kind)
    if isinstance(value, dict) and value.keys() <= fields.keys() and not _has_checks(kind):
        try:
            return convert(value, shape)
        except ValidationError:  # the checks of each field below tell what is wrong, and whether anything is
            pass
    if not isinstance(value, dict):
        what = f"must be a JSON object, not {_kind(value)}"
        right = f"an object with {', '.join(fields)}"
        if "payload" in fields:
            right = 'put it into a field: {"payload": …}'
        raise InvalidRequestError([Problem("body", what, right)])
    problems = []
    for name in filter(lambda each: each not in fields, value):
        close = difflib.get_close_matches(name, fields, 1)
        fix = f"did you mean {close[0]}?" if close else f"known fields: {', '.join(fields)}"
        problems.append(Problem(f"body.{name}", "unknown field", fix))
    found: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            try:
                given, kind = value[name], get_args(field.type)[:1]
                if kind == (int,):
                    given = _whole(given)
                elif isinstance(given, dict) and get_origin(*kind or (None,)) is dict:
                    given = {key: _whole(each) for key, each in given.items()}
                found[name] = convert(given, field.type)
                for check in field.checks:
                    check(found[name])
            except (ValidationError, ValueError):
                problems.append(
                    Problem(f"body.{name}", "cannot be used" if field.unseen else _shown(value[name]), field.right)
                )
        elif field.required:
            problems.append(Problem(f"body.{name}", "is missing", field.right))
    if problems:
        raise InvalidRequestError(problems)
    return cast("Body", found)


def _whole(value: JsonValue) -> JsonValue:
    """Return 5 for 5.0, which is the same in JSON: that has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache
def _has_checks(shape: Any) -> bool:
    """Return whether a field of the type has checks besides it."""
    return any(each.checks for each in _fields(shape).values())


@cache
def _fields(shape: Any) -> Mapping[str, _Field]:
    found = {}
    for name, hint in get_type_hints(shape, include_extras=True).items():
        kind, required = (get_args(hint)[0], False) if get_origin(hint) is NotRequired else (hint, True)
        said = kind.__metadata__ if get_origin(kind) is Annotated else ()
        right = next((each.description for each in said if isinstance(each, Meta)), None)
        unseen = any(wire.NOT_SHOWN in (each.extra or {}) for each in said if isinstance(each, Meta))
        checks = tuple(each for each in said if callable(each))
        found[name] = _Field(kind, right or "any JSON", required, unseen, checks)
    return found


def _shown(value: JsonValue) -> str:
    text = orjson.dumps(value).decode()
    if len(text) <= _SHOWN:
        return f"is {text}"
    if isinstance(value, str):
        return f"is a text of {counted(len(value), 'character')}"
    if isinstance(value, list):
        return f"is an array of {counted(len(value), 'item')}"
    return f"is {_kind(value)}"


def _kind(value: JsonValue) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "an array", dict: "an object"}
    return kinds.get(value.__class__, "null")
