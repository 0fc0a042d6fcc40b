"""Making what models write and tools return fit for the store.

JSON in UTF-8 knows no half characters, no numbers beyond 64 bits, and nothing that holds itself.
"""

from __future__ import annotations

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from owlclaw_ray.domain.json import JsonObject, JsonValue

_LARGEST = 2**63 - 1
_MAX_DEPTH = 100
_LEFT_OUT = "…"


def storable(data: JsonObject) -> JsonObject:
    """Return the data as it is if it can be stored, else a copy of which everything can be.

    In it facts are objects with their fields, half characters are U+FFFD, huge numbers and what is no JSON are text, what holds
    itself or lies deeper than a hundred levels is an ellipsis.
    """
    try:
        orjson.dumps(data)
    except (TypeError, ValueError):
        repaired: JsonObject = _repaired(data, ())
        return repaired
    return data


def _repaired(value: JsonValue, inside: tuple[int, ...]) -> JsonValue:
    """Return a copy of the value; `inside` names the objects that hold it."""
    match value:
        case dict() | list() | tuple():
            return _LEFT_OUT if id(value) in inside or len(inside) >= _MAX_DEPTH else _copy(value, (*inside, id(value)))
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case int() if abs(value) > _LARGEST:
            return str(value)
        case bool() | int() | float() | None:
            return value
        case Struct():
            return _copy(asdict(value), inside)
        case _:
            return repr(value)


def _copy(value: JsonValue, inside: tuple[int, ...]) -> JsonValue:
    if isinstance(value, dict):
        return {_repaired(str(key), inside): _repaired(each, inside) for key, each in value.items()}
    return [_repaired(each, inside) for each in value]
