"""Strings of a script with `{{ … }}` in them, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import orjson
from jinja2 import ChainableUndefined, StrictUndefined, TemplateSyntaxError, Undefined, UndefinedError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from owlclaw_ray.domain.json import JsonValue

Variables: TypeAlias = Mapping[str, Any]
Evaluate: TypeAlias = Callable[[Variables], JsonValue]

_MARKS = ("{{", "{%", "{#")


class TemplateError(ValueError):
    """A template is malformed, or cannot be computed from this conversation."""


class _Environment(ImmutableSandboxedEnvironment):
    """Shows JSON: `payload.items` is the key, not the method, and what is no text is printed as JSON."""

    def __init__(self, undefined: type[Undefined]) -> None:
        super().__init__(undefined=undefined, autoescape=False, finalize=as_text)
        self.filters["tojson"] = as_json

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


def as_json(value: JsonValue) -> str:
    """Return the value as JSON text."""
    return orjson.dumps(value, default=str).decode()


def as_text(value: JsonValue) -> str:
    """Return a text as it is, anything else as JSON."""
    if isinstance(value, Undefined):
        return str(value)
    return value if isinstance(value, str) else as_json(value)


_STRICT = _Environment(StrictUndefined)
_LENIENT = _Environment(ChainableUndefined)


def is_template(value: JsonValue) -> bool:
    """Return whether the value is, or has somewhere in it, a string to be computed."""
    match value:
        case str():
            return any(mark in value for mark in _MARKS)
        case dict():
            return any(is_template(item) for item in value.values())
        case list():
            return any(is_template(item) for item in value)
        case _:
            return False


def compile_value(value: JsonValue) -> Evaluate:
    """Return what computes the value from the conversation's variables. Raises TemplateError.

    A string that is one expression gives the expression's own value (a number, a list …); any other string gives text.
    Templates inside objects and lists are computed in place; keys stay as they are.
    """
    if not is_template(value):
        return lambda _: value
    match value:
        case dict():
            items = {key: compile_value(item) for key, item in value.items()}
            return lambda variables: {key: item(variables) for key, item in items.items()}
        case list():
            elements = [compile_value(item) for item in value]
            return lambda variables: [item(variables) for item in elements]
        case _:
            return _compile_string(value)


@lru_cache(maxsize=4096)
def compile_condition(expression: str) -> Callable[[Variables], bool]:
    """Return the check of whether the expression (written without braces) holds. About a missing value nothing holds."""
    evaluate = _expression(_LENIENT, expression)

    def holds(variables: Variables) -> bool:
        try:
            return bool(evaluate(variables))
        except UndefinedError:
            return False
        except Exception as error:
            raise TemplateError(f"{expression!r} cannot be computed: {error}") from error

    return holds


@lru_cache(maxsize=4096)
def _compile_string(source: str) -> Evaluate:
    text = source.strip()
    try:
        body = _STRICT.parse(text).body
    except TemplateSyntaxError as error:
        raise TemplateError(f"{source!r} is no template: {error}") from error
    evaluate: Callable[[Variables], Any]
    match body:
        case [nodes.Output(nodes=[only])] if not isinstance(only, nodes.TemplateData) and text.endswith("}}"):
            expression = text.removeprefix("{{").removesuffix("}}").removeprefix("-").removesuffix("-")
            evaluate = _expression(_STRICT, expression)
        case _:
            evaluate = _STRICT.from_string(source).render

    def computed(variables: Variables) -> JsonValue:
        try:
            value = evaluate(variables)
            return str(value) if isinstance(value, Undefined) else value
        except Exception as error:
            raise TemplateError(f"{source!r} cannot be computed: {error}") from error

    return computed


def _expression(environment: _Environment, source: str) -> Callable[[Variables], Any]:
    try:
        return environment.compile_expression(source, undefined_to_none=False)
    except TemplateSyntaxError as error:
        raise TemplateError(f"{source!r} is no expression: {error}") from error
