"""Schedules on the working set."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import access_record
from owlclaw_ray.domain.quota import SCHEDULES
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.ids import RunId, derived_id
from owlclaw_ray.store.commands import (
    AgentBusy,
    AlreadyFired,
    BackfillTick,
    CancelSchedule,
    CreateSchedule,
    FireSchedule,
    NoSuchSchedule,
    PauseSchedule,
    QueueFull,
    QuotaReached,
    ResumeSchedule,
    RunAccepted,
    ScheduleCancelled,
    ScheduleChanged,
    ScheduleClosed,
    ScheduleCreated,
    ScheduleFired,
    SubmitRun,
    TooManySchedules,
)
from owlclaw_ray.store.sql.cancellation import ask_to_end
from owlclaw_ray.store.sql.codec import agent_key, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.quotas import count_schedule, keep, no_room_for, reached
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.submission import need_submission, submit_run
from owlclaw_ray.store.sql.working_set import RunRow, WorkingSet


def _need_new_schedule(needs: RowNeeds, command: CreateSchedule) -> None:
    schedule = command.schedule
    key = needs.agent(schedule.agent, schedule.created_at)
    needs.limited.add(key)
    needs.counts.add(key)
    needs.schedules.add(schedule.schedule_id)


@applies(CreateSchedule, needs=_need_new_schedule)
def create_schedule(store: WorkingSet, command: CreateSchedule) -> ScheduleCreated | TooManySchedules | QuotaReached:
    """Store the schedule unless its id is known, or the agent or its tenant has as many as it may."""
    schedule = command.schedule
    known = store.schedules.get(schedule.schedule_id)
    if known is not None:
        if known.agent != schedule.agent:
            raise ValueError(f"schedule id {schedule.schedule_id} belongs to another agent")
        return ScheduleCreated(known)
    if store.agents[agent_key(schedule.agent)].open_schedules >= command.limit:
        return TooManySchedules(command.limit)
    refused = no_room_for(store, agent_key(schedule.agent))
    if refused is None and schedule.kind is not ScheduleKind.HEARTBEAT:
        refused = reached(store, schedule.agent.tenant, SCHEDULES)
    if refused is not None:
        return refused
    keep(store, agent_key(schedule.agent))
    store.add_schedule(schedule)
    count_schedule(store, schedule, 1)
    _tell(store, schedule, "schedule_created", schedule.created_at, command.by)
    return ScheduleCreated(schedule)


def _need_followed_schedule(needs: RowNeeds, command: CancelSchedule) -> None:
    needs.counts.add(needs.agent(command.agent))
    needs.schedules.add(command.schedule_id)
    needs.followed.add(command.schedule_id)


@applies(CancelSchedule, needs=_need_followed_schedule)
def cancel_schedule(store: WorkingSet, command: CancelSchedule) -> ScheduleCancelled:
    """Cancel a schedule of the agent's own, and what its firings made."""
    schedule_id = command.schedule_id
    schedule = _own(store, command.agent, schedule_id)
    if schedule is None:
        return ScheduleCancelled(False, schedule_id, f"this agent has no schedule {schedule_id}")
    runs = [run for run in store.active_runs_of(schedule) if run.run_id != command.caller_run]
    ending, ended = _ask_to_end(store, runs, to_micros(command.at))
    match schedule.status:
        case ScheduleStatus.DONE:
            return ScheduleCancelled(
                False, schedule_id, "the schedule has already fired for the last time", ending, ended
            )
        case ScheduleStatus.CANCELLED:
            return ScheduleCancelled(False, schedule_id, "the schedule was cancelled before", ending, ended)
        case ScheduleStatus.ACTIVE | ScheduleStatus.PAUSED:
            _tell(store, schedule, "schedule_cancelled", command.at, command.by)
            store.change_schedule(replace(schedule, status=command.becomes, next_fire_at=None))
            count_schedule(store, schedule, -1)
            return ScheduleCancelled(True, schedule_id, "the schedule is cancelled", ending, ended)


