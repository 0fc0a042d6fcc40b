"""`{{field}}` in the arguments of declarative tools.

Every argument is replaced on its own: a value can become no second argument. A program that reads an argument as code, a shell above all,
gets no value in that argument: see ADR 39.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.tools.declarative.commands import WordRole, roles

_FIELD = re.compile(r"\{\{([^{}]*)\}\}")
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def fields_of(text: str) -> tuple[str, ...]:
    """Return the fields that a text names, in order."""
    return tuple(found[1] for found in _FIELD.finditer(text))


def field_problem(name: str, schema: JsonObject) -> str:
    """Return why a field cannot be used in a command, or nothing."""
    properties = schema.get("properties", {})
    if name not in properties:
        return f"{{{{{name}}}}} is no property of input_schema; there are: {', '.join(properties) or 'none'}"
    node = properties[name]
    if node.get("type") not in _SCALARS:
        return f"{{{{{name}}}}} is of type {node.get('type')}: only {', '.join(sorted(_SCALARS))} can be put into a command"
    if name not in schema.get("required", ()) and "default" not in node:
        return f"{{{{{name}}}}} may be absent: make it required, or give it a default"
    return ""


def code_with_field(command: str, args: Sequence[str]) -> int | None:
    """Return the place of the first argument that a program runs, or that says what it runs, and that holds a field; None if
    there is none.
    """
    told = zip(args, roles([command, *args])[1:], strict=True)
    return next((place for place, (arg, role) in enumerate(told) if role is WordRole.CODE and fields_of(arg)), None)


def program_of_stdin(command: str, args: Sequence[str]) -> int | None:
    """Return the place, from the command on, of the first program that would run what comes on its stdin; None if there is none."""
    return next((place for place, role in enumerate(roles([command, *args])) if role is WordRole.STDIN), None)


def filled_arguments(tool: str, command: str, args: Sequence[str], arguments: JsonObject) -> list[str]:
    """Return the argument list. Raises ToolArgumentsError for a value that the program would take for an option."""
    filled: list[str] = []
    for arg, role in zip(args, roles([command, *args])[1:], strict=True):
        first = _FIELD.match(arg)
        text = _FIELD.sub(lambda found: _text(tool, found[1], arguments[found[1]]), arg)
        if first is not None and role is not WordRole.FREE:
            _refuse_option(tool, first[1], text)
        filled.append(text)
    return filled


def with_defaults(arguments: JsonObject, schema: JsonObject) -> JsonObject:
    """Return the arguments with the defaults of what is absent."""
    properties = schema.get("properties", {})
    return {name: node["default"] for name, node in properties.items() if "default" in node} | arguments


def _refuse_option(tool: str, name: str, text: str) -> None:
    if text.startswith("-"):
        raise ToolArgumentsError(tool, [f"{name}: begins with '-', and the program would take it for an option"])


def _text(tool: str, name: str, value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if "\0" in text:
        raise ToolArgumentsError(tool, [f"{name}: holds a NUL character, which no program can be given"])
    return text
