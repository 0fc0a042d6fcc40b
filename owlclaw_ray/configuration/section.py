"""What all sections of configuration files have in common."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, TypeAlias, Union

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from owlclaw_ray.configuration.placeholders import PLACEHOLDER, has_stray_placeholder
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.principal import tenants_problem

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise ValueError(f"has {name!r}, which is no name of a header")
        if has_stray_placeholder(value):
            raise ValueError(f"has a ${{ in {name} that names no variable: write ${{NAME}}")
    return headers


def _secret(value: object) -> object:
    if not isinstance(value, str) or not PLACEHOLDER.fullmatch(value):
        raise ValueError("must be ${NAME}, the variable that holds the secret: a file is no place for it")
    return value


def _tenants(tenants: tuple[str, ...]) -> tuple[str, ...]:
    if problem := tenants_problem(tenants):
        raise ValueError(problem)
    return tenants


class Confidential(Struct, frozen=True):
    """Marks a setting in which a secret may be written: of its texts nobody is shown more than the variables that they name."""


CONFIDENTIAL = Confidential()
NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]
Headers: TypeAlias = Annotated[dict[str, str], AfterValidator(_headers), CONFIDENTIAL]
"""Fields of HTTP requests; `${NAME}` in a value is a variable of the runtime."""

Secret: TypeAlias = Annotated[str, BeforeValidator(_secret), CONFIDENTIAL]
"""The variable that holds a secret."""

TenantIds: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_tenants)]
"""Of those that something is for."""


class Section(BaseModel):
    """A mapping with known keys. `true` is no number: pydantic alone would take it for 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: JsonValue, info: ValidationInfo) -> JsonValue:
        if isinstance(value, bool) and info.field_name is not None:
            kinds = set(_alternatives(cls.model_fields[info.field_name].annotation))
            if bool not in kinds and kinds & {int, float}:
                raise PydanticCustomError("number_type", "Input should be a number")
        return value


def _alternatives(annotation: object) -> Iterator[object]:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        yield from _alternatives(parts[0])
    elif origin in {Union, UnionType}:
        for each in parts:
            yield from _alternatives(each)
    else:
        yield annotation
