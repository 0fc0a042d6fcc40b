"""The embedded schedule engine: turns due times into ticks and runs (S1, S2, S4).

The store's schedule table is the truth: this engine only looks, computes, and asks for one atomic step. Any number of engines may do
so at once; the step applies for one of them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef, Limits
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, Tick, TickOutcome
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.engine.deadline import deadline
from owlclaw_ray.engine.periodic import Periodic
from owlclaw_ray.errors import RetryableError
from owlclaw_ray.ids import FiringId, RunId, derived_id
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.definitions import Definitions
from owlclaw_ray.ports.store import (
    CommandFailed,
    CommandStore,
    FireSchedule,
    Outcome,
    ScheduleFired,
    ScheduleStore,
    SubmitRun,
)

logger = logging.getLogger(__name__)

NextFire = Callable[[str, str, datetime], datetime]
"""(cron expression, IANA time zone, after) → the first due time later than `after`, aware, UTC."""

LATE = timedelta(seconds=5)
"""A tick that fires later than this after its time is `caught_up`, not `fired`."""

_MOST_MISSED = 10_000
_POSTPONED = timedelta(hours=1)
"""How long a schedule rests that cannot be planned or stored, so that it neither ends nor holds up the others."""
_WAKE_SECONDS = 3.0
_DEFINITION_SECONDS = 3.0
"""How long a firing waits for its agent's definition; then the default limits hold."""


class ScheduleEngineStore(CommandStore, ScheduleStore, Protocol):
    """What the engine needs of the store."""


@dataclass(frozen=True, slots=True)
class Firing:
    """What to do about a due schedule: the ticks that account for its due times, and the run, if one of them fires."""

    ticks: tuple[Tick, ...]
    next_fire_at: datetime | None
    run: SubmitRun | None


def plan_firing(schedule: Schedule, now: datetime, next_fire: NextFire, catch_up: timedelta) -> Firing:
    """Decide about a schedule whose `next_fire_at` is not after `now`.

    A one-time schedule fires however late it is. Of a cron schedule's missed due times the last one fires, unless it is older
    than `catch_up`; the others are skipped as `superseded`. Ids derive from schedule and due time, so deciding twice is
    deciding once.
    """
    due = schedule.next_fire_at
    if due is None:
        raise ValueError(f"schedule {schedule.schedule_id} is not due")
    if schedule.kind is ScheduleKind.ONCE:
        return Firing((_tick(schedule, due, now, _lateness(due, now)),), None, _run(schedule, due, now))
    missed, following = _missed(schedule, due, now, next_fire)
    last = missed[-1]
    ticks = []
    if len(missed) > 1:
        ticks.append(_skipped(schedule, missed[:-1], now, "superseded by a later due time"))
    if now - last > catch_up:
        ticks.append(
            _skipped(schedule, [last], now, f"older than the catch-up window of {catch_up.total_seconds():.0f} s")
        )
        return Firing(tuple(ticks), following, None)
    ticks.append(_tick(schedule, last, now, _lateness(last, now)))
    return Firing(tuple(ticks), following, _run(schedule, last, now))


def postpone(schedule: Schedule, now: datetime, reason: str) -> Firing:
    """Account for a due time that cannot fire, and try the schedule again later."""
    assert schedule.next_fire_at is not None
    return Firing((_skipped(schedule, [schedule.next_fire_at], now, reason),), now + _POSTPONED, None)


def _missed(schedule: Schedule, due: datetime, now: datetime, next_fire: NextFire) -> tuple[list[datetime], datetime]:
    missed = [due]
    following = next_fire(schedule.cron_expression, schedule.timezone, due)
    while following <= now and len(missed) < _MOST_MISSED:
        missed.append(following)
        following = next_fire(schedule.cron_expression, schedule.timezone, following)
    return missed, following


def _lateness(due: datetime, now: datetime) -> TickOutcome:
    return TickOutcome.CAUGHT_UP if now - due > LATE else TickOutcome.FIRED


def _run_id(schedule: Schedule, due: datetime) -> RunId:
    return RunId(derived_id("run", schedule.schedule_id, due.isoformat()))


def _firing_id(schedule: Schedule, due: datetime) -> FiringId:
    return FiringId(derived_id("fir", schedule.schedule_id, due.isoformat()))


def _tick(schedule: Schedule, due: datetime, now: datetime, outcome: TickOutcome) -> Tick:
    return Tick(_firing_id(schedule, due), schedule.schedule_id, due, outcome, now, _run_id(schedule, due))


def _skipped(schedule: Schedule, dues: Sequence[datetime], now: datetime, reason: str) -> Tick:
    return Tick(
        _firing_id(schedule, dues[0]),
        schedule.schedule_id,
        dues[0],
        TickOutcome.SKIPPED,
        now,
        reason=reason,
        last_due_at=dues[-1],
        count=len(dues),
    )


