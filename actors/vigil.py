"""Watching over actors of this node that may live without doing anything: Ray restarts only the dead."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import psutil
from ray.actor import ActorHandle

from actors.remote import Whereabouts, here, whereabouts
from owlclaw_ray.errors import RuntimeUnavailableError

LOOK_EVERY = 2.0
_PATIENCE = 8.0
"""Seconds that an actor may take for a sign of life."""
_MOST_MISSES = 2
"""How often in a row it may give none before it is killed."""

logger = logging.getLogger(__name__)


class Vigil:
    """Knows the processes behind names, and kills those that a stopped process or a blocked loop keeps from answering."""

    def __init__(self) -> None:
        self._processes: dict[str, psutil.Process] = {}
        self._missed: Counter[str] = Counter()

    def note(self, name: str, where: Whereabouts) -> None:
        """Remember the process behind a name, if it is one of this machine."""
        known = self._processes.get(name)
        if where.node_id == here() and (known is None or known.pid != where.pid):
            self._processes[name] = psutil.Process(where.pid)

    async def look(self, name: str, actor: ActorHandle[Any]) -> None:
        """Ask for a sign of life; kill the process that gave none twice in a row. The dead are Ray's own concern."""
        try:
            async with asyncio.timeout(_PATIENCE):
                self.note(name, await whereabouts(actor))
        except RuntimeUnavailableError:
            self._missed[name] = 0
        except TimeoutError:
            self._missed[name] += 1
            if self._missed[name] >= _MOST_MISSES and name in self._processes:
                logger.warning("the %s has not answered %d times in a row; it is killed", name, _MOST_MISSES)
                self.kill(name)
        else:
            self._missed[name] = 0

    def kill(self, name: str) -> None:
        """Kill the process behind a name; psutil makes sure that its number does not belong to another one by now."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        try:
            process.kill()
        except psutil.NoSuchProcess:
            return
