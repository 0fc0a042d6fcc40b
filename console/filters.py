"""What the filters of a page ask for: the query parameters of the JSON routes, in which a field that is left empty says nothing."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from owlclaw_ray.errors import Problem
from serve.errors import InvalidRequestError

_Filter = TypeVar("_Filter", bound=BaseModel)
_Choice = TypeVar("_Choice", bound=Enum)


def filter_of(request: Request, shape: type[_Filter], **instead: object) -> _Filter:
    """Return the filter of a JSON route; `instead` stands in the place of what the address says. Raises RequestValidationError."""
    said = {name: value.strip() for name, value in request.query_params.items() if name in shape.model_fields}
    try:
        return shape.model_validate({name: value for name, value in {**said, **instead}.items() if value})
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("query", *each["loc"])} for each in error.errors()]) from None


def choice_of(request: Request, name: str, choices: type[_Choice]) -> _Choice | None:
    """Return what a query parameter chooses, None for everything; raises InvalidRequestError."""
    return chosen(name, request.query_params.get(name, "").strip(), choices)


def chosen(name: str, text: str, choices: type[_Choice]) -> _Choice | None:
    """Return the choice of that text, None for an empty one; raises InvalidRequestError, with the name of the query parameter."""
    if not text:
        return None
    try:
        return choices(text)
    except ValueError:
        right = ", ".join(str(each.value) for each in choices)
        raise InvalidRequestError([Problem(f"query {name}", f"is {text!r}", f"one of {right}")]) from None
