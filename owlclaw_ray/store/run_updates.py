"""Who wants to hear that which runs' journals grew: the far end of `engine.news_link`.

News says only that there is something to read. A box gathers it until it is fetched, so that a burst of commits is one message,
and a run that nobody follows costs its commits nothing. Whoever follows and was not heard of for long is forgotten, and told so
when it comes back: it then begins again, and reads what it may have missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import NewType, Protocol

from owlclaw_ray.ids import RunId, ScheduleId
from owlclaw_ray.kernel.clock import Clock

LONG_POLL = 10.0
"""Seconds after which somebody who waits for news asks again at the latest."""
_TIMEOUT_SECONDS = 3 * LONG_POLL
SCHEDULES = RunId("schedules")
"""Followed like a run: its news are the ids of schedules that were made or changed."""

SubscriptionId = NewType("SubscriptionId", str)
"""Chosen by the one who follows, a new one for every beginning."""

logger = logging.getLogger(__name__)


class RunUpdateSource(Protocol):
    """Where commits are made, as another process reaches it. All methods raise RetryableError when it cannot be reached."""

    async def begin(self, box_id: SubscriptionId) -> None:
        """Make a box in which nothing is followed yet."""
        ...

    async def follow(self, box_id: SubscriptionId, added: Sequence[RunId], dropped: Sequence[RunId]) -> bool:
        """Have the box gather news of these runs, and of others no more. When this returned, no later commit goes unnoticed.

        Returns False if there is no such box (any more).
        """
        ...

    async def news(self, box_id: SubscriptionId, seconds: float) -> Sequence[RunId] | None:
        """Return the followed runs that changed since the last call: at once if there are any, else with the first one, or none
        after `seconds`. Returns None if there is no such box (any more).
        """
        ...


class _Box:
    def __init__(self, heard: float) -> None:
        self.runs: set[RunId] = set()
        self.changed: dict[RunId, None] = {}
        self.listening = 0
        self.heard = heard
        self.news = asyncio.Event()


class RunUpdates:
    """Implements `RunUpdateSource` in the process of the store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._boxes: dict[SubscriptionId, _Box] = {}
        self._followers: dict[RunId, set[SubscriptionId]] = {}

    def changed(self, run_ids: Iterable[RunId], schedule_ids: Iterable[ScheduleId]) -> None:
        """Note that the journals of these runs grew, and that these schedules were made or changed."""
        if not self._followers:
            return
        for run_id in run_ids:
            self._tell(run_id, run_id)
        for schedule_id in schedule_ids:
            self._tell(SCHEDULES, RunId(schedule_id))

    def _tell(self, followed: RunId, news: RunId) -> None:
        for box_id in self._followers.get(followed, ()):
            box = self._boxes[box_id]
            box.changed[news] = None
            box.news.set()

    async def begin(self, box_id: SubscriptionId) -> None:
        """See RunUpdateSource.begin."""
        now = self._clock.monotonic()
        for other in [
            key for key, box in self._boxes.items() if not box.listening and now - box.heard > _TIMEOUT_SECONDS
        ]:
            logger.info("nobody asks for the news of %s any more", other)
            forgotten = self._boxes.pop(other)
            for run_id in tuple(forgotten.runs):
                self._drop(other, forgotten, run_id)
        self._boxes[box_id] = _Box(now)

    async def follow(self, box_id: SubscriptionId, added: Sequence[RunId], dropped: Sequence[RunId]) -> bool:
        """See RunUpdateSource.follow."""
        box = self._boxes.get(box_id)
        if box is None:
            return False
        box.heard = self._clock.monotonic()
        for run_id in dropped:
            self._drop(box_id, box, run_id)
        box.runs.update(added)
        for run_id in added:
            self._followers.setdefault(run_id, set()).add(box_id)
        return True

    async def news(self, box_id: SubscriptionId, seconds: float) -> Sequence[RunId] | None:
        """See RunUpdateSource.news."""
        box = self._boxes.get(box_id)
        if box is None:
            return None
        box.listening += 1
        try:
            async with asyncio.timeout(seconds):
                await box.news.wait()
        except TimeoutError:
            pass
        finally:
            box.listening -= 1
            box.heard = self._clock.monotonic()
        changed, box.changed = box.changed, {}
        box.news.clear()
        return tuple(changed)

    def _drop(self, box_id: SubscriptionId, box: _Box, run_id: RunId) -> None:
        box.runs.discard(run_id)
        followers = self._followers.get(run_id, set())
        followers.discard(box_id)
        if not followers:
            self._followers.pop(run_id, None)
