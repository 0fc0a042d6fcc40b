"""Reports to an alarm clock which schedules changed, on whatever node that was committed.

It uses the updates of runs (`store.run_updates`) under an id that no run has. A new subscription counts as a change of all schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from owlclaw_ray.ids import IdSource, RunId, ScheduleId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.store.followers import RemoteReplyBoxes
from owlclaw_ray.store.run_update_subscription import RunUpdateSubscription
from owlclaw_ray.store.run_updates import SCHEDULES

_NODES_SECONDS = 10.0
"""How often the nodes that commit are looked up."""


class ScheduleUpdates:
    """Calls `changed` (see AlarmClock.changed) after commits that made or changed schedules."""

    def __init__(
        self,
        far_ends: RemoteReplyBoxes,
        changed: Callable[[Collection[ScheduleId] | None], None],
        *,
        ids: IdSource,
        clock: Clock,
    ) -> None:
        self._far_ends, self._changed = far_ends, changed
        self._link = partial(RunUpdateSubscription, ids=ids, clock=clock)
        self._links: dict[str, RunUpdateSubscription] = {}
        self._finding = Periodic("finding where schedules change", self._find, clock, _NODES_SECONDS)

    def start(self) -> None:
        """Start listening."""
        self._finding.start()

    async def stop(self) -> None:
        """Stop listening."""
        await self._finding.stop()
        while self._links:
            self._links.popitem()[1].close()

    async def _find(self) -> None:
        places = await self._far_ends()
        for name in self._links.keys() - places.keys():
            self._links.pop(name).close()
        for name in places.keys() - self._links.keys():
            self._links[name] = link = self._link(places[name], self._heard)
            link.follow_when_reachable([SCHEDULES])

    def _heard(self, news: Collection[RunId]) -> None:
        if SCHEDULES in news:
            self._changed(None)
        elif news:
            self._changed([ScheduleId(each) for each in news])
