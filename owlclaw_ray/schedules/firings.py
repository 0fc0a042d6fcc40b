"""From a due schedule to ticks and a run (S2, S4).

The store's schedule table is the truth: this module reads, plans, and asks for one atomic step, which applies once however many
processes ask for it. A plan depends on the schedule and the time of day alone, and all ids derive from schedule and due time,
so planning twice is harmless, and a due time never has more than one run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.definitions.api import Definitions
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, Limits
from owlclaw_ray.domain.principal import keys_among
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import RetryableError
from owlclaw_ray.ids import FiringId, RunId, ScheduleId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.schedules.cron import next_fire
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import CommandFailed, FireSchedule, Outcome, ScheduleFired, SubmitRun
from owlclaw_ray.store.queries import DueSchedules, SchedulesByIds

logger = logging.getLogger(__name__)

LATE = timedelta(seconds=5)
"""A tick that fires later than this after its time is `caught_up`, not `fired`."""

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_MISSED_TICKS = 1_000
"""Due times that one step plans; the next step continues from there."""
_MAX_PLANNED_TICKS = 4_000
"""Due times that are planned before the event loop gets control back."""
_BATCH = 500
_POSTPONED = timedelta(hours=1)
"""How long a schedule that cannot be planned or stored is deferred, so that it neither ends nor blocks the others."""
_WAKE_SECONDS = 3.0
_DEFINITION_SECONDS = 3.0
"""How long a firing waits for its agent's definition before it uses the default limits."""
_TRIGGERS = {ScheduleKind.ONCE: TriggerKind.SCHEDULE_ONCE, ScheduleKind.HEARTBEAT: TriggerKind.HEARTBEAT}
_SUPERSEDED, _PAUSED = "superseded by a later due time", "the schedule was paused"


class FiringPlan(Struct, frozen=True):
    """The ticks that account for a schedule's due times, and the run, if one of them fires."""

    ticks: tuple[Tick, ...]
    next_fire_at: datetime | None
    run: SubmitRun | None


class DueTimes(Struct, frozen=True):
    """`count` consecutive due times of a schedule; `before_last` is the last but one."""

    first: datetime
    before_last: datetime
    last: datetime
    count: int
    following: datetime


def with_terms(run: SubmitRun, definition: AgentDefinition | None) -> SubmitRun:
    """Return the run with the queue limit and the callback of its agent's definition, None if that is not available. Heartbeats get no
    callback before they wake the agent.
    """
    limits = Limits() if definition is None else definition.limits
    url = "" if definition is None or run.trigger.kind is TriggerKind.HEARTBEAT else definition.callback_url
    return replace(run, queue_limit=limits.queued_runs, callback_urls=(url,) if url else ())


def following(schedule: Schedule, due: datetime) -> datetime:
    """Return the due time after this one, of a recurring schedule."""
    if schedule.interval_seconds:
        return due + timedelta(seconds=schedule.interval_seconds)
    return next_fire(schedule.cron_expression, schedule.timezone, due)


def plan_firing(schedule: Schedule, now: datetime, catch_up: timedelta, late: timedelta = LATE) -> FiringPlan:
    """Plan a schedule whose `next_fire_at` is not after `now`. Up to `late` after its due time it is not late.

    The last of the missed due times fires, unless it is older than the schedule's catch-up window, by default `catch_up`; the
    others are skipped as superseded, those before `paused_until` as paused. A one-time schedule fires however late it is, unless
    it has its own catch-up window.
    """
    due = schedule.next_due
    if due is None:
        raise ValueError(f"schedule {schedule.schedule_id} is not due")
    window = None if schedule.catch_up_seconds is None else timedelta(seconds=schedule.catch_up_seconds)
    if schedule.kind is ScheduleKind.ONCE:
        tick, run = _last(schedule, due, now, window, late)
        return FiringPlan((tick,), None, run)
    delay, ticks = schedule.delay, []
    passed = now - delay
    if schedule.paused_until is not None and due < schedule.paused_until:
        until = min(passed, schedule.paused_until - timedelta(microseconds=1))
        paused = _due_times(schedule, due, until)
        ticks.append(_skipped(schedule, paused.first, now, _PAUSED, last=paused.last, count=paused.count))
        due = paused.following
        if due <= until or due > passed:
            return FiringPlan(tuple(ticks), due + delay, None)
    missed = _due_times(schedule, due, passed)
    if missed.following <= passed:
        ticks.append(_skipped(schedule, missed.first, now, _SUPERSEDED, last=missed.last, count=missed.count))
        return FiringPlan(tuple(ticks), missed.following + delay, None)
    if missed.count > 1:
        superseded = missed.count - 1
        ticks.append(_skipped(schedule, due, now, _SUPERSEDED, last=missed.before_last, count=superseded))
    tick, run = _last(schedule, missed.last, now, catch_up if window is None else window, late)
    return FiringPlan((*ticks, tick), missed.following + delay, run)


