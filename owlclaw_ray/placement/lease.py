"""Holding a store's lease: of the clusters that share a store, one runs its agents, and the others stand by. Of the Directories of that
cluster the one that Ray made last runs them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from typing import assert_never

from owlclaw_ray.errors import OwlClawError, RuntimeUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import (
    ClusterLease,
    EndHandover,
    HoldLease,
    LeaseElsewhere,
    LeaseHeld,
    LeaseReleased,
    Outcome,
    ReleaseLease,
    StaleTerm,
)
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS

RENEW_SECONDS = 1.0
GIVE_UP_SECONDS = 4.0
"""A holder that could not renew its lease for that long stops its agents: a standby may soon run them."""
_ANSWER_SECONDS = 2.0
_SILENCE = "the store does not answer"

logger = logging.getLogger(__name__)


class SupersededError(RuntimeUnavailableError):
    """An order of a Directory after which another one, of a later term, has given orders: it was held up, and nothing was done."""


class TermFence:
    """Lets no order of a superseded Directory through: one that a cut line held up may come when its successor has long taken over."""

    def __init__(self) -> None:
        self._latest = 0

    def check(self, term: int) -> None:
        """Note the term of an order; raise SupersededError if a later one is known. 0 is that of who has no lease, who is let through."""
        if 0 < term < self._latest:
            raise SupersededError(f"the Directory of term {term} was superseded: one of term {self._latest} was here")
        self._latest = max(self._latest, term)


class LeaseRole(Enum):
    """What a Directory is to the agents of its store."""

    STANDBY = auto()
    """It runs none: another cluster does, or that is not known."""
    HOLDER = auto()
    """It runs them."""
    LEAVING = auto()
    """It has handed the lease over, and is left only the agents that have a call under way: see LeaseHolder.hand_over."""
    SUPERSEDED = auto()
    """It runs none and never will: another Directory of its cluster does."""


class LeaseHolder:
    """Tries to hold the lease for its cluster, and says when it begins and when it ceases to.

    No two clocks are compared: whether a lease stands still is measured on the clock of those who look at it. The Directory takes the
    lease from another one of its cluster, which Ray has given up, but once only: under the term after the one that it finds first. So of
    two that do not know of each other each supersedes at most the one that was there before it, and they never take turns.
    """

    def __init__(
        self,
        store: CommandStore,
        cluster: str,
        directory: str,
        clock: Clock,
        *,
        began: Callable[[], Awaitable[None]],
        ended: Callable[[], Awaitable[None]],
        superseded: Callable[[], Awaitable[None]],
    ) -> None:
        """`directory` is the id of this process, which no other one ever had.

        `began` is awaited when the lease is held, `ended` when it is not any more; never both at once, and in turns. `superseded` is
        awaited once another Directory of this cluster has the lease, instead of `ended` if that was due, and nothing after it.
        """
        self._store, self._cluster, self._directory, self._clock = store, cluster, directory, clock
        self._began, self._ended, self._on_superseded = began, ended, superseded
        self._term = 0
        """Under which the lease is asked for; 0 until it is known which one comes next."""
        self._granted = False
        """Whether it was held under this term."""
        self._superseded = self._leaving = False
        self._renewed: float | None = None
        """When the latest renewal was asked for that was granted; None while the lease is not held."""
        self._seen: tuple[ClusterLease, float] | None = None
        """The lease of another cluster, and since when it has stood still."""
        self._leaver = ""
        self._generation = 0
        self._settled = LeaseRole.STANDBY
        """What was carried out last."""
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
    def leaver(self) -> str:
        """The cluster that handed the lease over and still has agents with calls under way, as far as it is known; empty for none."""
        return self._leaver

    @property
    def generation(self) -> int:
        """How often the lease has changed hands, as far as it is known; 0 before the first answer."""
        return self._generation

    @property
    def term(self) -> int:
        """Under which the lease is held, see HoldLease."""
        return self._term

    @property
    def role(self) -> LeaseRole:
        """What this Directory is, as far as it knows."""
        if self._superseded:
            return LeaseRole.SUPERSEDED
        if self._leaving:
            return LeaseRole.LEAVING
        return LeaseRole.HOLDER if self.held else LeaseRole.STANDBY

    async def tick(self) -> None:
        """Ask once for the lease, or wait on for the answer to an earlier question, and see to what follows from it.

        To be called every RENEW_SECONDS. An answer that is late counts, too: on a busy machine each may be.
        """
        if self._superseded or self._leaving:
            self._change_soon()
            return
        if self._attempt is None:
            self._asked = self._clock.monotonic()
            self._attempt = asyncio.create_task(self._ask())
        why = _SILENCE
        with suppress(TimeoutError):
            async with deadline(self._clock, self._patience()):
                await asyncio.wait({self._attempt})
        if self._attempt.done():
            attempt, self._attempt = self._attempt, None
            try:
                self._learn(attempt.result())
            except (OwlClawError, TimeoutError) as error:
                why = str(error)
        self._give_up_in_time(why)
        self._change_soon()

    async def release(self) -> None:
        """Let another cluster have the lease, if this one holds it, and all agents; it should not run agents any more."""
        await self._ask_no_more()
        if self._leaving:
            await self.end_handover()
            self._leaving = False
        if self.held:
            self._let_go()
            await self._store.apply([ReleaseLease(self._cluster, self._directory)])

    async def end_handover(self) -> None:
        """Say that this cluster has no agents any more, in case a handover of it is still under way."""
        await self._store.apply([EndHandover(self._cluster)])

    async def hand_over(self) -> None:
        """Let another cluster have the lease now, while agents of this one stay where they are until their hosts release them.

        To be called every RENEW_SECONDS, instead of `tick`, until the role is another: an answer may be lost, and while a third cluster
        does the same the lease is renewed. `stand_back` ends it once no host is left.
        """
        await self._ask_no_more()
        self._asked = self._clock.monotonic()
        try:
            async with deadline(self._clock, self._patience()):
                (outcome,) = await self._store.apply([ReleaseLease(self._cluster, self._directory, leaving=True)])
        except (OwlClawError, TimeoutError) as error:
            self._give_up_in_time(str(error) or _SILENCE)
        else:
            if isinstance(outcome, LeaseReleased):
                self._let_go()
                self._leaving = True
            elif isinstance(outcome, LeaseHeld):
                await self.tick()
            else:
                self._learn(outcome)
        self._change_soon()

    async def _ask_no_more(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait({self._attempt})
            self._attempt = None

    def _give_up_in_time(self, why: str) -> None:
        if self._renewed is not None and self._clock.monotonic() - self._renewed >= GIVE_UP_SECONDS:
            logger.warning("this cluster gives its agents up: the lease cannot be renewed: %s", why)
            self._renewed = None

    def _let_go(self) -> None:
        self._renewed, self._term, self._granted = None, 0, False

    async def stand_back(self) -> None:
        """Let another cluster have the lease while this one goes on; what follows is as if the lease was lost.

        Another `tick` asks for it again.
        """
        try:
            await self.release()
        finally:
            self._change_soon()  # it holds the lease no more, whatever became of the release

    async def _ask(self) -> Outcome:
        outcome = await self._hold()
        if isinstance(outcome, StaleTerm) and not self._is_superseded(outcome.lease):
            self._term = outcome.lease.term + 1
            outcome = await self._hold()
        return outcome

    async def _hold(self) -> Outcome:
        still = self._seen is not None and self._asked - self._seen[1] >= EXPIRE_SECONDS
        seen = self._seen[0] if self._seen is not None and still else None
        (outcome,) = await self._store.apply([HoldLease(self._cluster, self._directory, self._term, seen)])
        return outcome

    def _is_superseded(self, lease: ClusterLease) -> bool:
        """Return whether a term that has passed is the one that this Directory has had, or has asked for in vain."""
        return self._granted or (bool(self._term) and lease.cluster == self._cluster)

    def _learn(self, outcome: Outcome) -> None:
        if isinstance(outcome, LeaseHeld | LeaseElsewhere | StaleTerm):
            self._generation, self._leaver = outcome.lease.generation, outcome.lease.leaving
        match outcome:
            case LeaseHeld(lease):
                if self._renewed is None:
                    logger.info("this cluster runs the agents of the store now (generation %d)", lease.generation)
                self._renewed, self._seen, self._granted = self._asked, None, True
            case LeaseElsewhere(lease):
                if self._seen is None or self._seen[0].cluster != lease.cluster:
                    logger.warning("this cluster stands by: %s runs the agents of the store", lease.cluster)
                if self._seen is None or self._seen[0] != lease:
                    self._seen = (lease, self._clock.monotonic())
                self._renewed, self._term, self._granted = None, lease.term + 1, False
                self._leaving = lease.leaving == self._cluster
            case StaleTerm(lease) if self._is_superseded(lease):
                logger.warning(
                    "this Directory (%s, term %d) is superseded: %s of the same cluster has the lease under term %d",
                    self._directory,
                    self._term,
                    lease.directory or "one that gave it back",
                    lease.term,
                )
                self._renewed, self._seen, self._superseded = None, None, True
            case StaleTerm():
                self._renewed = None
            case other:
                logger.error("the lease was neither granted nor refused: %s", other)

    def _patience(self) -> float:
        """Return how long an answer is waited for: a holder gives up in time, also if the store does not answer at all."""
        if self._renewed is None:
            return _ANSWER_SECONDS
        return min(_ANSWER_SECONDS, max(0.0, self._renewed + GIVE_UP_SECONDS - self._clock.monotonic()))

    def _change_soon(self) -> None:
        if self._changing is None and self._settled is not self.role:
            self._changing = asyncio.create_task(self._change())

    async def _change(self) -> None:
        try:
            while self._settled is not self.role:
                role = self.role
                match role:
                    case LeaseRole.HOLDER:
                        await self._began()
                    case LeaseRole.STANDBY:
                        await self._ended()
                    case LeaseRole.LEAVING:
                        pass  # its hosts go on until they have released their agents
                    case LeaseRole.SUPERSEDED:
                        await self._on_superseded()
                    case _:
                        assert_never(role)
                self._settled = role
        except Exception:
            logger.exception("the change of the lease was not carried out; it is tried again in %g s", RENEW_SECONDS)
        finally:
            self._changing = None
