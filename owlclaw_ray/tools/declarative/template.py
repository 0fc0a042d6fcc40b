"""`{{field}}` in the arguments of declarative tools.

Every argument is replaced on its own: a value can become no second argument. A program that reads an argument as code, a shell above all,
gets no value in that argument: see ADR 35.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import ToolArgumentsError

_FIELD = re.compile(r"\{\{([^{}]*)\}\}")
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_READS_CODE = re.compile(
    r"(?:ba|da|a|z|k|mk|pdk|c|tc|fi|ya|o)?sh|busybox|python[0-9.]*|pypy[0-9.]*|perl[0-9.]*|ruby[0-9.]*|node|nodejs|deno|bun|php[0-9.]*|lua[0-9.]*"
    r"|tclsh|[gmn]?awk|g?sed|osascript|pwsh|ssh|eval|source|xargs|parallel|su|script|watch|find"
)
"""Programs that run what an argument says."""
_THROUGHOUT = frozenset({"ssh", "eval", "source", "xargs", "parallel", "su", "script", "watch", "find"})
"""Those of them that run what any of their arguments says."""


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
    """Return the place of the argument that a program may run as code and that holds a field; None if there is none.

    Of an interpreter it is all up to the first argument that is no option: its code, or the file of it. What comes after are the
    arguments of that code. A program that another one starts (`env`, `timeout`, `nice`) is found by its name.
    """
    words = [command, *args]
    for place, word in enumerate(words):
        name = PurePath(word).name
        if not _READS_CODE.fullmatch(name):
            continue
        for after, each in enumerate(words[place + 1 :], place + 1):
            if fields_of(each):
                return after - 1
            if not each.startswith(("-", "+")) and name not in _THROUGHOUT:
                break
    return None


def filled_arguments(tool: str, args: Iterable[str], arguments: JsonObject) -> list[str]:
    """Return the argument list. Raises ToolArgumentsError for a value that the program would take for an option."""
    filled: list[str] = []
    for arg in args:
        first = _FIELD.match(arg)
        text = _FIELD.sub(lambda found: _text(tool, found[1], arguments[found[1]]), arg)
        if first is not None and "--" not in filled:
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
