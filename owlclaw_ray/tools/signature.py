"""Typed functions as tools: their parameters become a model, the model becomes a schema."""

from __future__ import annotations

import inspect
import re
import typing
import warnings
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any

from msgspec import Struct, field
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.json_schema import PydanticJsonSchemaWarning

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.tools.arguments import Arguments, HandlerArguments, as_model
from owlclaw_ray.tools.context import ToolContext
from owlclaw_ray.tools.schema import plain_schema

_SPHINX = re.compile(r":param(?: [^:]+)? (\w+):\s*(.*)")
_GOOGLE_START = re.compile(r"(Args|Arguments|Parameters|参数)[::]\s*")
_GOOGLE_ENTRY = re.compile(r"(\w+)(?:\s*\([^)]*\))?\s*[::]\s*(.*)")


class Docstring(Struct):
    """The parts that models read."""

    summary: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def parse_docstring(text: str) -> Docstring:
    """Read a docstring (cleaned, as inspect.getdoc gives it) in Google or Sphinx style; others give a summary only."""
    summary = text.strip().split("\n\n", 1)[0]
    first = summary.split("\n", 1)[0].strip()
    fields_only = first.startswith(":") or _GOOGLE_START.fullmatch(first)
    parsed = Docstring("" if fields_only else " ".join(summary.split()))
    lines = text.splitlines()
    name = ""
    for line in lines:
        found = _SPHINX.fullmatch(line.strip())
        if found:
            name = found[1]
            parsed.parameters[name] = found[2].strip()
        elif name and line[:1].isspace():
            parsed.parameters[name] = f"{parsed.parameters[name]} {line.strip()}".strip()
        else:
            name = ""
    for number, line in enumerate(lines):
        if _GOOGLE_START.fullmatch(line.strip()):
            _read_google(lines[number + 1 :], parsed.parameters)
    return parsed


def _read_google(lines: list[str], parameters: dict[str, str]) -> None:
    name, indent = "", 0
    for line in lines:
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if not stripped or depth == 0:
            return
        found = _GOOGLE_ENTRY.fullmatch(stripped)
        if found and (not indent or depth <= indent):
            name, indent = found[1], depth
            parameters[name] = found[2].strip()
        elif name:
            parameters[name] = f"{parameters[name]} {stripped}".strip()


_PREFIX = "given_"
_VARIADIC = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY}


class Parameters(Struct, frozen=True):
    """A function's parameters, told apart."""

    for_model: dict[str, inspect.Parameter]
    hints: dict[str, Any]
    context: str | None
    """The parameter that wants the ToolContext."""


def read_parameters(function: Callable[..., Any], where: str) -> Parameters:
    """Return the parameters of a function; raises ConfigurationError for annotations that cannot be resolved."""
    if not inspect.isroutine(function):
        raise ConfigurationError([Problem(where, f"{function!r} is no function", "decorate a def or an async def")])
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError([Problem(where, "yields", "a tool returns one result: collect it and return it")])
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        fix = "import the type where the module can see it at run time, not under TYPE_CHECKING or inside a function"
        raise ConfigurationError([Problem(where, f"an annotation cannot be resolved: {error}", fix)]) from error
    parameters = dict(inspect.signature(function).parameters)
    context = next(
        (name for name in parameters if ToolContext in (hints.get(name), *typing.get_args(hints.get(name)))), None
    )
    if context is not None:
        del parameters[context]
    return Parameters(parameters, hints, context)


def arguments_of_function(function: Callable[..., Any], parameters: Parameters, where: str) -> Arguments:
    """Return the arguments that a typed function takes."""
    problems = [
        *(
            Problem(f"{where}: {name}", "cannot be passed by name", "tools take named parameters only")
            for name, each in parameters.for_model.items()
            if each.kind in _VARIADIC
        ),
        *(
            Problem(f"{where}: {name}", "has no type annotation", f"write {name}: str, or whatever it is")
            for name in parameters.for_model
            if name not in parameters.hints
        ),
    ]
    if problems:
        raise ConfigurationError(problems)
    documented = parse_docstring(inspect.getdoc(function) or "").parameters
    fields: dict[str, Any] = {
        _PREFIX + name: _field(name, each, parameters.hints[name], documented.get(name))
        for name, each in parameters.for_model.items()
    }
    config = ConfigDict(extra="forbid", protected_namespaces=())
    try:
        model = create_model("Arguments", __config__=config, **fields)
        schema = schema_of_model(model, where)
    except (PydanticUserError, ConfigurationError) as error:
        found = [problem for name, field in fields.items() if (problem := _type_problem(name, field, where))]
        if not found and isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(found or [Problem(where, str(error).split("\n", 1)[0], _PLAIN_TYPES)]) from error
    return Arguments(schema, lambda arguments: _by_name(model, arguments))


def _type_problem(field: str, declared: Any, where: str) -> Problem | None:
    """Return what is wrong with the type of a parameter: nothing, if a schema can be made of it."""
    name, hint = field.removeprefix(_PREFIX), typing.get_args(declared[0])[0]
    fields: dict[str, Any] = {field: declared}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            create_model("Arguments", __config__=ConfigDict(protected_namespaces=()), **fields).model_json_schema()
    except PydanticUserError:
        shown = hint.__qualname__ if isinstance(hint, type) else str(hint)
        module = f"{hint.__module__}." if isinstance(hint, type) and hint.__module__ != "builtins" else ""
        what = f"is of the type {module}{shown}, which no model can write"
        return Problem(f"{where}: {name}", what, f"{_PLAIN_TYPES}; what only the application has is no parameter")
    return None


@cache
def arguments_of_model(model: type[BaseModel], tool: str) -> Arguments:
    """Return how a tool of the runtime reads its arguments: the same object each time, its schema not to be changed.

    The tool's definition says what it does, not the model's docstring.
    """
    schema = schema_of_model(model, f"tool {tool!r}")
    schema.pop("description", None)
    return Arguments(schema, as_model(model))


def schema_of_model(model: type[BaseModel], where: str) -> JsonObject:
    """Return the model's schema within the subset; raises ConfigurationError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PydanticJsonSchemaWarning)
            schema = model.model_json_schema()
    except (PydanticInvalidForJsonSchema, PydanticJsonSchemaWarning) as error:
        raise ConfigurationError([Problem(where, str(error).split("\n", 1)[0], _PLAIN_TYPES)]) from error
    return {"properties": {}, **plain_schema(schema, where)}


_PLAIN_TYPES = "use str, int, float, bool, list, dict, Literal, Enum, dataclasses or pydantic models"


def _field(name: str, parameter: inspect.Parameter, hint: Any, description: str | None) -> tuple[Any, Any]:
    default = parameter.default
    if default is inspect.Parameter.empty:
        bare = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
        optional = typing.get_origin(bare) in {typing.Union, UnionType} and NoneType in typing.get_args(bare)
        default = None if optional else ...
    declared = any(getattr(each, "description", None) for each in getattr(hint, "__metadata__", ()))
    info = Field(alias=name) if declared or not description else Field(alias=name, description=description)
    return Annotated[hint, info], default


def _by_name(model: type[BaseModel], arguments: JsonObject) -> HandlerArguments:
    instance = model.model_validate(arguments)
    names = type(instance).model_fields
    return HandlerArguments(by_name=tuple((name.removeprefix(_PREFIX), getattr(instance, name)) for name in names))
