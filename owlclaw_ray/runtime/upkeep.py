"""The work that nobody asks for, done when the store says that there is some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import DueUpkeep, Upkeep

_LOOK_SECONDS = 5.0
_AT_LEAST_EVERY = 60.0

_NAMES = {
    Upkeep.RELEASED_RUNS: "looking at runs that wait for others",
    Upkeep.EXPIRED_APPROVALS: "ending approvals that are over",
    Upkeep.TENANT_DELETIONS: "deleting tenants",
}
"""What the log calls them."""


class DueWork:
    """Looks every five seconds whether there is upkeep to do, with one query, and has each kind done apart from the others."""

    def __init__(self, store: QueryStore, clock: Clock, work: Mapping[Upkeep, Callable[[], Awaitable[object]]]) -> None:
        """`work` does what there is of a kind, and may find nothing. It is done once at the start, and every minute in any case."""
        self._store, self._clock = store, clock
        self._kinds = {kind: Periodic(_NAMES[kind], do, clock, _AT_LEAST_EVERY) for kind, do in work.items()}
        self._looking = Periodic("looking for work that is due", self._look, clock, _LOOK_SECONDS)

    def start(self) -> None:
        """Start."""
        for each in (*self._kinds.values(), self._looking):
            each.start()

    async def stop(self) -> None:
        """See Periodic.stop."""
        for each in (self._looking, *self._kinds.values()):
            await each.stop()

    async def _look(self) -> None:
        for kind in await self._store.read(DueUpkeep(self._clock.now())):
            self._kinds[kind].soon()
