"""What handlers return, as JSON (T4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any

import orjson
from msgspec import UNSET, Struct
from msgspec.structs import astuple
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.kernel.json_limits import MAX_DEPTH, JsonLimitError, check_limits, read_json

_COMPOSITES = (Struct, tuple, set, frozenset, Mapping)
MAX_RESULT_BYTES = 64 * 1024
"""How much of one result a model is given."""


class NotJsonError(TypeError):
    """A value has no JSON form. The message names its type."""


def to_json(value: Any) -> JsonValue:
    """Return the value as JSON: beside JSON itself pydantic models, dataclasses, msgspec structs, named tuples, dates, UUIDs, enums, paths,
    sets (sorted) and decimals (as text). Raises NotJsonError for anything else, and for more than a hundred levels.
    """
    if isinstance(value, str) and value.isascii():
        return str(value)
    try:
        document = orjson.dumps(value, default=_default, option=orjson.OPT_NON_STR_KEYS)
        if b"null" in document or b'"None":' in document:  # NaN is written so, too, and by pydantic as a key
            _check(value)
        return read_json(document)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise NotJsonError(
            f"the value of type {type(value).__qualname__} is not JSON: {_cause(value, error)}"
        ) from error


def _cause(value: Any, error: Exception) -> Exception:
    if isinstance(error.__cause__, NotJsonError | PydanticSerializationError | AttributeError):
        return error.__cause__
    try:
        _check(value)
    except (AttributeError, TypeError, ValueError, RecursionError) as found:
        return found if isinstance(found, JsonLimitError) else error
    return error


def _check(value: Any) -> None:
    """Raise JsonLimitError, with the place, for what JSON has no way to say."""
    check_limits(_opened(value, MAX_DEPTH))


def _opened(value: Any, levels: int) -> Any:
    """Return the value with its composites as the dicts and lists that are written for them, down to so many levels."""
    if isinstance(value, Enum):
        value = value.value
    if levels < 0:
        return value
    if isinstance(value, BaseModel):
        return _with_numbers(_default(value), value.model_dump())
    if isinstance(value, _COMPOSITES):
        value = _default(value)
    elif is_dataclass(value) and not isinstance(value, type):
        names = (each.name for each in fields(value) if not each.name.startswith("_"))
        value = {name: getattr(value, name) for name in names if hasattr(value, name)}
    if isinstance(value, dict):
        opened = {str(name): _opened(each, levels - 1) for name, each in value.items()}
        return opened | _infinite_names(value)
    return [_opened(each, levels - 1) for each in value] if isinstance(value, list) else value


def _with_numbers(written: Any, held: Any) -> Any:
    """Return what pydantic writes of a value, with the numbers for which it writes null."""
    if isinstance(written, list) and isinstance(held, set | frozenset):
        return _opened(held, MAX_DEPTH) if b"null" in orjson.dumps(written) else written
    if isinstance(held, _COMPOSITES):
        held = _default(held)
    if isinstance(written, dict) and isinstance(held, dict):
        named = {str(name): each for name, each in held.items()}
        return {name: _with_numbers(each, named.get(name)) for name, each in written.items()} | _infinite_names(held)
    if isinstance(written, list) and isinstance(held, list):
        return [_with_numbers(*pair) for pair in zip(written, held, strict=False)]
    return held if written is None and isinstance(held, float) else written


def _infinite_names(value: dict[Any, Any]) -> dict[str, float]:
    """Return the keys that are no numbers in JSON as values, to be found by the check."""
    keys = (name.value if isinstance(name, Enum) else name for name in value)
    return {f"(key {name})": name for name in keys if isinstance(name, float) and not math.isfinite(name)}


def within_limit(content: JsonValue, limit: int = MAX_RESULT_BYTES) -> tuple[JsonValue, JsonObject]:
    """Return the content, cut to `limit` bytes as text with a mark at its end if it is longer, and metadata that says so."""
    encoded = content.encode() if isinstance(content, str) else orjson.dumps(content)
    if len(encoded) <= limit:
        return content, {}
    kept = encoded[:limit].decode("utf-8", "ignore")
    shown = len(kept.encode())
    mark = f"\n…[cut: the first {shown} of {len(encoded)} bytes]"
    return kept + mark, {"truncated": True, "total_bytes": len(encoded), "shown_bytes": shown}


def _default(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", fallback=_default)
    if isinstance(value, Struct):
        # Under the names that fields have when msgspec encodes them, without those that are not set.
        values = zip(value.__struct_encode_fields__, astuple(value), strict=True)
        return {name: each for name, each in values if each is not UNSET}
    if isinstance(value, tuple):
        return value._asdict() if hasattr(value, "_asdict") else list(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, PurePath | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise NotJsonError(f"{type(value).__qualname__} has no JSON form")