def _last(
    schedule: Schedule, due: datetime, now: datetime, window: timedelta | None, late: timedelta
) -> tuple[Tick, SubmitRun | None]:
    """Return the tick of the last missed due time, and its run if it fires."""
    lateness = now - due - schedule.delay
    if window is not None and lateness > max(window, late):
        reason = f"older than the catch-up window of {window.total_seconds():g} s"
        return _skipped(schedule, due, now, reason), None
    outcome = TickOutcome.CAUGHT_UP if lateness > late else TickOutcome.FIRED
    firing_id, run_id = firing_id_of(schedule, due), run_id_of(schedule, due)
    return Tick(firing_id, schedule.schedule_id, due, outcome, now, run_id), run_of(schedule, due, now)


def _due_times(schedule: Schedule, due: datetime, until: datetime) -> DueTimes:
    """Return `due` and the later due times up to `until`, as many as one step plans."""
    if schedule.interval_seconds:
        interval = timedelta(seconds=schedule.interval_seconds)
        more = max((until - due) // interval, 0)
        last = due + more * interval
        return DueTimes(due, last - interval, last, more + 1, last + interval)
    before_last = last = due
    after, count = following(schedule, due), 1
    while after <= until and count < _MAX_MISSED_TICKS:
        before_last, last, count = last, after, count + 1
        after = following(schedule, after)
    return DueTimes(due, before_last, last, count, after)


def due_times_between(schedule: Schedule, since: datetime, until: datetime, most: int) -> list[datetime]:
    """Return at most `most` due times of an active or paused recurring schedule, from `since` to `until`, both included.

    None is before 1970.
    """
    since = max(since, _FIRST)
    if schedule.interval_seconds:
        assert schedule.next_due is not None
        interval = timedelta(seconds=schedule.interval_seconds)
        due = schedule.next_due - (schedule.next_due - since) // interval * interval
    else:
        due = next_fire(schedule.cron_expression, schedule.timezone, since - timedelta(microseconds=1))
    found: list[datetime] = []
    while due <= until and len(found) < most:
        found.append(due)
        due = following(schedule, due)
    return found


def firing_id_of(schedule: Schedule, due: datetime) -> FiringId:
    """Return the id of the tick whose first due time this is."""
    return FiringId(derived_id("fir", schedule.schedule_id, due.isoformat()))


def run_id_of(schedule: Schedule, due: datetime) -> RunId:
    """Return the id of the one run that the due time may have."""
    return RunId(derived_id("run", schedule.schedule_id, due.isoformat()))


def run_of(schedule: Schedule, due: datetime, now: datetime) -> SubmitRun:
    """Return the run of the due time."""
    kind = _TRIGGERS.get(schedule.kind, TriggerKind.SCHEDULE_CRON)
    payload = {"schedule_id": schedule.schedule_id, "due_at": due.isoformat()}
    trigger = Trigger(
        kind,
        payload,
        focus=schedule.focus,
        source=schedule.schedule_id,
        task_type=schedule.task_type,
        submitters=schedule.submitters,
    )
    counting = keys_among(schedule.submitters)
    return SubmitRun(run_id_of(schedule, due), schedule.agent, trigger, now, counting_keys=counting)


def _skipped(
    schedule: Schedule, first: datetime, now: datetime, reason: str, *, last: datetime | None = None, count: int = 1
) -> Tick:
    return Tick(
        firing_id_of(schedule, first),
        schedule.schedule_id,
        first,
        TickOutcome.SKIPPED,
        now,
        reason=reason,
        last_due_at=last or first,
        count=count,
    )


def give_up(schedule: Schedule, plan: FiringPlan | None, now: datetime, reason: str) -> FiringPlan:
    """Skip due times that cannot fire. A recurring schedule continues with its next due time; a schedule without a known one is
    retried later.
    """
    due = schedule.next_due
    assert due is not None
    if plan is None or plan.next_fire_at is None:
        return FiringPlan((_skipped(schedule, due, now, reason),), now + _POSTPONED, None)
    ticks = tuple(replace(each, outcome=TickOutcome.SKIPPED, run_id=None, reason=reason) for each in plan.ticks)
    return FiringPlan(ticks, plan.next_fire_at, None)


class ScheduleFirer:
    """Fires schedules.

    A recurring schedule's firing that finds its agent's queue full is skipped, and its tick says so. A one-time schedule has
    no other time to fire: its run is queued regardless of the limit.
    """

    def __init__(
        self,
        *,
        store: Store,
        wake: Callable[[Sequence[AgentRef]], Awaitable[object]],
        cancel: Callable[[AgentRef, RunId], Awaitable[object]],
        definitions: Definitions,
        clock: Clock,
        catch_up: timedelta = timedelta(days=1),
        late: timedelta = LATE,
    ) -> None:
        self._store, self._wake, self._cancel = store, wake, cancel
        self._definitions, self._clock, self._catch_up, self._late = definitions, clock, catch_up, late

    async def ring(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Alarm]:
        """Fire those of the schedules that are due, and return when each is due next.

        What is due is what the store says, in the transaction that fires: a ring that is early, late, repeated, from several alarm
        clocks, or for a paused, cancelled or unknown schedule is harmless. Raises StoreUnavailableError: ring again.
        """
        named = await self._store.read(SchedulesByIds(schedule_ids))
        now = self._clock.now()
        active = [each for each in named if each.status is ScheduleStatus.ACTIVE]
        due = [each for each in active if each.next_fire_at is not None and each.next_fire_at <= now]
        while due:
            due = due[len(await self._fire(due, now)) :]
        after = await self._store.read(SchedulesByIds(schedule_ids))
        times = {each.schedule_id: each.next_fire_at for each in after if each.status is ScheduleStatus.ACTIVE}
        return [Alarm(each, times.get(each)) for each in schedule_ids]

    async def fire_all_due(self) -> int:
        """Fire all due schedules; return how many runs were queued. Raises StoreUnavailableError."""
        queued = 0
        while True:
            now = self._clock.now()
            due = await self._store.read(DueSchedules(now, _BATCH))
            if not due:
                return queued
            outcomes = await self._fire(due, now)
            fired = [each for each in outcomes if isinstance(each, ScheduleFired)]
            queued += sum(each.run is not None for each in fired)
            if not fired:
                return queued

    async def _fire(self, due: Sequence[Schedule], now: datetime) -> Sequence[Outcome]:
        """Fire the first of them, as many as one step plans; return their outcomes."""
        plans: list[FiringPlan] = []
        planned = 0
        for schedule in due:
            try:
                plan = plan_firing(schedule, now, self._catch_up, self._late)
            except Exception as error:
                logger.exception("schedule %s of %s cannot fire", schedule.schedule_id, schedule.agent)
                plan = give_up(schedule, None, now, f"it could not be planned: {type(error).__name__}: {error}")
            plans.append(plan)
            planned += sum(min(tick.count, _MAX_MISSED_TICKS) for tick in plan.ticks)
            if planned >= _MAX_PLANNED_TICKS:
                break
        due = due[: len(plans)]
        names = tuple({each.agent.qualified_definition for each in due})
        definitions = dict(zip(names, await asyncio.gather(*map(self._definition, names)), strict=True))
        commands = []
        for each, plan in zip(due, plans, strict=True):
            run = None if plan.run is None else with_terms(plan.run, definitions[each.agent.qualified_definition])
            commands.append(_command(each, replace(plan, run=run)))
        outcomes = await self._store.apply(commands)
        await self._skip_refused(due, plans, outcomes, now)
        await self._notify(due, outcomes)
        return outcomes

    async def _skip_refused(
        self, due: Sequence[Schedule], plans: Sequence[FiringPlan], outcomes: Sequence[Outcome], now: datetime
    ) -> None:
        given_up = []
        for schedule, plan, outcome in zip(due, plans, outcomes, strict=True):
            if isinstance(outcome, CommandFailed):
                logger.error("schedule %s of %s cannot fire: %s", schedule.schedule_id, schedule.agent, outcome.message)
                reason = f"its firing could not be stored: {outcome.message}"
                given_up.append(_command(schedule, give_up(schedule, plan, now, reason)))
        if given_up:
            await self._store.apply(given_up)

    async def _notify(self, due: Sequence[Schedule], outcomes: Sequence[Outcome]) -> None:
        """Wake agents and cancel superseded runs; on failure the Directory's sweep does it, so that the next firings are not delayed."""
        fired = [
            (schedule.agent, outcome.ending)
            for schedule, outcome in zip(due, outcomes, strict=True)
            if isinstance(outcome, ScheduleFired) and outcome.run is not None
        ]
        woken = list(dict.fromkeys(agent for agent, _ in fired))
        if not woken:
            return
        try:
            async with deadline(self._clock, _WAKE_SECONDS):
                await self._wake(woken)
                for agent, ending in fired:
                    for run_id in ending:
                        await self._cancel(agent, run_id)
        except (RetryableError, TimeoutError) as error:
            logger.warning(
                "%d agents could not be woken for their schedules; the next sweep wakes them: %r", len(woken), error
            )

    async def _definition(self, name: str) -> AgentDefinition | None:
        try:
            async with deadline(self._clock, _DEFINITION_SECONDS):
                return await self._definitions.get(name)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one definition, the schedules of the others fire
            logger.warning("a schedule of %s fires under the default limits: %r", name, error)
            return None


def _command(schedule: Schedule, plan: FiringPlan) -> FireSchedule:
    once, run = schedule.kind is ScheduleKind.ONCE, plan.run
    if run is not None and once:
        run = replace(run, queue_limit=None)
    overlap = OverlapPolicy.ENQUEUE if once else schedule.overlap
    assert schedule.next_fire_at is not None
    return FireSchedule(schedule.schedule_id, schedule.next_fire_at, plan.ticks, plan.next_fire_at, run, overlap)
