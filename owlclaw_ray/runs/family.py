"""Runs that started others: they wait in the store, and go on when the others are over.

A run that waits is nobody's. Whoever ends a run that another one waits for tells the store, and whoever has a run wait looks
once whether there is anything left to wait for; between the two, every order of events is covered. What a crash leaves untold,
the sweep finds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import Run
from owlclaw_ray.errors import RetryableError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import CancelOutcome, CancelRun, RunEnded, RunReleased
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.store.queries import ReleasedRuns, RunById

logger = logging.getLogger(__name__)


class Family:
    """Tells runs of the ends of those that they started, and these of the end of the one that started them.

    `wake` and `cancel` reach agents where they are; both may get lost.
    """

    def __init__(
        self,
        *,
        store: Store,
        wake: Callable[[Sequence[AgentRef]], Awaitable[object]],
        cancel: Callable[[AgentRef, RunId], Awaitable[object]],
        clock: Clock,
    ) -> None:
        self._store, self._wake, self._cancel, self._clock = store, wake, cancel, clock
        self._durable = DurableStore(store, clock)
        self._telling: set[asyncio.Task[None]] = set()

    def ended(self, run: Run) -> None:
        """Have the run that started this one learn that it is over, in the background."""
        lineage = run.trigger.asked_by
        if lineage is not None:
            parent = AgentRef(run.agent.tenant, lineage.parent)
            self._begin(self._tell([RunEnded(parent, lineage.parent_run, (run.run_id,))]))

    def admit(self, agents: Sequence[AgentRef]) -> None:
        """Have these agents look for their runs, in the background: a place among the running ones of their tenant is free."""
        if agents:
            self._begin(_finished(self._wake(agents)))

    def waits(self, run: Run, awaited: Sequence[RunId]) -> None:
        """Look, in the background, whether what a run has just begun to wait for is over."""
        self._begin(self._look(run, awaited))

    async def end(self, tenant: TenantId, started: Sequence[RunId]) -> None:
        """Have these runs end, because the one that started them does. When this returns, it is durable."""
        now = self._clock.now()
        commands = [CancelRun(tenant, run_id, now) for run_id in started]
        for outcome in await self._durable.outcomes(commands) if commands else ():
            if isinstance(outcome, CancelOutcome) and outcome.run is not None and not outcome.run.status.final:
                signal = (
                    self._wake([outcome.run.agent])
                    if outcome.waited
                    else self._cancel(outcome.run.agent, outcome.run.run_id)
                )
                self._begin(_finished(signal))

    async def orphaned(self, run: Run) -> bool:
        """Return whether the run that started this one is over, so that nobody waits for it.

        A call that starts a run may still be on its way to the store when its own run ends.
        """
        lineage = run.trigger.asked_by
        if lineage is None:
            return False
        try:
            parent = await self._store.read(RunById(run.agent.tenant, lineage.parent_run))
        except RetryableError as error:
            logger.warning("run %s begins without a look at the one that started it: %s", run.run_id, error)
            return False
        return parent is not None and parent.status.final

    async def sweep(self) -> int:
        """Set going every run that waits for what is over; return how many commands that took."""
        untold = await self._store.read(ReleasedRuns())
        await self._tell(untold)
        return len(untold)

    async def _look(self, run: Run, awaited: Sequence[RunId]) -> None:
        runs = [await self._store.read(RunById(run.agent.tenant, run_id)) for run_id in awaited]
        known = zip(awaited, runs, strict=True)
        over = tuple(run_id for run_id, each in known if each is None or each.status.final)
        if over:
            await self._tell([RunEnded(run.agent, run.run_id, over)])

    async def _tell(self, facts: Sequence[RunEnded]) -> None:
        outcomes = await self._durable.outcomes(facts) if facts else ()
        going_on = [
            fact.agent
            for fact, outcome in zip(facts, outcomes, strict=True)
            if isinstance(outcome, RunReleased) and outcome.resumes
        ]
        if going_on:
            await self._wake(going_on)

    def _begin(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._contained(telling))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _contained(self, telling: Coroutine[Any, Any, None]) -> None:
        try:
            await telling
        except RetryableError as error:
            logger.warning("a run that waits for others is told by the next sweep: %s", error)
        except Exception:
            logger.exception("a run that waits for others is told by the next sweep")


async def _finished(signal: Awaitable[object]) -> None:
    await signal
