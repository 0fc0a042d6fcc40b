"""The end of artifacts that are kept for a time only (T9)."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from owlclaw_ray.ports.artifacts import ArtifactStore
from owlclaw_ray.ports.clock import Clock

logger = logging.getLogger(__name__)

HOUR = 3_600.0


class ArtifactExpiry:
    """Removes the artifacts of all agents that are older than `keep`, now and every hour from then on."""

    def __init__(self, artifacts: ArtifactStore, keep: timedelta, clock: Clock) -> None:
        self._artifacts, self._keep, self._clock = artifacts, keep, clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._loop())

    async def stop(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def tick(self) -> int:
        """Remove what is too old; return how many artifacts that were."""
        removed = await asyncio.to_thread(self._artifacts.expire, self._clock.now() - self._keep)
        if removed:
            logger.info("%d artifacts older than %s were removed", removed, self._keep)
        return removed

    async def _loop(self) -> None:
        while True:
            try:
                await self.tick()
            except Exception:
                logger.exception("removing old artifacts failed; it is tried again")
            await self._clock.sleep(HOUR)
