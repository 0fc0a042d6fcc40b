"""Settings from environment variables: `OWLCLAW_HTTP__PORT` is the key `http.port`."""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum

from msgspec import Struct, field
from pydantic import BaseModel

from owlclaw_ray.configuration.own_variables import KEYS_VARIABLE
from owlclaw_ray.domain.access_key import KEY_VARIABLE
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.errors import Problem

PREFIX = "OWLCLAW_"
NOT_SETTINGS = frozenset({"OWLCLAW_URL", KEY_VARIABLE, KEYS_VARIABLE})
"""Variables of the command line and the client, and secrets that no file may hold."""
_TEST_PREFIX = "OWLCLAW_TEST_"


class Form(Enum):
    """How a variable writes a setting."""

    TEXT = "text"
    LIST = "list"
    """JSON, or parts between commas."""
    MAPPING = "mapping"
    """JSON."""


_FORMS: dict[object, Form] = {tuple: Form.LIST, list: Form.LIST, dict: Form.MAPPING}


class Environment(Struct):
    """The settings that variables set. Empty variables count as absent."""

    values: dict[tuple[str, ...], JsonValue] = field(default_factory=dict)
    variables: dict[tuple[str, ...], str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    """Variables that name no setting."""

    @classmethod
    def of(cls, environ: Mapping[str, str], model: type[BaseModel]) -> Environment:
        """Read the variables; the model says which there are and which hold lists."""
        found = cls()
        known = _settings_of(model)
        for variable in sorted(environ):
            text = environ[variable].strip()
            if (
                not variable.startswith(PREFIX)
                or variable in NOT_SETTINGS
                or variable.startswith(_TEST_PREFIX)
                or not text
            ):
                continue
            path = tuple(variable.removeprefix(PREFIX).lower().split("__"))
            if path in known:
                value: JsonValue = text
                if known[path] is Form.LIST and not text.startswith("["):
                    value = [part.strip() for part in text.split(",")]
                elif known[path] is not Form.TEXT:
                    with suppress(ValueError):
                        value = json.loads(text)
                found.values[path], found.variables[path] = value, variable
            else:
                names = {"__".join(path): PREFIX + "__".join(path).upper() for path in known}
                close = difflib.get_close_matches(variable.removeprefix(PREFIX).lower(), names, n=1)
                example = f"unset it; the key http.port, for one, is {PREFIX}HTTP__PORT"
                fix = f"did you mean {names[close[0]]}?" if close else example
                found.problems.append(Problem(variable, "sets nothing: there is no such setting", fix))
        return found

    def over(self, data: JsonObject) -> JsonObject:
        """Return the data with the variables' values in it. A section that is no mapping is left for validation to refuse."""
        merged: JsonObject = {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}
        for path, value in self.values.items():
            section: JsonValue = merged
            for part in path[:-1]:
                if section.get(part) is None:
                    section[part] = {}
                section = section[part]
                if not isinstance(section, dict):
                    break
            else:
                section[path[-1]] = value
        return merged

    def variable_of(self, path: Sequence[str | int]) -> str | None:
        """Return the variable that set the value at the path, or something of which it is a part; None if none did."""
        parts = tuple(part for part in path if isinstance(part, str))
        begins = (parts[:end] for end in range(1, len(parts) + 1))
        return next((self.variables[each] for each in begins if each in self.variables), None)

    def where(self, path: Sequence[str | int]) -> str | None:
        """Return the variable that set the value at the path, if one did."""
        parts = tuple(part for part in path if isinstance(part, str))
        return self.variables.get(parts)


def _settings_of(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Form]:
    """Return the paths of all single settings, and the form of each."""
    found: dict[tuple[str, ...], Form] = {}
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            found |= _settings_of(info.annotation, (*prefix, name))
        else:
            found[*prefix, name] = _FORMS.get(typing.get_origin(info.annotation), Form.TEXT)
    return found
