"""The near end of the news about runs: what one process follows, kept known at one place where commits are made.

When the far end is gone, was replaced or forgot the link, everything is followed anew, and everything counts as changed: news
that was under way may be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ids import IdSource, RunId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.run_updates import LONG_POLL, RunUpdateSource, SubscriptionId

_PAUSE = 0.5
"""Seconds between two beginnings: a part that died is back within seconds."""
_MAX_PER_MESSAGE = 2_000

logger = logging.getLogger(__name__)


class RunUpdateSubscription:
    """Calls `heard` with runs of which there may be something new, as long as any is followed."""

    def __init__(
        self, far: RunUpdateSource, heard: Callable[[Collection[RunId]], None], *, ids: IdSource, clock: Clock
    ) -> None:
        self._far, self._heard, self._ids, self._clock = far, heard, ids, clock
        self._followed: set[RunId] = set()
        self._box: SubscriptionId | None = None
        self._tried: asyncio.Future[None] | None = None
        """Done after the first try to begin, whatever came of it."""
        self._listener: asyncio.Task[None] | None = None

    async def follow(self, added: Sequence[RunId], dropped: Sequence[RunId]) -> None:
        """Follow these runs, and others no more.

        When this returned, either no later commit of them goes unheard, or the far end did not answer: then they are followed as
        soon as it does, and heard of. Calls must not overlap; one that is cancelled counts as not answered.
        """
        self._followed.difference_update(dropped)
        self.follow_when_reachable(added)
        box = self._box
        if box is None:
            if self._tried is not None:
                await asyncio.shield(self._tried)
            return
        try:
            known = await self._far.follow(box, added, dropped)
        except OwlClawError:
            known = False
        except BaseException:
            self._resubscribe(box)
            raise
        if not known:
            self._resubscribe(box)

    def follow_when_reachable(self, added: Iterable[RunId]) -> None:
        """Follow these runs too, as soon as the far end answers; they are heard of then."""
        self._followed.update(added)
        if self._listener is None and self._followed:
            self._tried = asyncio.get_running_loop().create_future()
            self._listener = asyncio.create_task(self._listen())

    def close(self) -> None:
        """Follow nothing any more."""
        self._followed.clear()
        self._box = None
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None

    def _resubscribe(self, box: SubscriptionId) -> None:
        if self._box == box and self._listener is not None:
            self._box = None
            self._listener.cancel()
            self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while self._followed:
            try:
                box = await self._begin()
                self._heard(tuple(self._followed))
                self._resolve_attempt()
                while self._followed:
                    changed = await self._far.news(box, LONG_POLL)
                    if changed is None:
                        logger.info("the followed runs were forgotten, and are followed anew")
                        break
                    self._heard(changed)
            except OwlClawError as error:
                logger.info("no news of runs for now: %s", error)
            except Exception:
                logger.exception("news of runs could not be fetched; they are followed anew")
            self._box = None
            self._resolve_attempt()
            if self._followed:
                await self._clock.sleep(_PAUSE)
        self._listener = None

    def _resolve_attempt(self) -> None:
        if self._tried is not None and not self._tried.done():
            self._tried.set_result(None)

    async def _begin(self) -> SubscriptionId:
        box, known = SubscriptionId(self._ids.make("news")), set[RunId]()
        await self._far.begin(box)
        while unknown := tuple(self._followed - known)[:_MAX_PER_MESSAGE]:
            if not await self._far.follow(box, unknown, ()):
                break
            known.update(unknown)
        self._box = box
        return box
