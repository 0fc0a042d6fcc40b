"""Commands about schedules, and their outcomes."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleStatus, Tick
from owlclaw_ray.ids import RunId, ScheduleId
from owlclaw_ray.store.commands.runs import RunAccepted, SubmitRun


class CreateSchedule(Struct, frozen=True):
    """Store a schedule. Outcome: ScheduleCreated (the first one, if the id is there already), TooManySchedules, or QuotaReached.

    Paused schedules count to the limit, and to the tenant's quota, as active ones do; heartbeats do not count to the quota.
    """

    schedule: Schedule
    limit: int
    by: str = ""
    """The principal that asks for it, which the ledger is told in the same commit if it changes anything; empty: the runtime itself."""


class CancelSchedule(Struct, frozen=True):
    """Cancel an agent's own schedule, and ask the runs of its firings that are not over to end, but for `caller_run`.

    Outcome: ScheduleCancelled.
    """

    agent: AgentRef
    schedule_id: ScheduleId
    at: datetime
    caller_run: RunId | None = None
    becomes: ScheduleStatus = ScheduleStatus.CANCELLED
    """DONE, if nobody called it off and it has nothing more to do."""
    by: str = ""
    """The principal that asks for it, which the ledger is told in the same commit if it changes anything; empty: the runtime itself."""


class PauseSchedule(Struct, frozen=True):
    """Keep an agent's own schedule from firing. Outcome: ScheduleChanged, ScheduleClosed or NoSuchSchedule."""

    agent: AgentRef
    schedule_id: ScheduleId
    at: datetime
    by: str = ""
    """The principal that asks for it, which the ledger is told in the same commit if it changes anything; empty: the runtime itself."""


class ResumeSchedule(Struct, frozen=True):
    """Have a paused schedule go on; one that is not paused stays as it is. Outcome as of PauseSchedule.

    Its next_fire_at stays, so that whoever fires schedules accounts for the due times that passed.
    """

    agent: AgentRef
    schedule_id: ScheduleId
    at: datetime
    by: str = ""
    """The principal that asks for it, which the ledger is told in the same commit if it changes anything; empty: the runtime itself."""


class FireSchedule(Struct, frozen=True):
    """Account for due times of a schedule and move it on: all of it, or, if a tick's firing_id is there already, nothing.

    Applies only while the schedule is active and its next_fire_at is `expected_due`. Outcome: ScheduleFired or AlreadyFired.
    If the run is refused, because its agent's queue is full, its policy says so, or `overlap` does, its tick is stored as
    skipped, with the reason.
    """

    schedule_id: ScheduleId
    expected_due: datetime
    ticks: tuple[Tick, ...]
    next_fire_at: datetime | None
    run: SubmitRun | None
    overlap: OverlapPolicy = OverlapPolicy.ENQUEUE


class BackfillTick(Struct, frozen=True):
    """Queue a run for a past due time of an agent's own schedule, which stays where it is, and store the tick.

    Changes nothing if the run's id, or the tick's, is there already. Outcome: ScheduleFired, AlreadyFired, QueueFull, QuotaReached,
    ScheduleClosed if the schedule is cancelled, NoSuchSchedule.
    """

    agent: AgentRef
    tick: Tick
    run: SubmitRun


class ScheduleCreated(Struct, frozen=True):
    """It is stored; `schedule` is what the store has."""

    schedule: Schedule


class TooManySchedules(Struct, frozen=True):
    """The agent has `limit` schedules already that are active or paused."""

    limit: int


class ScheduleCancelled(Struct, frozen=True):
    """`cancelled` is False, with the reason in `message`, when it does not exist for this agent, is done, or was cancelled before."""

    cancelled: bool
    schedule_id: ScheduleId
    message: str
    ending: tuple[RunId, ...] = ()
    """Runs that are asked to end, and have not ended by that: their agent should be woken, and they should get a cancel signal."""
    ended: tuple[RunId, ...] = ()
    """Runs that waited in the queue, and are over by that."""


class ScheduleChanged(Struct, frozen=True):
    """The schedule stands like this."""

    schedule: Schedule


class ScheduleClosed(Struct, frozen=True):
    """The schedule never fires again, and stays so."""

    schedule: Schedule


class NoSuchSchedule(Struct, frozen=True):
    """The agent has none of that id."""


class ScheduleFired(Struct, frozen=True):
    """The due times are accounted for; `run` is what was queued, if anything."""

    run: RunAccepted | None
    ending: tuple[RunId, ...] = ()
    """Runs of earlier firings that are asked to end, as in ScheduleCancelled."""
    ended: tuple[RunId, ...] = ()
    """Those of earlier firings that are over by that."""


class AlreadyFired(Struct, frozen=True):
    """Somebody else accounted for this due time, or the schedule is no longer active."""
