"""Following runs: many readers of journals that grow, woken by commits.

A follower that waits costs nothing: no query, no timer of its own. A process keeps the runs that it follows known where commits
are made (`engine.news_link`), on every node that has a store of its own to write through. On news the journals are read, many in
one query, and the followers of a run that have read equally far share what was read. What is followed is known over there before
it is read here, so nothing can be committed unseen between the two. Beside that a poll, also many runs in one query, finds
what was committed by those whom nobody here knows: another cluster on the same database. It is slow, unless that one runs the agents.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import IdSource, RunId, TenantId
from owlclaw_ray.kernel.batcher import MESSAGE, Batcher, Bound
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import ChangedRuns, JournalPosition, ProgressOfRuns, RunProgress
from owlclaw_ray.store.run_update_subscription import RunUpdateSubscription
from owlclaw_ray.store.run_updates import RunUpdateSource

POLL_SECONDS = 30.0
STANDBY_POLL_SECONDS = 1.0
"""Between two polls while another cluster runs the agents."""
_POLL_REST = 9.0
"""How many times as long as a poll took is waited before the next: polls take a tenth of a reader at most, however much is followed."""
_NODES_SECONDS = 5.0
"""How often it is asked where commits are made, while anything is followed."""
_ANSWER_SECONDS = 1.0
"""How long a new follower waits until it is known everywhere. Who does not answer within it is heard of later."""
_READ_AT_ONCE = 256
_POLLED_AT_ONCE = 500

RemoteReplyBoxes = Callable[[], Awaitable[Mapping[str, RunUpdateSource]]]
"""Returns all places where commits are made, by name."""

logger = logging.getLogger(__name__)


class FollowerRegistry:
    """All followers of one process."""

    def __init__(
        self,
        store: QueryStore,
        far_ends: RemoteReplyBoxes,
        *,
        ids: IdSource,
        clock: Clock,
        poll_seconds: float = POLL_SECONDS,
        stands_by: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`stands_by` says whether another cluster runs the agents of the store; None where no other can."""
        self._store, self._far_ends, self._ids, self._clock = store, far_ends, ids, clock
        self._poll_seconds, self._stands_by = poll_seconds, stands_by
        self._followers: dict[RunId, set[RunFollower]] = {}
        self._known: set[RunId] = set()
        """Runs of which every place was told that they are followed."""
        self._dropped: set[RunId] = set()
        """Runs of which none was told yet that they are followed no more."""
        self._links: dict[str, RunUpdateSubscription] = {}
        self._changes: Batcher[RunId, None] = Batcher(self._subscribe, recalls=True)
        self._reads: Batcher[JournalPosition, RunProgress | None] = Batcher(
            self._read, most=Bound(_READ_AT_ONCE, MESSAGE.size), recalls=True
        )
        self._upkeep_task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def follow(self, tenant: TenantId, run_id: RunId, after: int = 0) -> AsyncGenerator[RunFollower]:
        """See Runtime.follow."""
        follower = RunFollower(JournalPosition(tenant, run_id, after), self._reads)
        self._followers.setdefault(run_id, set()).add(follower)
        try:
            if run_id not in self._known:
                await self._changes(run_id)
            yield follower
        finally:
            self._leave(follower, run_id)

    async def watch(self, tenant: TenantId, run_id: RunId, after: int, seconds: float) -> RunProgress:
        """See Runtime.watch."""
        if seconds > 0:
            async with self.follow(tenant, run_id, after) as follower:
                return await follower.next(seconds)
        return await RunFollower(JournalPosition(tenant, run_id, after), self._reads).next(0)

    def close(self) -> None:
        """Hear of nothing any more."""
        if self._upkeep_task is not None:
            self._upkeep_task.cancel()
        for link in self._links.values():
            link.close()

    def _leave(self, follower: RunFollower, run_id: RunId) -> None:
        followers = self._followers[run_id]
        followers.discard(follower)
        if not followers:
            del self._followers[run_id]
            self._known.discard(run_id)
            self._dropped.add(run_id)

    def _heard(self, run_ids: Collection[RunId]) -> None:
        for run_id in run_ids:
            for follower in self._followers.get(run_id, ()):
                follower.news()

    async def _subscribe(self, run_ids: Sequence[RunId]) -> Sequence[None]:
        if self._upkeep_task is None:
            await self._find_links()
            self._upkeep_task = asyncio.create_task(self._run_upkeep())
        added = tuple(dict.fromkeys(run_ids))
        dropped, self._dropped = tuple(self._dropped - self._followers.keys()), set()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await asyncio.gather(*(link.follow(added, dropped) for link in self._links.values()))
        except TimeoutError:
            logger.info("%d runs are followed before it is known everywhere", len(added))
        for run_id in added:
            (self._known if run_id in self._followers else self._dropped).add(run_id)
        return [None] * len(run_ids)

    async def _read(self, positions: Sequence[JournalPosition]) -> Sequence[RunProgress | None]:
        distinct = tuple(dict.fromkeys(positions))
        found = dict(zip(distinct, await self._store.read(ProgressOfRuns(distinct)), strict=True))
        return [found[position] for position in positions]

    async def _run_upkeep(self) -> None:
        looked, polled, pause, rest = -math.inf, self._clock.monotonic(), self._poll_seconds, 0.0
        while self._followers:
            try:
                now = self._clock.monotonic()
                if now - looked >= min(_NODES_SECONDS, self._poll_seconds):
                    looked = now
                    await self._find_links()
                    pause = await self._poll_pause()
                if now - polled >= max(pause, rest):
                    await self._poll()
                    polled = self._clock.monotonic()
                    rest = _POLL_REST * (polled - now)
            except Exception as error:  # noqa: BLE001 - it is tried again soon
                logger.info("followed runs could not be looked after: %s", error)
            await self._clock.sleep(min(_NODES_SECONDS, pause))
        self._upkeep_task = None

    async def _poll_pause(self) -> float:
        """Return the seconds between two polls for now."""
        stands_by = self._stands_by is not None and await self._stands_by()
        return min(STANDBY_POLL_SECONDS, self._poll_seconds) if stands_by else self._poll_seconds

    async def _find_links(self) -> None:
        places = await self._far_ends()
        for name in self._links.keys() - places.keys():
            self._links.pop(name).close()
        for name in places.keys() - self._links.keys():
            self._links[name] = link = RunUpdateSubscription(
                places[name], self._heard, ids=self._ids, clock=self._clock
            )
            link.follow_when_reachable(self._followers)

    async def _poll(self) -> None:
        followers = [follower for followers in self._followers.values() for follower in followers]
        positions = tuple({follower.position: None for follower in followers})
        for at in range(0, len(positions), _POLLED_AT_ONCE):
            self._heard(await self._store.read(ChangedRuns(positions[at : at + _POLLED_AT_ONCE])))


