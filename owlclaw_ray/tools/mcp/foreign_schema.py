"""Schemas that a server wrote, before a model reads them: its words are neutralised, what calls are made of is checked.

A model sends back names of properties, and values of enums, as it read them, and the server expects them as it wrote them. So these
are taken as they are or not at all; a default or an example that tries something is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.models.sanitise import inspect, neutralise, sanitise

DESCRIPTION_CHARACTERS = 4_096
_NAME_CHARACTERS = 200
_VALUE_CHARACTERS = 1_000
_BETWEEN_WORDS = re.compile(r"[\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SENT = ("enum", "pattern", "format", "required")
"""What of a schema, beside names of properties, calls are made of or checked by."""
_SHOWN = ("default", "examples")


def prose(text: str) -> str:
    """Return what a server says of itself, for a model."""
    return neutralise(text)[:DESCRIPTION_CHARACTERS]


def injection_in(text: str, most: int = _VALUE_CHARACTERS) -> str | None:
    """Return why a text cannot be passed on as it is; None if it can. Words are told apart however they are written together."""
    if len(text) > most:
        return f"is longer than {most} characters"
    if sanitise(text) != text:
        return "has hidden characters"
    found = inspect(text) or inspect(_BETWEEN_WORDS.sub(" ", _CAMEL.sub(" ", text)))
    return f"holds {found[0].attempt.value}" if found else None


def check_name(name: str, where: str) -> None:
    """Raise ConfigurationError for a name that tries to be more than one."""
    why = injection_in(name, _NAME_CHARACTERS)
    if why is not None:
        raise ConfigurationError([Problem(where, f"{sanitise(name)[:60]!r} {why}", "a server cannot name things so")])


def harmless_schema(schema: JsonObject, where: str) -> JsonObject:
    """Return a plain schema as a model may read it.

    Raises ConfigurationError for names and values that calls are made of, and that try to be more than that.
    """
    harmless: JsonObject = {}
    for key, value in schema.items():
        place = f"{where}.{key}"
        if key == "description":
            harmless[key] = prose(str(value))
        elif key == "properties":
            for name in value:
                check_name(name, f"{where}: the name of a property")
            harmless[key] = {name: harmless_schema(each, f"{place}.{name}") for name, each in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            harmless[key] = harmless_schema(value, place)
        elif key in _SHOWN:
            if all(injection_in(text) is None for text in _texts(value)):
                harmless[key] = value
        else:
            if key in _SENT:
                _check_values(value, place)
            harmless[key] = value
    return harmless


def _check_values(value: JsonValue, where: str) -> None:
    for text in _texts(value):
        why = injection_in(text)
        if why is not None:
            what = f"{sanitise(text)[:60]!r} {why}"
            raise ConfigurationError([Problem(where, what, "a model has to read it and send it back as it is")])


def _texts(value: JsonValue) -> Iterator[str]:
    """Yield all texts of a JSON value, names of objects' members too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _texts(each)
