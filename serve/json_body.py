"""The JSON of request bodies."""

from __future__ import annotations

import orjson

from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.errors import Problem
from owlclaw_ray.kernel.json_limits import KEPT, JsonLimitError
from owlclaw_ray.kernel.json_limits import read_json as read_limited
from serve.errors import InvalidRequestError, MalformedJsonError


def read_json(body: bytes) -> JsonValue:
    """Return the JSON of a body; raises MalformedJsonError, or InvalidRequestError with the place of what cannot be kept."""
    try:
        return read_limited(body)
    except JsonLimitError as error:
        raise InvalidRequestError([Problem(f"body{error.place}", error.what, KEPT)]) from None
    except orjson.JSONDecodeError as error:
        raise MalformedJsonError.at(error) from None
