"""Runs that wait for others, and shared tasks, on the working set."""

from __future__ import annotations

from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.store.commands import (
    Appended,
    AwaitRuns,
    PutTask,
    RunEnded,
    RunReleased,
    RunWaiting,
    StaleEpoch,
    TaskChanged,
    TaskStored,
)
from owlclaw_ray.store.sql.approvals import go_on
from owlclaw_ray.store.sql.codec import agent_key, dump, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.quotas import keep, no_room_for, stop
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.run_lifecycle import appended, check_claimed, need_wait, owned, run_of, store_facts
from owlclaw_ray.store.sql.working_set import PutRow, WorkingSet, awaited_by


@applies(AwaitRuns, needs=need_wait)
def await_runs(store: WorkingSet, command: AwaitRuns) -> RunWaiting | Appended | StaleEpoch:
    """Have the run wait, unless it does or did, or is to end."""
    agent = owned(store, command.agent, command.epoch)
    if isinstance(agent, StaleEpoch):
        return agent
    run = run_of(store, command)
    if all(entry.seq <= run.last_entry for entry in command.entries):
        return appended(run) if run.ends else RunWaiting()
    check_claimed(run, command.epoch)
    store_facts(store, run, command)
    if run.cancel_requested:
        return appended(run)
    stop(store, run)
    run.status, run.awaits = RunStatus.WAITING, dump(command.runs)
    store.changed_run(run)
    return RunWaiting()


def _need_waiting(needs: RowNeeds, command: RunEnded) -> None:
    needs.agent(command.agent)
    needs.runs.add(command.run_id)


@applies(RunEnded, needs=_need_waiting)
def run_ended(store: WorkingSet, command: RunEnded) -> RunReleased:
    """Take these runs from what the run waits for; set it going if nothing is left."""
    run = store.runs.get(command.run_id)
    if run is None or run.agent != agent_key(command.agent) or run.awaits is None:
        resumed = run is not None and run.waited
        return RunReleased(resumes=resumed)
    left = [run_id for run_id in awaited_by(run.awaits) if run_id not in command.ended]
    if left:
        run.awaits = dump(left)
        store.changed_run(run)
        return RunReleased(resumes=False)
    go_on(store, run)
    return RunReleased(resumes=True)


def _need_task(needs: RowNeeds, command: PutTask) -> None:
    needs.counts.add(needs.agent(command.task.owner, command.at))
    needs.tasks.add(command.task.task_id)


@applies(PutTask, needs=_need_task)
def put_task(store: WorkingSet, command: PutTask) -> TaskStored | TaskChanged:
    """Store the task if nobody changed it."""
    task, stored = command.task, store.tasks.get(command.task.task_id)
    if stored is not None and stored.task == task:
        return TaskStored()
    if (0 if stored is None else stored.task.version) != command.expected:
        return TaskChanged(None if stored is None else stored.task)
    if stored is not None and stored.task.owner != task.owner:
        raise ValueError(f"task {task.task_id} belongs to another agent")
    refused = no_room_for(store, agent_key(task.owner))
    if refused is not None:
        raise ValueError(f"{task.owner} is new: {refused.error(command.at)}")
    keep(store, agent_key(task.owner))
    created_at = to_micros(command.at) if stored is None else stored.created_at
    store.put_task(PutRow(task, created_at, command.at))
    return TaskStored()
