"""Schedules, as the built-in tools, the interfaces and alarm clocks use them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import Backfill, Schedule, ScheduleRequest, Tick
from owlclaw_ray.ids import RunId, ScheduleId, TenantId
from owlclaw_ray.store.commands import ScheduleCancelled, ScheduleCreated, TooManySchedules
from owlclaw_ray.store.queries import ScheduleFilter


class Schedules(Protocol):
    """Durable schedules. Synchronous: it is called from inside a tool worker."""

    def create(self, schedule: Schedule, limit: int) -> ScheduleCreated | TooManySchedules:
        """Store the schedule unless its id is there already (the first is returned) or the agent has its fill. See CreateSchedule."""
        ...

    def cancel(self, agent: AgentRef, schedule_id: ScheduleId, caller_run: RunId) -> ScheduleCancelled:
        """Cancel the agent's own schedule, and the runs of its firings that are not over, except the caller's own run.

        See ScheduleCancelled for the cases.
        """
        ...


class Timetable(Protocol):
    """The schedules of a tenant's agents, for people and programs."""

    async def create(
        self, agent: AgentRef, request: ScheduleRequest, *, idempotency_key: str | None = None
    ) -> Schedule:
        """Store a schedule; with the key of an earlier request, return what that one made.

        Raises UnknownAgentError, DefinitionError, ScheduleError, TooManySchedulesError, IdempotencyConflictError if the earlier request
        asked for something else, StoreUnavailableError.
        """
        ...

    async def schedules(self, where: ScheduleFilter) -> Sequence[Schedule]:
        """Return the schedules that match; raises UnknownAgentError."""
        ...

    async def schedule(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule:
        """Return the schedule; raises NotFoundError."""
        ...

    async def ticks(
        self, tenant: TenantId, schedule_id: ScheduleId, before: datetime | None, limit: int
    ) -> Sequence[Tick]:
        """Return what became of the schedule's due times, newest first; raises NotFoundError."""
        ...

    async def pause(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule:
        """Let its times pass without runs; raises NotFoundError, ScheduleClosedError."""
        ...

    async def resume(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule:
        """Have it go on with the next time that comes; raises NotFoundError, ScheduleClosedError."""
        ...

    async def cancel(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule:
        """End it, and the runs of its firings that are not over; doing it again changes nothing. Raises NotFoundError."""
        ...

    async def backfill(self, tenant: TenantId, schedule_id: ScheduleId, since: datetime, until: datetime) -> Backfill:
        """Queue a run for each of its due times from `since` to `until`, both included, that has none.

        However often it is asked, no due time has two runs. Raises NotFoundError, ScheduleClosedError if it is cancelled,
        SettledError if it has one time only or is of heartbeats, ScheduleError.
        """
        ...


class Alarm(Struct, frozen=True):
    """When a schedule wants to be rung for next; None: never again, as far as is known."""

    schedule_id: ScheduleId
    at: datetime | None


class ScheduleFirer(Protocol):
    """What an alarm clock rings."""

    async def ring(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Alarm]:
        """Fire those of the schedules that are due, and return when to ring for each again.

        What is due is what the store says, in the transaction that fires: to ring early, late, twice, at several clocks, or for
        a schedule that is paused, cancelled or unknown does no harm. Raises StoreUnavailableError: ring again.
        """
        ...

    async def fire_all_due(self) -> int:
        """As `ring`, for all schedules that there are; return how many runs that queued."""
        ...


class AlarmClock(Protocol):
    """Rings a Bell for each schedule when it falls due, and soon after if that could not be. Whether it is rung at all is all that
    runs depend on: that each due time is accounted for once, the store sees to.
    """

    def start(self) -> None:
        """Begin to ring. Schedules that fell due while nobody rang are rung for at once."""
        ...

    async def stop(self) -> None:
        """Ring no more; a firing under way is committed or not, never half."""
        ...

    def changed(self, schedule_ids: Collection[ScheduleId] | None) -> None:
        """Take note that these schedules were made or changed; None: any may have been. It is safe to say so of others, and not to
        say it: then a schedule that falls due soon may be rung for late, once.
        """
        ...
