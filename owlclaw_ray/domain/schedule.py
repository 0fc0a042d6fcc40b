"""Schedules: durable rules that produce triggers, and the ticks that account for each due time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.pickling import fast_pickle
from owlclaw_ray.ids import FiringId, RunId, ScheduleId


class ScheduleKind(Enum):
    """How often."""

    ONCE = "once"
    CRON = "cron"


class ScheduleStatus(Enum):
    """Where a schedule stands."""

    ACTIVE = "active"
    DONE = "done"
    """A one-time schedule that fired."""
    CANCELLED = "cancelled"


@fast_pickle
@dataclass(frozen=True, slots=True)
class Schedule:
    """A durable rule that produces triggers."""

    schedule_id: ScheduleId
    agent: AgentRef
    kind: ScheduleKind
    focus: str
    created_at: datetime
    next_fire_at: datetime | None
    """The next due time; None when it is done or cancelled."""
    cron_expression: str = ""
    timezone: str = "UTC"
    status: ScheduleStatus = ScheduleStatus.ACTIVE
    created_by_run: RunId | None = None


class TickOutcome(Enum):
    """What became of a due time."""

    FIRED = "fired"
    CAUGHT_UP = "caught_up"
    """It fired after its time, because nobody was there to fire it."""
    SKIPPED = "skipped"


@fast_pickle
@dataclass(frozen=True, slots=True)
class Tick:
    """One due time of a schedule, or a run of missed ones with the same outcome."""

    firing_id: FiringId
    schedule_id: ScheduleId
    due_at: datetime
    outcome: TickOutcome
    at: datetime
    run_id: RunId | None = None
    reason: str = ""
    last_due_at: datetime | None = None
    """The last of several missed due times that this tick accounts for."""
    count: int = 1
