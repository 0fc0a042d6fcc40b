"""Schedules as people and programs create and change them: built-in tools, HTTP, the CLI and the client (S2, T11-T13)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from owlclaw_ray.definitions.api import NamedDefinitions
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerRecord, access_record
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.domain.schedule import (
    MAX_DELAY_SECONDS,
    MAX_FOCUS,
    MAX_INTERVAL_SECONDS,
    MAX_JITTER_SECONDS,
    MIN_INTERVAL_SECONDS,
    Backfill,
    BackfillPlan,
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
from owlclaw_ray.schedules.cron import next_fire
from owlclaw_ray.schedules.firings import due_times_between, run_id_of, run_of, with_terms
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    AlreadyFired,
    AppendLedger,
    BackfillTick,
    CancelSchedule,
    Command,
    CreateSchedule,
    NoSuchSchedule,
    Outcome,
    PauseSchedule,
    QueueFull,
    QuotaReached,
    ResumeSchedule,
    ScheduleCancelled,
    ScheduleChanged,
    ScheduleClosed,
    ScheduleCreated,
    ScheduleFired,
    TooManySchedules,
)
from owlclaw_ray.store.queries import ComingSchedules, ScheduleById, ScheduleFilter, TicksOfSchedule, TickSum, TickSums

MAX_BACKFILL = 1_000
"""Due times that one backfill may ask for."""
_MAX_TICKS = 3 * MAX_BACKFILL
"""More than the due times of a backfill have: each is skipped once at most, and has one run at most."""
_WHEN = ("at", "delay_seconds", "interval_seconds", "cron_expression")


def new_schedule(
    request: ScheduleRequest,
    *,
    schedule_id: ScheduleId,
    agent: AgentRef,
    now: datetime,
    created_by_run: RunId | None = None,
    submitters: tuple[str, ...] = (),
) -> Schedule:
    """Return the requested schedule; raises ScheduleError."""
    _check(request)
    kind, due = _when(request, now)
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
        submitters=submitters,
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


def _when(request: ScheduleRequest, now: datetime) -> tuple[ScheduleKind, datetime]:
    """Return the kind and the first due time."""
    if request.at is not None:
        at = _aware("at", request.at)
        if at <= now:
            raise ScheduleError("at", f"{at.isoformat()} is over; it is {now.isoformat(timespec='seconds')}")
        return ScheduleKind.ONCE, at
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


def _aware(field: str, at: datetime) -> datetime:
    if at.utcoffset() is None:
        raise ScheduleError(field, f"{at.isoformat()} has no zone; write it as 2026-11-03T09:30:00Z or with +08:00")
    return at.astimezone(UTC)


def _plain(expression: str) -> str:
    return " ".join(expression.split())


def _same(stored: Schedule, asked: Schedule) -> bool:
    """Return whether the two agree in what does not change during a schedule's life, whoever asks for it."""
    fixed: dict[str, Any] = {
        "status": ScheduleStatus.ACTIVE,
        "paused_until": None,
        "forgotten_until": None,
        "submitters": (),
    }
    if stored.kind is not ScheduleKind.ONCE or stored.next_fire_at is None:
        fixed["next_fire_at"] = None
    return replace(stored, **fixed) == replace(asked, **fixed, created_at=stored.created_at)


