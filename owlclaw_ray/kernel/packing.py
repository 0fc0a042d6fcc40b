"""Facts as bytes, for the way to another process of this runtime.

What travels together with others is packed for itself before it joins them: what cannot be packed is the concern of its own caller,
it is not parsed on the way, and it is known how many bytes wait. Ray pickles with a pickler in Python that asks a hook about every
object; for a batch of facts that costs twice what the pickler in C does. Ray then sees bytes.
"""

from __future__ import annotations

import pickle
from typing import Any

from owlclaw_ray.errors import EncodingError

_PROTOCOL = 5


def pack(value: object) -> bytes:
    """Return the value as bytes for another process of this runtime; raises EncodingError."""
    try:
        return pickle.dumps(value, _PROTOCOL)
    except Exception as error:  # a value's own methods take part
        raise EncodingError(f"{type(value).__name__} cannot be encoded: {type(error).__name__}: {error}") from error


def unpack(packed: bytes) -> Any:
    """Return what another process of this runtime packed; raises EncodingError."""
    try:
        return pickle.loads(packed)  # noqa: S301 - it comes from an actor of ours, through Ray, which trusts pickles too
    except Exception as error:  # a value's own methods take part
        raise EncodingError(f"{len(packed)} bytes cannot be decoded: {type(error).__name__}: {error}") from error
