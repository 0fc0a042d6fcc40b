"""Schedules for people and programs: what the built-in tools, HTTP, the CLI and the client do is done here (S2, T11-T13)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from owlclaw_ray.definitions.api import NamedDefinitions
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import (
    MAX_DELAY_SECONDS,
    MAX_FOCUS,
    MAX_INTERVAL_SECONDS,
    MAX_JITTER_SECONDS,
    MIN_INTERVAL_SECONDS,
    Backfill,
    Schedule,
    ScheduleKind,
    ScheduleRequest,
    ScheduleStatus,
    Tick,
    TickOutcome,
)
from owlclaw_ray.errors import (
    IdempotencyConflictError,
    NotFoundError,
    ScheduleClosedError,
    ScheduleError,
    SettledError,
    StoreUnavailableError,
    TooManySchedulesError,
    UnknownAgentError,
)
from owlclaw_ray.ids import FiringId, IdSource, RunId, ScheduleId, TenantId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runs.submissions import Dispatcher
from owlclaw_ray.schedules.firings import NextFire, RunTerms, due_times_between, run_id_of, run_of, terms_of
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    AlreadyFired,
    BackfillTick,
    CancelSchedule,
    Command,
    CreateSchedule,
    NoSuchSchedule,
    Outcome,
    PauseSchedule,
    QueueFull,
    ResumeSchedule,
    ScheduleCancelled,
    ScheduleChanged,
    ScheduleClosed,
    ScheduleCreated,
    ScheduleFired,
    TooManySchedules,
)
from owlclaw_ray.store.queries import ScheduleById, ScheduleFilter, TicksOfSchedule

MAX_BACKFILL = 1_000
"""Due times that one backfill may ask for."""
_WHEN = ("at", "delay_seconds", "interval_seconds", "cron_expression")


def new_schedule(
    request: ScheduleRequest,
    *,
    schedule_id: ScheduleId,
    agent: AgentRef,
    now: datetime,
    next_fire: NextFire,
    created_by_run: RunId | None = None,
) -> Schedule:
    """Return the schedule that is asked for; raises ScheduleError."""
    _check(request)
    kind, due = _when(request, now, next_fire)
    schedule = Schedule(
        schedule_id=schedule_id,
        agent=agent,
        kind=kind,
        focus=request.focus,
        created_at=now,
        next_fire_at=due,
        cron_expression=_plain(request.cron_expression or ""),
        timezone=request.timezone,
        created_by_run=created_by_run,
        interval_seconds=request.interval_seconds or 0,
        jitter_seconds=request.jitter_seconds,
        overlap=request.overlap,
        catch_up_seconds=request.catch_up_seconds,
        task_type=request.task_type,
    )
    return replace(schedule, next_fire_at=due + schedule.delay)


def _check(request: ScheduleRequest) -> None:
    said = [name for name in _WHEN if getattr(request, name) is not None]
    if len(said) != 1:
        given = f"got {' and '.join(said)}" if said else "none is given"
        raise ScheduleError("schedule", f"{given}; must have exactly one of {', '.join(_WHEN)}")
    once = said[0] in {"at", "delay_seconds"}
    if not 0 < len(request.focus) <= MAX_FOCUS or not request.focus.strip() or "\0" in request.focus:
        raise ScheduleError(
            "focus", f"must be a text of 1 to {MAX_FOCUS} characters that are not all blank, without NUL"
        )
    if request.timezone != "UTC" and request.cron_expression is None:
        raise ScheduleError("timezone", f"is only for cron_expression; {said[0]} needs none")
    if not 0 <= request.jitter_seconds <= MAX_JITTER_SECONDS:
        raise ScheduleError("jitter_seconds", f"got {request.jitter_seconds}; must be 0 to {MAX_JITTER_SECONDS}")
    if once and request.jitter_seconds:
        raise ScheduleError("jitter_seconds", "is only for schedules that repeat")
    if request.catch_up_seconds is not None and not 0 <= request.catch_up_seconds <= MAX_INTERVAL_SECONDS:
        raise ScheduleError(
            "catch_up_seconds", f"got {request.catch_up_seconds:g}; must be 0 to {MAX_INTERVAL_SECONDS}"
        )


def _when(request: ScheduleRequest, now: datetime, next_fire: NextFire) -> tuple[ScheduleKind, datetime]:
    """Return the kind and the first due time."""
    if request.at is not None:
        return ScheduleKind.ONCE, _future("at", request.at, now)
    if request.delay_seconds is not None:
        if not 0 < request.delay_seconds <= MAX_DELAY_SECONDS:
            raise ScheduleError(
                "delay_seconds", f"got {request.delay_seconds:g}; must be over 0 and up to {MAX_DELAY_SECONDS}"
            )
        return ScheduleKind.ONCE, now + timedelta(seconds=request.delay_seconds)
    if request.interval_seconds is not None:
        if not MIN_INTERVAL_SECONDS <= request.interval_seconds <= MAX_INTERVAL_SECONDS:
            raise ScheduleError(
                "interval_seconds",
                f"got {request.interval_seconds}; must be {MIN_INTERVAL_SECONDS} to {MAX_INTERVAL_SECONDS}",
            )
        return ScheduleKind.INTERVAL, now + timedelta(seconds=request.interval_seconds)
    return ScheduleKind.CRON, next_fire(_plain(request.cron_expression or ""), request.timezone, now)


def _future(field: str, at: datetime, now: datetime) -> datetime:
    at = _aware(field, at)
    if at <= now:
        raise ScheduleError(field, f"{at.isoformat()} is over; it is {now.isoformat(timespec='seconds')}")
    return at


def _aware(field: str, at: datetime) -> datetime:
    if at.utcoffset() is None:
        raise ScheduleError(field, f"{at.isoformat()} has no zone; write it as 2026-11-03T09:30:00Z or with +08:00")
    return at.astimezone(UTC)


def _plain(expression: str) -> str:
    return " ".join(expression.split())


def _rule(schedule: Schedule) -> Schedule:
    """Return what does not change while the schedule lives."""
    at = schedule.next_fire_at if schedule.kind is ScheduleKind.ONCE else None
    return replace(schedule, next_fire_at=at, status=ScheduleStatus.ACTIVE, paused_until=None)


def _same(stored: Schedule, asked: Schedule) -> bool:
    if stored.next_fire_at is None:
        asked = replace(asked, next_fire_at=None)
    return _rule(stored) == replace(_rule(asked), created_at=stored.created_at)


class StoreTimetable:
    """Implements `Timetable` over the store."""

    def __init__(
        self,
        *,
        store: Store,
        dispatcher: Dispatcher,
        definitions: NamedDefinitions,
        next_fire: NextFire,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._store, self._dispatcher, self._definitions = store, dispatcher, definitions
        self._next_fire, self._clock, self._ids = next_fire, clock, ids

    async def create(
        self, agent: AgentRef, request: ScheduleRequest, *, idempotency_key: str | None = None
    ) -> Schedule:
        """See Timetable.create."""
        limit = (await self._definitions.get(agent.definition)).limits.active_schedules
        schedule_id, now = ScheduleId(self._ids.make("sch")), self._clock.now()
        if idempotency_key is not None:
            schedule_id = ScheduleId(derived_id("sch", agent.tenant, agent.agent_id, idempotency_key))
            known = await self._store.read(ScheduleById(agent.tenant, schedule_id))
            now = now if known is None else known.created_at
        schedule = new_schedule(request, schedule_id=schedule_id, agent=agent, now=now, next_fire=self._next_fire)
        match await self._apply(CreateSchedule(schedule, limit)):
            case ScheduleCreated(stored):
                if idempotency_key is not None and not _same(stored, schedule):
                    raise IdempotencyConflictError(idempotency_key)
                return stored
            case TooManySchedules(most):
                raise TooManySchedulesError(agent.agent_id, most)
            case other:
                raise StoreUnavailableError(f"the schedule was not stored: {other}")

    async def schedules(self, where: ScheduleFilter) -> Sequence[Schedule]:
        """See Timetable.schedules."""
        names = await self._definitions.names()
        if where.agent is not None and where.agent.definition not in names:
            raise UnknownAgentError(where.agent.agent_id, names)
        return await self._store.read(where)

    async def schedule(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule:
        """See Timetable.schedule."""
        schedule = await self._store.read(ScheduleById(tenant, schedule_id))
        if schedule is None:
            raise NotFoundError("schedule", schedule_id)
        return schedule

    async def ticks(
        self, tenant: TenantId, schedule_id: ScheduleId, before: datetime | None, limit: int
    ) -> Sequence[Tick]:
        """See Timetable.ticks."""
        await self.schedule(tenant, schedule_id)
        return await self._store.read(TicksOfSchedule(schedule_id, before, limit))

    async def pause(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule:
        """See Timetable.pause."""
        agent = (await self.schedule(tenant, schedule_id)).agent
        return _changed(await self._apply(PauseSchedule(agent, schedule_id, self._clock.now())), schedule_id)

    async def resume(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule:
        """See Timetable.resume."""
        agent = (await self.schedule(tenant, schedule_id)).agent
        return _changed(await self._apply(ResumeSchedule(agent, schedule_id, self._clock.now())), schedule_id)

    async def cancel(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule:
        """See Timetable.cancel."""
        agent = (await self.schedule(tenant, schedule_id)).agent
        outcome = await self._apply(CancelSchedule(agent, schedule_id, self._clock.now()))
        if not isinstance(outcome, ScheduleCancelled):
            raise StoreUnavailableError(f"the schedule was not cancelled: {outcome}")
        if outcome.ending:
            await self._dispatcher.wake([agent])
        for run_id in outcome.ending:
            await self._dispatcher.cancel(agent, run_id)
        return await self.schedule(tenant, schedule_id)

    async def backfill(self, tenant: TenantId, schedule_id: ScheduleId, since: datetime, until: datetime) -> Backfill:
        """See Timetable.backfill."""
        schedule, now = await self.schedule(tenant, schedule_id), self._clock.now()
        since, until = _aware("since", since), _aware("until", until)
        if schedule.kind is ScheduleKind.ONCE:
            why = "it has one time only; make another one instead"
            raise SettledError("schedule", schedule_id, schedule.status.value, why)
        if schedule.kind is ScheduleKind.HEARTBEAT:
            why = "a heartbeat sees what is pending now; there is nothing to make up for"
            raise SettledError("schedule", schedule_id, schedule.status.value, why)
        if schedule.status.final:
            raise ScheduleClosedError(schedule_id, schedule.status.value)
        if not since <= until <= now:
            raise ScheduleError("until", f"must not be before `since`, nor after now, which is {now.isoformat()}")
        dues = due_times_between(schedule, since, until, MAX_BACKFILL + 1, self._next_fire)
        if len(dues) > MAX_BACKFILL:
            raise ScheduleError("since", f"there are more than {MAX_BACKFILL} due times from then on; ask for fewer")
        return await self._backfill(schedule, dues, now) if dues else Backfill((), 0, 0)

    async def _backfill(self, schedule: Schedule, dues: Sequence[datetime], now: datetime) -> Backfill:
        terms = terms_of(await self._definitions.get(schedule.agent.definition))
        commands = [_backfill_tick(schedule, due, now, terms) for due in dues]
        outcomes = await self._store.apply(commands)
        queued = tuple(each.run.run_id for each in outcomes if isinstance(each, ScheduleFired) and each.run is not None)
        known = sum(isinstance(each, AlreadyFired) for each in outcomes)
        refused = sum(isinstance(each, QueueFull) for each in outcomes)
        if len(queued) + known + refused < len(dues):
            raise StoreUnavailableError(f"not all due times could be stored: {outcomes[-1]}")
        if queued:
            await self._dispatcher.wake([schedule.agent])
        return Backfill(queued, known, refused)

    async def _apply(self, command: Command) -> Outcome:
        return (await self._store.apply([command]))[0]


def _backfill_tick(schedule: Schedule, due: datetime, now: datetime, terms: RunTerms) -> BackfillTick:
    firing_id = FiringId(derived_id("fir", schedule.schedule_id, due.isoformat(), "backfill"))
    run_id, outcome = run_id_of(schedule, due), TickOutcome.CAUGHT_UP
    tick = Tick(firing_id, schedule.schedule_id, due, outcome, now, run_id, reason="backfill")
    return BackfillTick(schedule.agent, tick, terms.with_terms(run_of(schedule, due, now)))


def _changed(outcome: Outcome, schedule_id: ScheduleId) -> Schedule:
    match outcome:
        case ScheduleChanged(schedule):
            return schedule
        case ScheduleClosed(schedule):
            raise ScheduleClosedError(schedule_id, schedule.status.value)
        case NoSuchSchedule():
            raise NotFoundError("schedule", schedule_id)
        case other:
            raise StoreUnavailableError(f"the schedule was not changed: {other}")
