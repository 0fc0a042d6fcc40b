"""`{{field}}` in the commands of declarative tools.

In an argument list every argument is replaced on its own: a value can become no second argument. In a shell's text a value
never becomes a part of the text: the field stands for a positional parameter in quotes, and the value is passed beside the
text, so that no quoting can go wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import ToolArgumentsError

_FIELD = re.compile(r"\{\{([^{}]*)\}\}")
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_EVALUATES = re.compile(r"\$\(\(|\[\[|\b(?:eval|let|declare|typeset)\b")
_SEPARATOR = re.compile(r"[;&|()`\n]")
_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|`(?:\\.|[^`\\])*`", re.DOTALL)


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


def is_within_quotes(text: str) -> bool:
    """Return whether a shell's text names a field inside quotes, where it would be quoted twice."""
    return any(_FIELD.search(quoted[0]) for quoted in _QUOTED.finditer(text))


def evaluates_again(text: str) -> str:
    """Return what in a shell's text would evaluate a parameter's value as code, or nothing."""
    found = _EVALUATES.search(text)
    return found[0] if found else ""


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


def shell_command(tool: str, text: str, arguments: JsonObject) -> Sequence[str]:
    """Return how the shell is started: its text with parameters in the place of fields, then their values."""
    names = list(dict.fromkeys(fields_of(text)))
    for found in _FIELD.finditer(text):
        if not _ends_options(text[: found.start()]):
            _refuse_option(tool, found[1], _text(tool, found[1], arguments[found[1]]))
    parametrised = _FIELD.sub(lambda found: f'"${{{names.index(found[1]) + 1}}}"', text)
    return ["/bin/sh", "-c", parametrised, tool, *(_text(tool, name, arguments[name]) for name in names)]


def with_defaults(arguments: JsonObject, schema: JsonObject) -> JsonObject:
    """Return the arguments with the defaults of what is absent."""
    properties = schema.get("properties", {})
    return {name: node["default"] for name, node in properties.items() if "default" in node} | arguments


def _ends_options(text: str) -> bool:
    """Return whether the last command of a shell's text has had its ` -- `."""
    command = _SEPARATOR.split(_QUOTED.sub("_", text))[-1]
    return " -- " in command


def _refuse_option(tool: str, name: str, text: str) -> None:
    if text.startswith("-"):
        raise ToolArgumentsError(tool, [f"{name}: begins with '-', and the program would take it for an option"])


def _text(tool: str, name: str, value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if "\0" in text:
        raise ToolArgumentsError(tool, [f"{name}: holds a NUL character, which no program can be given"])
    return text
