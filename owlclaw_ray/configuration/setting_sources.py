"""Settings as they are in force: the value of each, where it comes from, and nothing that may be a secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum

from msgspec import Struct
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from owlclaw_ray.configuration.environment import Environment
from owlclaw_ray.configuration.placeholders import PLACEHOLDER
from owlclaw_ray.configuration.section import CONFIDENTIAL
from owlclaw_ray.configuration.yaml_document import KeyPath, YamlDocument, dotted
from owlclaw_ray.domain.json import JsonValue

NOT_SHOWN = "(not shown)"
_USER = re.compile(r"://.*@", re.DOTALL)
_OPTIONS = re.compile(r"[?#]")


class SettingSource(Enum):
    """Where a setting comes from."""

    FILE = "file"
    VARIABLE = "variable"
    DEFAULT = "default"


class SettingInForce(Struct, frozen=True):
    """A setting that holds."""

    path: str
    """Such as `http.port`."""
    value: JsonValue
    source: SettingSource
    where: str
    """The variable, or the file with the line; empty for a default."""


def settings_in_force(
    settings: BaseModel,
    model: type[BaseModel],
    environment: Environment,
    document: YamlDocument,
    redact: Callable[[JsonValue], JsonValue],
) -> Iterator[SettingInForce]:
    """Yield each single setting that the model knows, as these settings have it. `redact` takes what looks like a secret out of a value."""
    for path, written, confidential in _leaves(settings, model, ()):
        value = _withheld(written) if confidential else redact(_without_logins(written))
        if variable := environment.variable_of(path):
            yield SettingInForce(dotted(path), value, SettingSource.VARIABLE, variable)
        elif document.has(path):
            yield SettingInForce(dotted(path), value, SettingSource.FILE, document.line_of(path))
        else:
            yield SettingInForce(dotted(path), value, SettingSource.DEFAULT, "")


def _leaves(section: BaseModel, model: type[BaseModel], path: KeyPath) -> Iterator[tuple[KeyPath, JsonValue, bool]]:
    """Yield the path and the value of each single setting, and whether a secret may be written in it."""
    for name, info in model.model_fields.items():
        value, here = getattr(section, name), (*path, name)
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, tuple) else ()
        inner = [(key, each) for key, each in parts if isinstance(each, BaseModel)]
        if isinstance(value, BaseModel):
            yield from _leaves(value, type(value), here)
        elif inner:
            for key, each in inner:
                yield from _leaves(each, type(each), (*here, key))
        else:
            confidential = CONFIDENTIAL in info.metadata or isinstance(value, SecretStr)
            yield here, to_jsonable_python(value), confidential


def _withheld(value: JsonValue) -> JsonValue:
    """Return which variables the texts of a value name, and nothing else of them."""
    match value:
        case str():
            return " ".join(found[0] for found in PLACEHOLDER.finditer(value)) or NOT_SHOWN
        case dict():
            return {key: _withheld(each) for key, each in value.items()}
        case list():
            return [_withheld(each) for each in value]
        case _:
            return value


def _without_logins(value: JsonValue) -> JsonValue:
    """Return a value with no user, password and options in its addresses.

    An address with an `@` behind a `?` or `#` is not shown: nobody knows where its password ends.
    """
    match value:
        case str() if "://" in value:
            address, *options = _OPTIONS.split(value, maxsplit=1)
            return NOT_SHOWN if any("@" in each for each in options) else _USER.sub("://", address)
        case dict():
            return {key: _without_logins(each) for key, each in value.items()}
        case list():
            return [_without_logins(each) for each in value]
        case _:
            return value
