"""What a model says is wrong with a configuration, as problems with places and corrections."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Sequence
from enum import Enum

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from owlclaw_ray.errors import Problem

_SHOWN_CHARACTERS = 60


def model_problems(
    error: ValidationError, model: type[BaseModel], where: Callable[[Sequence[str | int]], str]
) -> list[Problem]:
    """Return one problem for each error of the validation; `where` turns a path into a place."""
    return [_problem(each, model, where) for each in error.errors()]


def _problem(error: ErrorDetails, model: type[BaseModel], where: Callable[[Sequence[str | int]], str]) -> Problem:
    path = error["loc"]
    place = where(path)
    if error["type"] == "extra_forbidden":
        known = _keys(_model_at(model, path[:-1]))
        close = difflib.get_close_matches(str(path[-1]), known, n=1)
        fix = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
        return Problem(place, "there is no such key", fix)
    if error["type"] == "missing":
        return Problem(place, "is missing")
    if error["type"] in {"model_type", "model_attributes_type", "dict_type"}:
        known = _keys(_model_at(model, path))
        return Problem(place, f"is {_shown(error['input'])}", f"it must be a mapping with: {', '.join(known)}")
    if error["type"] in {"value_error", "assertion_error"}:
        # a validator of ours raises what is wrong and, if it says so apart, what would be right
        raised = error["ctx"]["error"] if "ctx" in error else error["msg"]
        return Problem(place, *map(str, raised.args[:2] if type(raised) is ValueError else (raised,)))
    fix = (
        f"{error['msg'][:1].lower()}{error['msg'][1:]}".replace("input should be", "it must be")
        .replace("a valid integer, unable to parse string as an integer", "a whole number")
        .replace("a valid number, unable to parse string as a number", "a number")
        .replace("valid tuple", "list")
        .replace("tuple should have", "it must have")
    )
    return Problem(place, f"is {_shown(error['input'])}", fix)


def _model_at(model: type[BaseModel] | None, path: Sequence[int | str]) -> type[BaseModel] | None:
    parts = list(path)
    while parts and model is not None:
        part = parts.pop(0)
        fields = model.model_fields.items()
        annotation = next((info.annotation for name, info in fields if part in {name, info.alias}), None)
        model = _model_in(annotation)
        if parts and typing.get_origin(annotation) in {tuple, dict}:
            del parts[0]
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in typing.get_args(annotation) if (found := _model_in(each))), None)


def _keys(model: type[BaseModel] | None) -> list[str]:
    return sorted(info.alias or name for name, info in model.model_fields.items()) if model is not None else []


def _shown(value: object) -> str:
    text = repr(value.value) if isinstance(value, Enum) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