def _need_schedule(needs: RowNeeds, command: PauseSchedule | ResumeSchedule) -> None:
    needs.agent(command.agent)
    needs.schedules.add(command.schedule_id)


@applies(PauseSchedule, needs=_need_schedule)
def pause_schedule(store: WorkingSet, command: PauseSchedule) -> ScheduleChanged | ScheduleClosed | NoSuchSchedule:
    """Pause an active schedule of the agent's own."""
    return _change(store, command, ScheduleStatus.PAUSED)


@applies(ResumeSchedule, needs=_need_schedule)
def resume_schedule(store: WorkingSet, command: ResumeSchedule) -> ScheduleChanged | ScheduleClosed | NoSuchSchedule:
    """Have a paused schedule of the agent's own go on."""
    return _change(store, command, ScheduleStatus.ACTIVE)


def _change(
    store: WorkingSet, command: PauseSchedule | ResumeSchedule, status: ScheduleStatus
) -> ScheduleChanged | ScheduleClosed | NoSuchSchedule:
    schedule = _own(store, command.agent, command.schedule_id)
    if schedule is None:
        return NoSuchSchedule()
    if schedule.status.final:
        return ScheduleClosed(schedule)
    if schedule.status is not status:
        goes_on = status is ScheduleStatus.ACTIVE
        schedule = replace(schedule, status=status, paused_until=command.at if goes_on else schedule.paused_until)
        _tell(store, schedule, "schedule_resumed" if goes_on else "schedule_paused", command.at, command.by)
        store.change_schedule(schedule)
    return ScheduleChanged(schedule)


def _tell(store: WorkingSet, schedule: Schedule, what: str, at: datetime, by: str) -> None:
    """Tell the ledger who has the schedule made or changed, if it is not the runtime itself."""
    if by:
        record_id = derived_id("rec", schedule.schedule_id, what, str(to_micros(at)))
        said: JsonObject = {"schedule_id": schedule.schedule_id, "by": by}
        agent = schedule.agent
        store.record((access_record(record_id, agent.tenant, what, at, said, agent_id=agent.agent_id),))


def _need_firing(needs: RowNeeds, command: FireSchedule) -> None:
    needs.schedules.add(command.schedule_id)
    needs.fired.add(command.schedule_id)
    if command.overlap is not OverlapPolicy.ENQUEUE:
        needs.followed.add(command.schedule_id)
    needs.firings.update(tick.firing_id for tick in command.ticks)
    needs.runs.update(tick.run_id for tick in command.ticks if tick.run_id is not None)
    if command.run is not None:
        need_submission(needs, command.run)


@applies(FireSchedule, needs=_need_firing)
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
    earlier = store.active_runs_of(schedule)
    accepted, ticks = _submit(store, command, earlier)
    ending: tuple[RunId, ...] = ()
    ended: tuple[RunId, ...] = ()
    if accepted is not None and command.overlap is OverlapPolicy.CANCEL_PREVIOUS:
        ending, ended = _ask_to_end(store, earlier, to_micros(command.ticks[-1].at))
    _account(store, ticks)
    status = ScheduleStatus.ACTIVE if command.next_fire_at is not None else ScheduleStatus.DONE
    store.change_schedule(replace(schedule, status=status, next_fire_at=command.next_fire_at))
    if status.final:
        count_schedule(store, schedule, -1)
    return ScheduleFired(accepted, ending, ended)


def _need_backfill(needs: RowNeeds, command: BackfillTick) -> None:
    needs.agent(command.agent)
    needs.schedules.add(command.tick.schedule_id)
    needs.firings.add(command.tick.firing_id)
    needs.ticked.add(command.run.run_id)
    need_submission(needs, command.run)