class RunFollower:
    """Reads a run's journal as it grows."""

    def __init__(
        self, position: JournalPosition, read: Callable[[JournalPosition], Awaitable[RunProgress | None]]
    ) -> None:
        self.position, self._read = position, read
        self._behind, self._nudged = True, False
        self._status = RunStatus.QUEUED
        self._waiting: asyncio.Future[None] | None = None

    def news(self) -> None:
        """Note that there may be something to read."""
        self._behind = True
        self._wake()

    def nudge(self) -> None:
        """Have `next` return."""
        self._nudged = True
        self._wake()

    async def next(self, seconds: float | None = None) -> RunProgress:
        """Return the committed entries that were not returned yet: at once if there are any or if the run is over, else when the
        next one is committed. Without news it returns none: after `seconds`, and when it is nudged.

        Raises NotFoundError, StoreUnavailableError.
        """
        loop = asyncio.get_running_loop()
        end = None if seconds is None else loop.time() + seconds
        while True:
            if self._behind:
                watched = await self._read_on()
                if watched.entries or watched.over:
                    self._nudged = False
                    return watched
            elif self._nudged or (end is not None and loop.time() >= end):
                self._nudged = False
                return RunProgress((), self._status)
            else:
                await self._wait(end)

    async def _read_on(self) -> RunProgress:
        self._behind = False
        try:
            watched = await self._read(self.position)
        except BaseException:
            self._behind = True
            raise
        if watched is None:
            raise NotFoundError("run", self.position.run_id)
        self._behind = self._behind or watched.more or watched.over
        self._status = watched.status
        if watched.entries:
            self.position = JournalPosition(self.position.tenant, self.position.run_id, watched.entries[-1].seq)
        return watched

    async def _wait(self, end: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = None if end is None else loop.call_at(end, self._wake)
        try:
            await self._waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
