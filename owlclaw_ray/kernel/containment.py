"""What one agent calls must not end the process that it shares with others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


class BrokenOutError(Exception):
    """A model client or a tool raised what is not even an Exception."""


async def contained(call: Awaitable[_T]) -> _T:
    """Return what the call returns, or raise its Exception; SystemExit and its like, which would end every agent of the process,
    become BrokenOutError. KeyboardInterrupt passes: it is how a process is stopped.
    """
    try:
        return await call
    except (Exception, asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise BrokenOutError(f"{type(error).__name__}: {error}") from error
