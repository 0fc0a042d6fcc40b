"""Actors' methods that take their arguments as bytes, and answer so: for the calls that every run makes several times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any

from owlclaw_ray.kernel.packing import pack, unpack


def packed(method: Callable[..., Awaitable[Any]]) -> Callable[[Any, bytes], Awaitable[bytes]]:
    """Have an actor's method take its arguments packed, and give its answer so. Callers ask with `ask_packed`."""

    async def answer(self: Any, arguments: bytes) -> bytes:
        return pack(await method(self, *unpack(arguments)))

    update_wrapper(answer, method, assigned=("__name__", "__qualname__", "__doc__", "__module__"), updated=())
    del answer.__wrapped__  # type: ignore[attr-defined]  # Ray would take the method's arguments for this one's
    return answer
