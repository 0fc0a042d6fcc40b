"""Looks at files from event loops that many agents share.

A file system over a network that hangs holds up whoever looks at a file, for minutes. These threads are no others': what else a
process does in its default executor goes on, and so does the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar, TypeVarTuple

_MAXIMUM = 8
"""How many looks may hang at once in a process before the next ones wait for them."""
_Args = TypeVarTuple("_Args")
_T = TypeVar("_T")


async def in_file_thread(look: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """Return what the function returns. A caller that is cancelled does not wait for it; it ends in its thread all the same."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), look, *args)


def leave_to_file_thread(work: Callable[[*_Args], None], *args: *_Args) -> None:
    """Have the function executed, which raises nothing, without waiting for it."""
    _threads().submit(work, *args)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAXIMUM, "owlclaw-files")
