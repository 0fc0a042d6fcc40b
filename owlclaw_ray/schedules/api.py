"""Schedules, as the built-in tools, the interfaces and alarm clocks use them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import Schedule
from owlclaw_ray.ids import RunId, ScheduleId
from owlclaw_ray.store.commands import QuotaReached, ScheduleCancelled, ScheduleCreated, TooManySchedules


class Schedules(Protocol):
    """Durable schedules. Synchronous: it is called from inside a tool worker."""

    def create(self, schedule: Schedule, limit: int) -> ScheduleCreated | TooManySchedules | QuotaReached:
        """Store the schedule, unless its id is taken (the stored one is returned), or `limit` or a quota is reached; see CreateSchedule."""
        ...

    def cancel(self, agent: AgentRef, schedule_id: ScheduleId, caller_run: RunId) -> ScheduleCancelled:
        """Cancel the agent's own schedule, and the unfinished runs of its firings except the caller's own; see ScheduleCancelled."""
        ...


class SyncPace(Struct, frozen=True):
    """Intervals and limits of the synchronisation with an engine."""

    reconcile: float = 30.0
    """Seconds between two comparisons of engine and schedules."""
    grace: float = 3.0
    """Seconds that the engine may be late before a schedule is fired without it."""
    most: int = 5_000
    """Alarms in the engine at most: the earliest ones."""
    look: float = 30.0
    """Seconds between two reads of the store for what is due. Changes are reported in between."""


class Alarm(Struct, frozen=True):
    """When a schedule is next due; None: not as far as is known."""

    schedule_id: ScheduleId
    at: datetime | None


class AlarmClock(Protocol):
    """Fires each schedule when it falls due, or as soon as possible afterwards. Runs depend on it for nothing but being called at
    all: that each due time is accounted for once is the store's part.
    """

    def start(self) -> None:
        """Start firing. Schedules that fell due while it was stopped fire at once."""
        ...

    async def stop(self) -> None:
        """Stop firing; a firing in progress is committed or not, never half."""
        ...

    def changed(self, schedule_ids: Collection[ScheduleId] | None) -> None:
        """Note that these schedules were created or changed; None: any may have been. A false report is harmless; a missing one may
        delay a schedule that falls due soon, once.
        """
        ...
