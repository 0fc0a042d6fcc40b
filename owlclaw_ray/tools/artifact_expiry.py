"""The end of artifacts that are kept for a time only (T9)."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.tools.artifacts import ArtifactStore

logger = logging.getLogger(__name__)


class ArtifactExpiry:
    """Removes the artifacts of all agents that are older than `keep`."""

    def __init__(self, artifacts: ArtifactStore, keep: timedelta, clock: Clock) -> None:
        self._artifacts, self._keep, self._clock = artifacts, keep, clock

    async def tick(self) -> int:
        """Remove what is too old; return how many artifacts that were."""
        removed = await asyncio.to_thread(self._artifacts.expire, self._clock.now() - self._keep)
        if removed:
            logger.info("%d artifacts older than %s were removed", removed, self._keep)
        return removed
