"""Calls over a link to a gateway that go on until a test is over."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager


@asynccontextmanager
async def calls_over(link):
    """Yield a list for tasks; those in it at the end are cancelled, and the link has told its gateway."""
    tasks = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if link._link._poster is not None:
        await link._link._poster
