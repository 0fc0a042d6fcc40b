"""The answering end of calls between actors. `remote` has the asking end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from actors.serializers import skip_unused
from owlclaw_ray.kernel.packing import pack, unpack

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN = "__answers_plainly__"

skip_unused()


class RemoteActor:
    """Base of all actors: their methods are called with packed arguments and their answers are packed, which Ray sees as bytes."""

    async def answer(self, packed_call: bytes) -> object:
        """Return the packed answer of a method; as it is if the method is `plain`."""
        name, arguments, options = unpack(packed_call)
        method = getattr(self, name)
        answer = await method(*arguments, **options)
        return answer if hasattr(method, _PLAIN) else pack(answer)


def plain(method: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Leave the method's answer to Ray, which counts the handles of actors in it."""
    setattr(method, _PLAIN, True)
    return method
