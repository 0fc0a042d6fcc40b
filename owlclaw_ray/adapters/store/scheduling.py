"""Schedules on the working set."""

from __future__ import annotations

from dataclasses import replace

from owlclaw_ray.adapters.store.codec import agent_key
from owlclaw_ray.adapters.store.submitting import submit_run
from owlclaw_ray.adapters.store.working_set import WorkingSet
from owlclaw_ray.domain.schedule import ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.ports.store import (
    AgentBusy,
    AlreadyFired,
    CancelSchedule,
    CreateSchedule,
    FireSchedule,
    QueueFull,
    RunAccepted,
    ScheduleCancelled,
    ScheduleCreated,
    ScheduleFired,
    TooManySchedules,
)


def create_schedule(store: WorkingSet, command: CreateSchedule) -> ScheduleCreated | TooManySchedules:
    """Store the schedule unless its id is known or the agent has its fill."""
    schedule = command.schedule
    known = store.schedules.get(schedule.schedule_id)
    if known is not None:
        if known.agent != schedule.agent:
            raise ValueError(f"schedule id {schedule.schedule_id} belongs to another agent")
        return ScheduleCreated(known)
    if store.agents[agent_key(schedule.agent)].active_schedules >= command.limit:
        return TooManySchedules(command.limit)
    store.add_schedule(schedule)
    return ScheduleCreated(schedule)


def cancel_schedule(store: WorkingSet, command: CancelSchedule) -> ScheduleCancelled:
    """Cancel an active schedule of the agent's own."""
    schedule_id = command.schedule_id
    schedule = store.schedules.get(schedule_id)
    if schedule is None or schedule.agent != command.agent:
        return ScheduleCancelled(False, schedule_id, f"this agent has no schedule {schedule_id}")
    running = store.active_runs_of(schedule)
    match schedule.status:
        case ScheduleStatus.DONE:
            return ScheduleCancelled(False, schedule_id, "the schedule has already fired for the last time", running)
        case ScheduleStatus.CANCELLED:
            return ScheduleCancelled(False, schedule_id, "the schedule was cancelled before", running)
        case ScheduleStatus.ACTIVE:
            store.change_schedule(replace(schedule, status=ScheduleStatus.CANCELLED, next_fire_at=None))
            return ScheduleCancelled(True, schedule_id, "the schedule is cancelled", running)


def fire_schedule(store: WorkingSet, command: FireSchedule) -> ScheduleFired | AlreadyFired:
    """Write the ticks, queue the run and move the schedule on, unless somebody did."""
    schedule = store.schedules.get(command.schedule_id)
    if (
        schedule is None
        or schedule.status is not ScheduleStatus.ACTIVE
        or schedule.next_fire_at != command.expected_due
    ):
        return AlreadyFired()
    if any(tick.firing_id in store.firings for tick in command.ticks):
        return AlreadyFired()
    accepted, ticks = _submit(store, command)
    store.changes.ticks += ticks
    store.firings.update(tick.firing_id for tick in ticks)
    fired = [tick.run_id for tick in ticks if tick.run_id is not None and tick.run_id in store.runs]
    store.fired_runs.setdefault(command.schedule_id, []).extend(fired)
    status = ScheduleStatus.ACTIVE if command.next_fire_at is not None else ScheduleStatus.DONE
    store.change_schedule(replace(schedule, status=status, next_fire_at=command.next_fire_at))
    return ScheduleFired(accepted)


def _submit(store: WorkingSet, command: FireSchedule) -> tuple[RunAccepted | None, tuple[Tick, ...]]:
    """Queue the run, if there is one and it is not refused; return the ticks, that of a refused run as skipped."""
    run = command.run
    if run is None:
        return None, command.ticks
    match submit_run(store, run):
        case RunAccepted() as accepted:
            return accepted, command.ticks
        case QueueFull(limit):
            reason = f"{limit} runs of the agent were queued, and no more may be (limits.queued_runs)"
        case AgentBusy(busy_with):
            reason = f"the agent was busy with {busy_with}"
        case refused:
            raise ValueError(f"the run of schedule {command.schedule_id} is refused: {refused}")
    return None, tuple(_skipped(tick, reason) if tick.run_id == run.run_id else tick for tick in command.ticks)


def _skipped(tick: Tick, reason: str) -> Tick:
    return replace(tick, outcome=TickOutcome.SKIPPED, run_id=None, reason=reason)
