"""Long work for a request, which ends when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

_T = TypeVar("_T")


async def while_connected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """Return what the work returns, of a request whose body was read or that has none. When its client goes, or its key is refused, the
    work is cancelled; raises ClientDisconnect.
    """
    doing, gone = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientDisconnect
        return doing.result()
    finally:
        doing.cancel()
        gone.cancel()
        await asyncio.wait({doing, gone})


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
