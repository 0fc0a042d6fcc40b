"""Holding a store's lease: of the clusters that share a store, one runs its agents, and the others stand by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import ClusterLease, HoldLease, LeaseElsewhere, LeaseHeld, Outcome, ReleaseLease
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS

RENEW_SECONDS = 1.0
GIVE_UP_SECONDS = 4.0
"""A holder that could not renew its lease for that long stops its agents: a standby may soon run them."""
_ANSWER_SECONDS = 2.0

logger = logging.getLogger(__name__)


class LeaseHolder:
    """Tries to hold the lease for its cluster, and says when it begins and when it ceases to.

    No two clocks are compared: whether a lease stands still is measured on the clock of those who look at it.
    """

    def __init__(
        self,
        store: CommandStore,
        cluster: str,
        clock: Clock,
        *,
        began: Callable[[], Awaitable[None]],
        ended: Callable[[], Awaitable[None]],
    ) -> None:
        """`began` is awaited when the lease is held, `ended` when it is not any more; never both at once, and in turns."""
        self._store, self._cluster, self._clock = store, cluster, clock
        self._began, self._ended = began, ended
        self._renewed: float | None = None
        """When the latest renewal was asked for that was granted; None while the lease is not held."""
        self._seen: tuple[ClusterLease, float] | None = None
        """The lease of another cluster, and since when it has stood still."""
        self._generation = 0
        self._settled: bool = False
        """Whether `began` was carried out last."""
        self._changing: asyncio.Task[None] | None = None
        self._attempt: asyncio.Task[Outcome] | None = None
        self._asked = 0.0
        """When the attempt that is under way began."""

    @property
    def held(self) -> bool:
        """Whether this cluster holds the lease, as far as it knows."""
        return self._renewed is not None

    @property
    def holder(self) -> str:
        """The other cluster that holds the lease; empty if this one does, or if it is not known."""
        return "" if self._seen is None else self._seen[0].cluster

    @property
    def generation(self) -> int:
        """How often the lease has changed hands, as far as it is known; 0 before the first answer."""
        return self._generation

    async def tick(self) -> None:
        """Ask once for the lease, or wait on for the answer to an earlier question, and see to what follows from it.

        To be called every RENEW_SECONDS. An answer that is late counts, too: on a busy machine each may be.
        """
        if self._attempt is None:
            self._asked = self._clock.monotonic()
            self._attempt = asyncio.create_task(self._ask())
        why = "the store does not answer"
        with suppress(TimeoutError):
            async with deadline(self._clock, self._patience()):
                await asyncio.wait({self._attempt})
        if self._attempt.done():
            attempt, self._attempt = self._attempt, None
            try:
                self._learn(attempt.result())
            except (OwlClawError, TimeoutError) as error:
                why = str(error)
        if self._renewed is not None and self._clock.monotonic() - self._renewed >= GIVE_UP_SECONDS:
            logger.warning("this cluster gives its agents up: the lease cannot be renewed: %s", why)
            self._renewed = None
        if self._changing is None and self._settled != self.held:
            self._changing = asyncio.create_task(self._change())

    async def release(self) -> None:
        """Let another cluster have the lease, if this one holds it; it should not run agents any more."""
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait({self._attempt})
            self._attempt = None
        if self.held:
            self._renewed = None
            await self._store.apply([ReleaseLease(self._cluster)])

    async def stand_back(self) -> None:
        """Let another cluster have the lease while this one goes on; what follows is as if the lease was lost.

        Another `tick` asks for it again.
        """
        await self.release()
        if self._changing is None and self._settled != self.held:
            self._changing = asyncio.create_task(self._change())

    async def _ask(self) -> Outcome:
        still = self._seen is not None and self._asked - self._seen[1] >= EXPIRE_SECONDS
        seen = self._seen[0] if self._seen is not None and still else None
        (outcome,) = await self._store.apply([HoldLease(self._cluster, seen)])
        return outcome

    def _learn(self, outcome: Outcome) -> None:
        if isinstance(outcome, LeaseHeld | LeaseElsewhere):
            self._generation = outcome.lease.generation
        match outcome:
            case LeaseHeld(lease):
                if self._renewed is None:
                    logger.info("this cluster runs the agents of the store now (generation %d)", lease.generation)
                self._renewed, self._seen = self._asked, None
            case LeaseElsewhere(lease):
                if self._seen is None or self._seen[0].cluster != lease.cluster:
                    logger.warning("this cluster stands by: %s runs the agents of the store", lease.cluster)
                if self._seen is None or self._seen[0] != lease:
                    self._seen = (lease, self._clock.monotonic())
                self._renewed = None
            case other:
                logger.error("the lease was neither granted nor refused: %s", other)

    def _patience(self) -> float:
        """Return how long an answer is waited for: a holder gives up in time, also if the store does not answer at all."""
        if self._renewed is None:
            return _ANSWER_SECONDS
        return min(_ANSWER_SECONDS, max(0.0, self._renewed + GIVE_UP_SECONDS - self._clock.monotonic()))

    async def _change(self) -> None:
        try:
            while self._settled != self.held:
                held = self.held
                await (self._began() if held else self._ended())
                self._settled = held
        except Exception:
            logger.exception("the change of the lease was not carried out; it is tried again in %g s", RENEW_SECONDS)
        finally:
            self._changing = None