@applies(BackfillTick, needs=_need_backfill)
def backfill_tick(
    store: WorkingSet, command: BackfillTick
) -> ScheduleFired | AlreadyFired | QueueFull | QuotaReached | ScheduleClosed | NoSuchSchedule:
    """Queue the run of a past due time that never had one, as far back as that is known."""
    schedule = _own(store, command.agent, command.tick.schedule_id)
    if schedule is None:
        return NoSuchSchedule()
    if schedule.status is ScheduleStatus.CANCELLED:
        return ScheduleClosed(schedule)
    if schedule.forgotten_until is not None and command.tick.due_at <= schedule.forgotten_until:
        return AlreadyFired()
    run_id = command.run.run_id
    if run_id in store.runs or run_id in store.run_ticks or command.tick.firing_id in store.firings:
        return AlreadyFired()
    match _submitted(store, command.run):
        case RunAccepted() as accepted:
            _account(store, (command.tick,))
            return ScheduleFired(accepted)
        case QueueFull() | QuotaReached() as full:
            return full
        case AgentBusy():
            raise ValueError(
                f"the run {command.run.run_id} of a backfill does not wait (busy: {command.run.busy.value})"
            )


def _own(store: WorkingSet, agent: AgentRef, schedule_id: str) -> Schedule | None:
    schedule = store.schedules.get(schedule_id)
    return schedule if schedule is not None and schedule.agent == agent else None


def _account(store: WorkingSet, ticks: tuple[Tick, ...]) -> None:
    store.add_ticks(ticks)
    for tick in ticks:
        if tick.run_id is not None and tick.run_id in store.runs:
            store.fired_runs.setdefault(tick.schedule_id, []).append(tick.run_id)


def _submit(
    store: WorkingSet, command: FireSchedule, earlier: list[RunRow]
) -> tuple[RunAccepted | None, tuple[Tick, ...]]:
    """Queue the run, if there is one and it is not refused; return the ticks, that of a refused run as skipped."""
    run = command.run
    if run is None:
        return None, command.ticks
    reason = _overlap(command.overlap, earlier)
    if not reason:
        match _submitted(store, run):
            case RunAccepted() as accepted:
                return accepted, command.ticks
            case QueueFull(limit):
                reason = f"queue full: the agent had {counted(limit, 'queued run')} (limits.queued_runs)"
            case QuotaReached() as reached:
                reason = str(reached.error(run.at))
            case AgentBusy(busy_with):
                reason = f"the agent was busy with {busy_with}"
    skipped = {"outcome": TickOutcome.SKIPPED, "run_id": None, "reason": reason}
    return None, tuple(replace(tick, **skipped) if tick.run_id == run.run_id else tick for tick in command.ticks)


def _overlap(policy: OverlapPolicy, earlier: list[RunRow]) -> str:
    """Return why the policy refuses another run beside these, or nothing."""
    match policy:
        case OverlapPolicy.SKIP if earlier:
            return f"{earlier[0].run_id} of an earlier time was not over (overlap: skip)"
        case OverlapPolicy.BUFFER_ONE:
            queued = next((each for each in earlier if each.status is RunStatus.QUEUED), None)
            return (
                "" if queued is None else f"{queued.run_id} of an earlier time was still queued (overlap: buffer_one)"
            )
        case _:
            return ""


def _submitted(store: WorkingSet, run: SubmitRun) -> RunAccepted | QueueFull | QuotaReached | AgentBusy:
    match submit_run(store, run):
        case RunAccepted() | QueueFull() | QuotaReached() | AgentBusy() as outcome:
            return outcome
        case refused:
            raise ValueError(f"the run {run.run_id} of a schedule is refused: {refused}")


def _ask_to_end(store: WorkingSet, runs: list[RunRow], at: int) -> tuple[tuple[RunId, ...], tuple[RunId, ...]]:
    """Return those that have not ended by that, and those that have."""
    for run in runs:
        ask_to_end(store, run, at)
    ended = tuple(RunId(run.run_id) for run in runs if run.status.final)
    return tuple(RunId(run.run_id) for run in runs if not run.status.final), ended
