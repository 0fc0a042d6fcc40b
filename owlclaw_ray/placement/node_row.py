"""Holding a node's row in the store: as long as it is renewed, and not marked, the node may run agents."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from owlclaw_ray.errors import OwlClawError, StoreUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.placement.lease import GIVE_UP_SECONDS
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import HoldNode, JoinNode, NodeExcluded, NodeHeld, NodeLost, NodeState

_ANSWER_SECONDS = 2.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class NodeRow:
    """Joins for a node, renews its row, and joins again when it was taken for lost."""

    def __init__(
        self,
        store: CommandStore,
        join: JoinNode,
        clock: Clock,
        *,
        joined: Callable[[str, int], None],
        lost: Callable[[], Awaitable[None]],
    ) -> None:
        """`joined` is told the node's id and generation before anything is done as this generation. `lost` is awaited before the node
        joins again: it returns when no host of the former generation is left, and may raise an OwlClawError to be called again.
        """
        self._store, self._join, self._clock, self._joined, self._lost = store, join, clock, joined, lost
        self._generation = 0
        self._drained = False
        """Whether the node was drained when the row was last renewed."""
        self._renewed = clock.monotonic()
        """When the latest renewal was asked for that was granted."""
        self._attempt: asyncio.Task[None] | None = None
        self._silent = asyncio.Event()
        """The store answers nothing, not even that it cannot."""

    @property
    def unrenewed(self) -> float:
        """The seconds since the latest renewal was asked for that was granted."""
        return self._clock.monotonic() - self._renewed

    async def join(self) -> None:
        """Take up the row, made if it is new; raises StoreUnavailableError."""
        asked = self._clock.monotonic()
        (outcome,) = await self._store.apply([replace(self._join, drained=self._drained)])
        if isinstance(outcome, NodeExcluded):
            message = f"a newer version migrated the database, which takes runtimes of schema {outcome.oldest} or newer: stop this cluster"
            raise StoreUnavailableError(message)
        if not isinstance(outcome, NodeHeld):
            raise StoreUnavailableError(f"this node did not join its cluster: {outcome}")
        self._generation = outcome.node.generation
        self._drained = outcome.node.state is NodeState.DRAINING
        self._joined(outcome.node.node_id, self._generation)
        self._note_renewed(asked)

    async def tick(self) -> None:
        """Renew the row once, or wait on for the answer to an earlier attempt. To be called every second."""
        begins = self._attempt is None or self._attempt.done()
        if self._attempt is None or begins:
            self._attempt = asyncio.create_task(self._renew())
        try:
            async with deadline(self._clock, self._patience(begins=begins)):
                await asyncio.shield(self._attempt)
        except TimeoutError:
            if self.unrenewed >= GIVE_UP_SECONDS and not self._silent.is_set():
                logger.warning("the store has not answered for %.1f s: this node answers for it", self.unrenewed)
                self._silent.set()
            return
        if begins:
            self._silent.clear()

    async def while_answered(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what the store answers to the work.

        Raises StoreUnavailableError once the store has answered nothing for as long as it takes to give up a lease, and then at once:
        the work may or may not have been carried out.
        """
        if self._silent.is_set():
            raise self._silence()
        working, silence = asyncio.ensure_future(work()), asyncio.create_task(self._silent.wait())
        try:
            await asyncio.wait({working, silence}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise self._silence()
            return working.result()
        finally:
            silence.cancel()
            working.cancel()

    async def stop(self) -> None:
        """Leave the attempt that is under way."""
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait({self._attempt})

    async def _renew(self) -> None:
        asked = self._clock.monotonic()
        try:
            (outcome,) = await self._store.apply([HoldNode(self._join.node_id, self._generation)])
            if isinstance(outcome, NodeLost):
                logger.warning("this node was taken for lost; it joins again when its hosts have ended")
                await self._lost()
                await self.join()
            elif isinstance(outcome, NodeHeld):
                self._drained = outcome.node.state is NodeState.DRAINING
                self._note_renewed(asked)
        except OwlClawError as error:
            logger.warning("this node's row was not renewed: %s", error)

    def _note_renewed(self, asked: float) -> None:
        self._renewed = asked
        self._silent.clear()

    def _patience(self, *, begins: bool) -> float:
        """Return how long an answer is waited for: until it is time to give up, if that is sooner than usual."""
        left = GIVE_UP_SECONDS - self.unrenewed
        if left > 0:
            return min(_ANSWER_SECONDS, left)
        return _ANSWER_SECONDS if begins or self._silent.is_set() else 0.0

    def _silence(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"the store has not answered this node for {self.unrenewed:.0f} s")
