"""File access from event loops that many agents share.

A network file system that hangs blocks its callers for minutes. These threads are for files alone, so that neither the event loop nor
the default executor is blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar, TypeVarTuple

_MAXIMUM = 8
"""How many calls may hang in a process before the next ones wait for them."""
_Args = TypeVarTuple("_Args")
_T = TypeVar("_T")


async def in_file_thread(look: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """Return what the function returns. Cancelling the caller does not interrupt the function in its thread."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), look, *args)


def leave_to_file_thread(work: Callable[[*_Args], None], *args: *_Args) -> None:
    """Execute the function, which raises nothing, without waiting for it."""
    _threads().submit(work, *args)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAXIMUM, "owlclaw-files")
