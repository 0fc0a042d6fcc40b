"""Making what models write fit for the store: JSON in UTF-8 knows no half characters and no numbers beyond 64 bits."""

from __future__ import annotations

import orjson

from owlclaw_ray.domain.json import JsonObject, JsonValue

_LARGEST = 2**63 - 1


def storable(data: JsonObject) -> JsonObject:
    """Return the data as it is if it can be stored, else a copy with half characters replaced by U+FFFD and huge numbers as text."""
    try:
        orjson.dumps(data)
    except (TypeError, ValueError):
        repaired: JsonObject = _repaired(data)
        return repaired
    return data


def _repaired(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_repaired(str(key)): _repaired(each) for key, each in value.items()}
        case list() | tuple():
            return [_repaired(each) for each in value]
        case int() if abs(value) > _LARGEST:
            return str(value)
        case bool() | int() | float() | None:
            return value
        case _:
            return repr(value)