class Timetable:
    """The schedules of a tenant's agents."""

    def __init__(
        self,
        *,
        store: Store,
        dispatcher: Dispatcher,
        definitions: NamedDefinitions,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._store, self._dispatcher, self._definitions = store, dispatcher, definitions
        self._clock, self._ids = clock, ids

    async def create(
        self,
        agent: AgentRef,
        request: ScheduleRequest,
        *,
        idempotency_key: str | None = None,
        submitters: tuple[str, ...] = (),
        by: str = "",
    ) -> Schedule:
        """Store a schedule for the principal `by`; with the key of an earlier request, return what that one made. `submitters`: the
        principals that ask for it, as triggers name them.

        Raises UnknownAgentError, DefinitionError, ScheduleError, TooManySchedulesError, QuotaReachedError, IdempotencyConflictError if the
        earlier request asked for something else, StoreUnavailableError.
        """
        limit = (await self._definitions.get(agent.qualified_definition)).limits.active_schedules
        schedule_id, now = ScheduleId(self._ids.make("sch")), self._clock.now()
        if idempotency_key is not None:
            schedule_id = ScheduleId(derived_id("sch", agent.tenant, agent.agent_id, idempotency_key))
            known = await self._store.read(ScheduleById(agent.tenant, schedule_id))
            now = now if known is None else known.created_at
        schedule = new_schedule(request, schedule_id=schedule_id, agent=agent, now=now, submitters=submitters)
        match await self._apply(CreateSchedule(schedule, limit, by)):
            case ScheduleCreated(stored):
                if idempotency_key is not None and not _same(stored, schedule):
                    raise IdempotencyConflictError(idempotency_key)
                return stored
            case TooManySchedules(most):
                raise TooManySchedulesError(agent.agent_id, most)
            case QuotaReached() as reached:
                raise reached.error(self._clock.now())
            case other:
                raise StoreUnavailableError(f"the schedule was not stored: {other}")

    async def schedules(self, where: ScheduleFilter) -> Sequence[Schedule]:
        """Return the schedules that match; raises UnknownAgentError, and NotFoundError for a place to go on after that is none of theirs:
        it is unknown, another tenant's or another agent's.
        """
        await self._check_known(where.agent)
        if where.after is not None:
            last = await self.schedule(where.tenant, where.after)
            if where.agent not in {None, last.agent}:
                raise NotFoundError("schedule", where.after)
        return await self._store.read(where)

    async def coming(self, where: ComingSchedules) -> Sequence[Schedule]:
        """Return the schedules that fire next, the earliest first; raises UnknownAgentError."""
        await self._check_known(where.agent)
        return await self._store.read(where)

    async def _check_known(self, agent: AgentRef | None) -> None:
        """Raise UnknownAgentError for an agent of no definition."""
        if agent is not None:
            names = await self._definitions.names(agent.tenant)
            if agent.definition not in names:
                raise UnknownAgentError(agent.agent_id, names)

    async def schedule(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule:
        """Return the schedule; raises NotFoundError."""
        schedule = await self._store.read(ScheduleById(tenant, schedule_id))
        if schedule is None:
            raise NotFoundError("schedule", schedule_id)
        return schedule

    async def ticks(
        self, tenant: TenantId, schedule_id: ScheduleId, before: datetime | None, limit: int
    ) -> Sequence[Tick]:
        """Return what became of the schedule's due times, newest first; raises NotFoundError."""
        await self.schedule(tenant, schedule_id)
        return await self._store.read(TicksOfSchedule(schedule_id, before, limit, tenant))

    async def tick_sums(
        self, tenant: TenantId, schedule_id: ScheduleId, bounds: Sequence[datetime]
    ) -> Sequence[TickSum]:
        """Return how many of the schedule's due times had which outcome in each of the spans between these bounds; see TickSums."""
        return await self._store.read(TickSums(tenant, schedule_id, tuple(bounds)))

    async def pause(self, tenant: TenantId, schedule_id: ScheduleId, by: str = "") -> Schedule:
        """Let its times pass without runs, for the principal `by`; raises NotFoundError, ScheduleClosedError."""
        agent = (await self.schedule(tenant, schedule_id)).agent
        return _changed(await self._apply(PauseSchedule(agent, schedule_id, self._clock.now(), by)), schedule_id)

    async def resume(self, tenant: TenantId, schedule_id: ScheduleId, by: str = "") -> Schedule:
        """Have it go on with the next time that comes, for the principal `by`; raises NotFoundError, ScheduleClosedError."""
        agent = (await self.schedule(tenant, schedule_id)).agent
        return _changed(await self._apply(ResumeSchedule(agent, schedule_id, self._clock.now(), by)), schedule_id)

    async def cancel(self, tenant: TenantId, schedule_id: ScheduleId, by: str = "") -> Schedule:
        """End it, and the runs of its firings that are not over, for the principal `by`; again it changes nothing. Raises NotFoundError."""
        agent = (await self.schedule(tenant, schedule_id)).agent
        outcome = await self._apply(CancelSchedule(agent, schedule_id, self._clock.now(), by=by))
        if not isinstance(outcome, ScheduleCancelled):
            raise StoreUnavailableError(f"the schedule was not cancelled: {outcome}")
        if outcome.ending:
            await self._dispatcher.wake([agent])
        for run_id in outcome.ending:
            await self._dispatcher.cancel(agent, run_id)
        return await self.schedule(tenant, schedule_id)

    async def backfill(
        self,
        tenant: TenantId,
        schedule_id: ScheduleId,
        since: datetime,
        until: datetime,
        *,
        quota: KeyQuota | None = None,
        submitters: tuple[str, ...] = (),
        by: str = "",
    ) -> Backfill:
        """Queue a run for each of its due times from `since` to `until`, both included, that has none, for these principals too. The
        ledger is told that `by` asked for it, in the same commit.

        However often it is asked, no due time has two runs. They count for the `quota` of the key that asks for them. Raises NotFoundError,
        ScheduleClosedError if it is cancelled, SettledError if it has one time only or is of heartbeats, ScheduleError.
        """
        now = self._clock.now()
        schedule, dues = await self._past_due_times(tenant, schedule_id, since, until, now)
        asked = replace(schedule, submitters=tuple(dict.fromkeys((*schedule.submitters, *submitters))))
        if not dues:
            return Backfill((), 0, 0)
        said: JsonObject = {"schedule_id": schedule_id, "since": dues[0].isoformat(), "until": dues[-1].isoformat()}
        record = access_record(
            self._ids.make("rec"),
            tenant,
            "schedule_backfilled",
            now,
            {**said, "by": by},
            agent_id=schedule.agent.agent_id,
        )
        return await self._backfill(asked, dues, now, quota, (record,) if by else ())

    async def plan_backfill(
        self, tenant: TenantId, schedule_id: ScheduleId, since: datetime, until: datetime
    ) -> BackfillPlan:
        """Return what a backfill from `since` to `until` would do, if nothing else happened meanwhile; raises as `backfill`."""
        schedule, dues = await self._past_due_times(tenant, schedule_id, since, until, self._clock.now())
        if not dues:
            return BackfillPlan((), 0)
        after_last = dues[-1] + timedelta(microseconds=1)
        ticks = await self._store.read(TicksOfSchedule(schedule_id, after_last, _MAX_TICKS, tenant))
        have, forgotten = {tick.run_id for tick in ticks}, schedule.forgotten_until
        known_from = dues[0] if forgotten is None else forgotten + timedelta(microseconds=1)
        missing = tuple(due for due in dues if due >= known_from and run_id_of(schedule, due) not in have)
        return BackfillPlan(missing, len(dues) - len(missing))

    async def _past_due_times(
        self, tenant: TenantId, schedule_id: ScheduleId, since: datetime, until: datetime, now: datetime
    ) -> tuple[Schedule, Sequence[datetime]]:
        """Return a schedule and its due times that a backfill is about; raises as `backfill`."""
        schedule = await self.schedule(tenant, schedule_id)
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
        dues = due_times_between(schedule, since, until, MAX_BACKFILL + 1)
        if len(dues) > MAX_BACKFILL:
            raise ScheduleError("since", f"there are more than {MAX_BACKFILL} due times from then on; ask for fewer")
        return schedule, dues

    async def _backfill(
        self,
        schedule: Schedule,
        dues: Sequence[datetime],
        now: datetime,
        quota: KeyQuota | None,
        told: Sequence[LedgerRecord],
    ) -> Backfill:
        definition = await self._definitions.get(schedule.agent.qualified_definition)
        commands: list[Command] = []
        for due in dues:
            firing_id = FiringId(derived_id("fir", schedule.schedule_id, due.isoformat(), "backfill"))
            run_id, outcome = run_id_of(schedule, due), TickOutcome.CAUGHT_UP
            tick = Tick(firing_id, schedule.schedule_id, due, outcome, now, run_id, reason="backfill")
            run = replace(with_terms(run_of(schedule, due, now), definition), quota=quota, counting_keys=())
            commands.append(BackfillTick(schedule.agent, tick, run))
        if told:
            commands.append(AppendLedger(tuple(told)))
        outcomes = (await self._store.apply(commands))[: len(dues)]
        queued = tuple(each.run.run_id for each in outcomes if isinstance(each, ScheduleFired) and each.run is not None)
        known = sum(isinstance(each, AlreadyFired) for each in outcomes)
        refused = sum(isinstance(each, QueueFull | QuotaReached) for each in outcomes)
        if len(queued) + known + refused < len(dues):
            raise StoreUnavailableError(f"not all due times could be stored: {outcomes[-1]}")
        if queued:
            await self._dispatcher.wake([schedule.agent])
        return Backfill(queued, known, refused)

    async def _apply(self, command: Command) -> Outcome:
        return (await self._store.apply([command]))[0]


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
