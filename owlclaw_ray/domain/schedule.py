"""Schedules: durable rules that produce triggers, and the ticks that account for each due time."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from hashlib import sha256

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.ids import FiringId, RunId, ScheduleId

MAX_FOCUS = 500
MAX_DELAY_SECONDS = 2_592_000
"""Thirty days."""
MIN_INTERVAL_SECONDS = 60
MAX_INTERVAL_SECONDS = 31_622_400
MAX_JITTER_SECONDS = 86_400


class ScheduleKind(Enum):
    """How often."""

    ONCE = "once"
    INTERVAL = "interval"
    """Every so many seconds, whatever the clocks on the walls do."""
    CRON = "cron"
    """At times of the clock on the wall of a time zone."""
    HEARTBEAT = "heartbeat"
    """An interval whose runs look for events first, and end at once if there are none. The runtime makes these."""


class ScheduleStatus(Enum):
    """Where a schedule stands."""

    ACTIVE = "active"
    PAUSED = "paused"
    """Its times pass without a run. They are accounted for when it goes on."""
    DONE = "done"
    """A one-time schedule that fired."""
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether it never fires again."""
        return self in {ScheduleStatus.DONE, ScheduleStatus.CANCELLED}


class OverlapPolicy(Enum):
    """What becomes of a due time when runs of earlier firings of the same schedule are not over."""

    BUFFER_ONE = "buffer_one"
    """At most one run of the schedule waits: while one is queued, it is skipped."""
    SKIP = "skip"
    """It is skipped while any of them is not over."""
    ENQUEUE = "enqueue"
    """Its run waits with the others, however many."""
    CANCEL_PREVIOUS = "cancel_previous"
    """They are asked to end, and its run is queued."""


class Schedule(Struct, frozen=True):
    """A durable rule that produces triggers."""

    schedule_id: ScheduleId
    agent: AgentRef
    kind: ScheduleKind
    focus: str
    created_at: datetime
    next_fire_at: datetime | None
    """When it fires next: the next due time and the schedule's `delay`. None when it is done or cancelled."""
    cron_expression: str = ""
    timezone: str = "UTC"
    status: ScheduleStatus = ScheduleStatus.ACTIVE
    created_by_run: RunId | None = None
    interval_seconds: int = 0
    jitter_seconds: int = 0
    overlap: OverlapPolicy = OverlapPolicy.BUFFER_ONE
    catch_up_seconds: float | None = None
    """How late a missed due time may still fire; None: as the runtime's setting says, and for a one-time schedule however late."""
    task_type: str = ""
    """Of its runs' triggers."""
    paused_until: datetime | None = None
    """When it last went on after a pause: due times before that are skipped."""
    forgotten_until: datetime | None = None
    """Ticks of due times up to that were removed because they were old: what became of these is not known any more."""
    submitters: tuple[str, ...] = ()
    """The principals that asked for it, or for the run that made it: they ask for its runs."""

    @property
    def delay(self) -> timedelta:
        """By how much it fires after each due time: below `jitter_seconds`, ever the same, and others than its neighbours'."""
        if not self.jitter_seconds:
            return timedelta(0)
        part = int.from_bytes(sha256(self.schedule_id.encode()).digest()[:6]) / 2**48
        return timedelta(milliseconds=int(part * self.jitter_seconds * 1_000))

    @property
    def next_due(self) -> datetime | None:
        """The due time that it fires for next."""
        return None if self.next_fire_at is None else self.next_fire_at - self.delay


class TickOutcome(Enum):
    """What became of a due time."""

    FIRED = "fired"
    CAUGHT_UP = "caught_up"
    """It fired after its time, because nobody was there to fire it, or because somebody asked for it afterwards."""
    SKIPPED = "skipped"


class Tick(Struct, frozen=True):
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


class ScheduleRequest(Struct, frozen=True):
    """What somebody asks for: one of `at`, `delay_seconds`, `interval_seconds` and `cron_expression` says when."""

    focus: str
    at: datetime | None = None
    delay_seconds: float | None = None
    interval_seconds: int | None = None
    cron_expression: str | None = None
    timezone: str = "UTC"
    jitter_seconds: int = 0
    overlap: OverlapPolicy = OverlapPolicy.BUFFER_ONE
    catch_up_seconds: float | None = None
    task_type: str = ""


class Backfill(Struct, frozen=True):
    """What a backfill did."""

    queued: tuple[RunId, ...]
    """A run for each due time that had none."""
    known: int
    """Due times that have a run already, or are so old that it is not known any more whether they had one."""
    refused: int
    """Due times without a run, because the agent's queue is full or a quota is reached; asking again later makes it good."""


class BackfillPlan(Struct, frozen=True):
    """What a backfill would do."""

    missing: tuple[datetime, ...]
    """The due times that have no run, and would get one."""
    known: int
    """Due times that have a run already, or are so old that it is not known any more whether they had one."""
