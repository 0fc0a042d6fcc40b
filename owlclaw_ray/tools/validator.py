"""Schemas of tools, each compiled once in a process, however many calls it checks and wherever its definition comes from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import orjson
from jsonschema import Draft202012Validator, ValidationError, validators
from jsonschema.protocols import Validator

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.tools.expression import expression

_KEPT = 4_096
"""Schemas, those that were used last."""


def validator_of(schema: JsonObject) -> Validator:
    """Return the validator of a schema: the same one for equal schemas."""
    return _compiled(orjson.dumps(schema))


def _search(_validator: Validator, pattern: str, instance: JsonValue, _schema: JsonObject) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not expression(pattern).found_in(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator: type[Validator] = validators.extend(Draft202012Validator, {"pattern": _search})  # type: ignore[no-untyped-call]
"""Matches patterns in linear time, and compiles each once."""


@lru_cache(maxsize=_KEPT)
def _compiled(encoded: bytes) -> Validator:
    return _Validator(orjson.loads(encoded))
