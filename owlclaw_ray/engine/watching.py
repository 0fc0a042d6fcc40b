"""Following a run: its committed entries, and the next ones as they are committed."""

from __future__ import annotations

import asyncio

from owlclaw_ray.engine.group_commit import Watchers
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.ports.runtime import Watched
from owlclaw_ray.ports.store import RunStore

LOOK_AGAIN = 1.0
"""Seconds after which the store is read again without news: another Keeper may have committed."""


class RunWatch:
    """Waits on one process's commits and reads the store."""

    def __init__(self, store: RunStore, watchers: Watchers) -> None:
        self._store, self._watchers = store, watchers

    async def watch(self, tenant: TenantId, run_id: RunId, after: int, seconds: float) -> Watched:
        """See Runtime.watch."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        with self._watchers.watching(run_id) as news:
            while True:
                run = await self._store.run(tenant, run_id)
                if run is None:
                    raise NotFoundError("run", run_id)
                entries = await self._store.journal(tenant, run_id, after)
                left = end - loop.time()
                if entries or run.status.final or left <= 0:
                    return Watched(tuple(entries), run.status)
                await news.wait(min(left, LOOK_AGAIN))
