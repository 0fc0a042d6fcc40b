"""Noticing the end of the process that waits for a call: a tool worker is killed when its run is cancelled."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psutil

_LOOK_SECONDS = 0.5


@asynccontextmanager
async def caller_ended(pid: int) -> AsyncIterator[asyncio.Future[None]]:
    """Have a future that is done when the process ends; it never is for 0 and for this process."""
    loop = asyncio.get_running_loop()
    if pid in {0, os.getpid()}:
        yield loop.create_future()
        return
    watching = asyncio.ensure_future(_end(pid))
    try:
        yield watching
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _end(pid: int) -> None:
    if sys.platform != "linux":
        while psutil.pid_exists(pid):  # noqa: ASYNC110 (nobody tells of another process's end here)
            await asyncio.sleep(_LOOK_SECONDS)
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
