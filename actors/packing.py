"""Arguments and answers as bytes, for the calls that every run makes several times.

Ray pickles with a pickler in Python that asks a hook about every object; for a batch of facts that costs twice what the
pickler in C does. Ray then sees one value: bytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any

_PROTOCOL = 5


def pack(value: object) -> bytes:
    """Return the value as bytes for another process of this runtime."""
    return pickle.dumps(value, _PROTOCOL)


def unpack(packed: bytes) -> Any:
    """Return what another process of this runtime packed."""
    return pickle.loads(packed)  # noqa: S301 - it comes from an actor of ours, through Ray, which trusts pickles too


def packed(method: Callable[..., Awaitable[Any]]) -> Callable[[Any, bytes], Awaitable[bytes]]:
    """Have an actor's method take its arguments packed, and give its answer so. Callers ask with `ask_packed`."""

    async def answer(self: Any, arguments: bytes) -> bytes:
        return pack(await method(self, *unpack(arguments)))

    update_wrapper(answer, method, assigned=("__name__", "__qualname__", "__doc__", "__module__"), updated=())
    del answer.__wrapped__  # type: ignore[attr-defined]  # Ray would take the method's arguments for this one's
    return answer
