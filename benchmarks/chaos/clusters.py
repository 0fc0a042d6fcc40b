"""Several clusters with one database, each an `owlclaw up` of its own: one of them holds the lease, the others stand by."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psutil

from benchmarks.chaos.installation import READY_SECONDS, Installation
from benchmarks.chaos.strikes import Role
from benchmarks.chaos.workload import SOLO_AGENTS


class Clusters:
    """As one Installation, whose processes are those of the cluster that holds the lease."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self._members = [Installation(folder / f"cluster-{name}") for name in range(number)]
        self._holder = 0

    @property
    def holder(self) -> Installation:
        """The cluster that runs the agents: the one that was started first, or that has stood by for longest."""
        return self._members[self._holder]

    @property
    def urls(self) -> tuple[str, ...]:
        """Where each of them listens; each accepts triggers."""
        return tuple(member.url for member in self._members)

    def write(self, **settings: Any) -> None:
        """Write the same application for each; the handlers of all write one log."""
        for member in self._members:
            member.folder.mkdir()
            member.write(**{"actors": {"warm": 1 + SOLO_AGENTS}, **settings})  # as docs/operations.md advises
            member.effects.symlink_to(Path("..") / member.effects.name)

    def start(self) -> None:
        """Start the first; the others follow when it is ready."""
        self.holder.start()

    async def ready(self, seconds: float = READY_SECONDS) -> bool:
        """See Installation.ready; starts those that were never started."""
        if not await self.holder.ready(seconds):
            return False
        for member in self._members:
            if not member.started:
                member.start()
        return all(await asyncio.gather(*(member.ready(seconds) for member in self._members)))

    def hand_on(self) -> None:
        """Note that the holder has ended: the next one holds the lease."""
        self._holder = (self._holder + 1) % len(self._members)

    async def stop(self) -> str:
        """See Installation.stop."""
        problems = [await member.stop() for member in self._members]
        return "; ".join(filter(None, problems))

    async def ended(self, seconds: float) -> int | None:
        """See Installation.ended."""
        return await self.holder.ended(seconds)

    def family(self) -> list[psutil.Process]:
        """See Installation.family."""
        return self.holder.family()

    async def kill(self) -> None:
        """See Installation.kill."""
        await asyncio.gather(*(member.kill() for member in self._members))

    def processes(self, role: Role) -> list[psutil.Process]:
        """See Installation.processes."""
        return self.holder.processes(role)
