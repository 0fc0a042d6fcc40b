"""The end of a node's hosts when its row is not renewed: somebody else may soon run their agents, or does already."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from owlclaw_ray.errors import OwlClawError, RuntimeUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.placement.lease import GIVE_UP_SECONDS
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS

_ANSWER_SECONDS = 1.0

Ask = Callable[[], Awaitable[float | None]]
"""Returns how many seconds ago the row of a node was renewed, as its Keeper says: None if it never was, by this Keeper."""

logger = logging.getLogger(__name__)


class NodeCutError(RuntimeUnavailableError):
    """The node does not reach the store: it has no hosts, and gets none, until it does."""


class RowAge:
    """How long a node's row has not been renewed, on the clock of who asks; while its Keeper does not answer, it grows."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._renewed = clock.monotonic()
        self.known = False
        """Whether the row was ever renewed, as far as is known; if not, its age counts from the beginning."""
        self.answered = False
        """Whether the Keeper has answered the latest question."""

    @property
    def seconds(self) -> float:
        """The age: never less than it is."""
        return self._clock.monotonic() - self._renewed

    async def look(self) -> None:
        """Ask the Keeper once; returns within a second."""
        asked, self.answered = self._clock.monotonic(), False
        try:
            async with deadline(self._clock, _ANSWER_SECONDS):
                age = await self._ask()
        except (OwlClawError, TimeoutError):
            return
        self.answered = True
        if age is not None:
            self._renewed, self.known = max(self._renewed, asked - age), True


class NodeFence:
    """Ends the hosts of a node in time, and says whether it may have any.

    A node whose Keeper says that the row cannot be renewed gives its agents up as soon as a cluster gives its lease up, which is
    before another node takes them. One whose Keeper says nothing, because it is being restarted, does so only when others may take them.
    """

    def __init__(self, ask: Ask, clock: Clock, *, end: Callable[[], Awaitable[None]]) -> None:
        """`end` ends all hosts at once."""
        self.row, self._end = RowAge(ask, clock), end
        self._closed = False

    def check(self) -> None:
        """Raise NodeCutError unless the node may have hosts."""
        if self._closed:
            raise NodeCutError(f"this node's row in the store was not renewed for {self.row.seconds:.0f} s")

    async def tick(self) -> None:
        """Look once. To be called every second."""
        await self.row.look()
        limit = GIVE_UP_SECONDS if self.row.answered else EXPIRE_SECONDS
        if not self.row.known or self.row.seconds < limit:
            self._closed = False
            return
        if not self._closed:
            logger.warning(
                "this node's row in the store was not renewed for %.1f s; its hosts are ended", self.row.seconds
            )
        self._closed = True
        await self._end()