def _run(schedule: Schedule, due: datetime, now: datetime) -> SubmitRun:
    kind = TriggerKind.SCHEDULE_ONCE if schedule.kind is ScheduleKind.ONCE else TriggerKind.SCHEDULE_CRON
    payload = {"schedule_id": schedule.schedule_id, "due_at": due.isoformat()}
    trigger = Trigger(kind, payload=payload, focus=schedule.focus, source=schedule.schedule_id)
    return SubmitRun(_run_id(schedule, due), schedule.agent, trigger, now)


def _command(schedule: Schedule, plan: Firing, queue_limit: int | None) -> FireSchedule:
    limit = None if schedule.kind is ScheduleKind.ONCE else queue_limit
    run = None if plan.run is None else replace(plan.run, queue_limit=limit)
    assert schedule.next_fire_at is not None
    return FireSchedule(schedule.schedule_id, schedule.next_fire_at, plan.ticks, plan.next_fire_at, run)


class Scheduler:
    """Fires what is due, and sleeps until the next due time or `poll` seconds, whichever is first.

    A cron schedule's firing that finds its agent's queue full is skipped, and its tick says so. A one-time schedule has no other
    time to fire: its run is queued however many are.
    """

    def __init__(
        self,
        *,
        store: ScheduleEngineStore,
        wake: Callable[[Sequence[AgentRef]], Awaitable[object]],
        next_fire: NextFire,
        definitions: Definitions,
        clock: Clock,
        catch_up: timedelta = timedelta(days=1),
        poll: float = 1.0,
    ) -> None:
        self._store, self._wake, self._next_fire, self._definitions = store, wake, next_fire, definitions
        self._clock, self._catch_up = clock, catch_up
        self._firing = Periodic("firing schedules", self.tick, clock, poll, due_in=self._due_in)

    def start(self) -> None:
        """Begin to fire."""
        self._firing.start()

    async def stop(self) -> None:
        """Fire nothing any more; a firing under way is committed or not, never half."""
        await self._firing.stop()

    async def tick(self) -> int:
        """Fire everything that is due now; return how many runs that queued."""
        now = self._clock.now()
        due = await self._store.due_schedules(now)
        if not due:
            return 0
        limits = await self._queue_limits({schedule.agent.definition for schedule in due})
        plans = [self._plan(schedule, now) for schedule in due]
        outcomes = await self._store.apply(
            [
                _command(schedule, plan, limits[schedule.agent.definition])
                for schedule, plan in zip(due, plans, strict=True)
            ]
        )
        await self._postpone_refused(due, outcomes, now)
        fired = [each.run.agent for each in outcomes if isinstance(each, ScheduleFired) and each.run is not None]
        if fired:
            await self._wake_in_time(fired)
        return len(fired)

    async def _wake_in_time(self, agents: Sequence[AgentRef]) -> None:
        """Wake the agents, or leave it to the Directory's sweep: what falls due next does not wait for it."""
        try:
            async with deadline(self._clock, _WAKE_SECONDS):
                await self._wake(agents)
        except (RetryableError, TimeoutError) as error:
            logger.warning("%d agents are not woken for their schedules; a sweep finds them: %r", len(agents), error)

    def _plan(self, schedule: Schedule, now: datetime) -> Firing:
        try:
            return plan_firing(schedule, now, self._next_fire, self._catch_up)
        except Exception as error:
            logger.exception("schedule %s of %s cannot fire", schedule.schedule_id, schedule.agent)
            return postpone(schedule, now, f"it could not be planned: {type(error).__name__}: {error}")

    async def _postpone_refused(self, due: Sequence[Schedule], outcomes: Sequence[Outcome], now: datetime) -> None:
        postponed = []
        for schedule, outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, CommandFailed):
                logger.error("schedule %s of %s cannot fire: %s", schedule.schedule_id, schedule.agent, outcome.message)
                plan = postpone(schedule, now, f"its firing could not be stored: {outcome.message}")
                postponed.append(_command(schedule, plan, None))
        if postponed:
            await self._store.apply(postponed)

    async def _queue_limits(self, names: Iterable[str]) -> dict[str, int]:
        names = tuple(names)
        return dict(zip(names, await asyncio.gather(*map(self._queue_limit, names)), strict=True))

    async def _queue_limit(self, name: str) -> int:
        try:
            async with deadline(self._clock, _DEFINITION_SECONDS):
                return (await self._definitions.get(name)).limits.queued_runs
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one definition, the schedules of the others fire
            logger.warning("a schedule of %s fires under the default limits: %r", name, error)
            return Limits().queued_runs

    async def _due_in(self) -> float:
        upcoming = await self._store.next_due()
        return math.inf if upcoming is None else (upcoming - self._clock.now()).total_seconds()
