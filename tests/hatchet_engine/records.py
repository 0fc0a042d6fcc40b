"""What the engine knows: workflows, scheduled runs, workers and tasks. One lock, no time of its own."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

from hatchet_sdk.contracts import dispatcher_pb2 as wire
from hatchet_sdk.contracts.v1 import workflows_pb2 as workflow_wire

WAIT_SECONDS = 30.0
_GONE = timedelta(seconds=30)
"""So long after a stream ended the tasks that it took with it are given out again; that is one of their retries."""


class UnknownError(Exception):
    """The engine has no such thing."""


class RunState(Enum):
    """Where a scheduled run stands."""

    SCHEDULED = "SCHEDULED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass
class ScheduledRun:
    """A one-time schedule, and the run that it became."""

    id: str
    workflow: str
    trigger_at: datetime
    input: dict[str, Any]
    metadata: dict[str, str] | None
    created_at: datetime
    state: RunState = RunState.SCHEDULED


@dataclass
class Task:
    """One delivery of a run to a worker."""

    run: ScheduledRun
    action: str
    name: str
    run_id: str = field(default_factory=lambda: str(uuid4()))
    retry: int = 0
    not_before: datetime | None = None
    lost_at: datetime | None = None
    """When the stream ended in which it was given out."""


@dataclass
class Worker:
    """A registered worker, and what it has been given and has not finished."""

    id: str
    name: str
    actions: frozenset[str]
    alive: bool = False
    """Whether it ever gave a sign of life; before that it is given nothing."""
    streams: int = 0
    """In how many it listens: a new one may be there before it is known that the old one is gone."""
    paused: bool = False
    given: dict[str, Task] = field(default_factory=dict)

    @property
    def listening(self) -> bool:
        """Whether it is there."""
        return self.streams > 0


class Records:
    """The engine's data base."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.changed = threading.Condition(threading.RLock())
        self.workflows: dict[str, workflow_wire.CreateWorkflowVersionRequest] = {}
        self.scheduled: dict[str, ScheduledRun] = {}
        self.workers: dict[str, Worker] = {}
        self.queue: deque[Task] = deque()
        self.tasks: dict[str, Task] = {}
        self.finished: list[Task] = []
        self.outputs: list[str] = []

    def wait_until(self, happened: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
        """Block until it is so; TimeoutError if it takes longer."""
        with self.changed:
            if not self.changed.wait_for(happened, seconds):
                raise TimeoutError(f"it did not happen within {seconds:g} s")

    def put_workflow(self, request: workflow_wire.CreateWorkflowVersionRequest) -> None:
        """Know the workflow."""
        with self.changed:
            self.workflows[request.name] = request
            self.changed.notify_all()

    def schedule(
        self, workflow: str, trigger_at: datetime, given: dict[str, Any], metadata: dict[str, str] | None
    ) -> ScheduledRun:
        """Add a one-time schedule; the engine keeps milliseconds, and rounds."""
        with self.changed:
            if workflow not in self.workflows:
                raise UnknownError("workflow not found")
            milliseconds = round(trigger_at.microsecond / 1_000)
            at = trigger_at.replace(microsecond=0) + timedelta(milliseconds=milliseconds)
            run = ScheduledRun(str(uuid4()), workflow, at, given, metadata, self.now())
            self.scheduled[run.id] = run
            self.changed.notify_all()
            return run

    def listed(self, metadata: Mapping[str, str]) -> list[ScheduledRun]:
        """Return those that carry the metadata, the earliest first."""
        with self.changed:
            found = [each for each in self.scheduled.values() if metadata.items() <= (each.metadata or {}).items()]
        return sorted(found, key=lambda each: (each.trigger_at, each.id))

    def delete(self, run_id: str) -> None:
        """Forget a schedule; what it has become goes on."""
        with self.changed:
            if self.scheduled.pop(run_id, None) is None:
                raise UnknownError("scheduled workflow run not found")
            self.changed.notify_all()

    def ring(self) -> int:
        """Do what the time has come for: turn schedules into tasks, which is the end of them; return how many. Give out the tasks of
        streams that are gone, and those that wait to be tried again.
        """
        with self.changed:
            due = [each for each in self.listed({}) if each.trigger_at <= self.now()]
            for run in due:
                del self.scheduled[run.id]
                self.start(run)
            for worker in self.workers.values():
                for task in list(worker.given.values()):
                    if task.lost_at is not None and task.lost_at < self.now() - _GONE:
                        self._fail(worker, task, "")
            self.changed.notify_all()
            return len(due)

    def start(self, run: ScheduledRun) -> None:
        """Queue a task for the run, whether or not there was one before."""
        with self.changed:
            run.state = RunState.QUEUED
            made = [Task(run, each.action, each.readable_id) for each in self.workflows[run.workflow].tasks]
            self.tasks |= {each.run_id: each for each in made}
            self.queue.extend(made)
            self.changed.notify_all()

    def register(self, name: str, actions: frozenset[str]) -> Worker:
        """Add a worker."""
        with self.changed:
            worker = Worker(str(uuid4()), name, actions)
            self.workers[worker.id] = worker
            self.changed.notify_all()
            return worker

    def worker(self, worker_id: str) -> Worker:
        """Return the worker; raises UnknownError."""
        with self.changed:
            if worker_id not in self.workers:
                raise UnknownError(f"worker not found: {worker_id}")
            return self.workers[worker_id]

    def tasks_for(self, worker_id: str, over: threading.Event) -> Iterator[Task]:
        """Yield tasks as they come, until it is over."""
        worker, mine = self.worker(worker_id), list[Task]()
        with self.changed:
            worker.streams += 1
            self.changed.notify_all()
        try:
            while (task := self._next(worker, over)) is not None:
                mine.append(task)
                yield task
        finally:
            with self.changed:
                worker.streams -= 1
                for task in mine:
                    task.lost_at = self.now()
                self.changed.notify_all()

    def _next(self, worker: Worker, over: threading.Event) -> Task | None:
        def ready() -> Task | None:
            now = self.now()
            if worker.paused or not worker.alive:
                return None
            waiting = (each for each in self.queue if each.not_before is None or each.not_before <= now)
            return next((each for each in waiting if each.action in worker.actions), None)

        with self.changed:
            self.changed.wait_for(lambda: over.is_set() or ready())
            task = ready()
            if over.is_set() or task is None:
                return None
            self.queue.remove(task)
            worker.given[task.run_id] = task
            task.run.state = RunState.RUNNING
            return task

    def heartbeat(self, worker_id: str) -> None:
        """Note a sign of life; raises UnknownError."""
        with self.changed:
            self.worker(worker_id).alive = True
            self.changed.notify_all()

    def event(self, event: wire.StepActionEvent) -> None:
        """Note what a worker says of a task; a failed one is given out again, after a pause, while it has retries.

        Raises UnknownError for a task that never was.
        """
        with self.changed:
            if event.task_run_external_id not in self.tasks:
                raise UnknownError(f"invalid task external run id {event.task_run_external_id}: no rows in result set")
            worker = self.workers.get(event.worker_id)
            task = worker.given.get(event.task_run_external_id) if worker else None
            if worker is None or task is None or event.event_type == wire.STEP_EVENT_TYPE_STARTED:
                return
            if event.event_type == wire.STEP_EVENT_TYPE_COMPLETED:
                self._finish(worker, task, RunState.SUCCEEDED, event.event_payload)
            elif event.event_type == wire.STEP_EVENT_TYPE_FAILED:
                self._fail(worker, task, event.event_payload, retried=not event.should_not_retry)
            self.changed.notify_all()

    def _fail(self, worker: Worker, task: Task, output: str, *, retried: bool = True) -> None:
        """Give the task out again, after a pause that grows, unless it had its retries."""
        (declared,) = [each for each in self.workflows[task.run.workflow].tasks if each.action == task.action]
        if not retried or task.retry >= declared.retries:
            self._finish(worker, task, RunState.FAILED, output)
            return
        del worker.given[task.run_id]
        task.retry, task.lost_at = task.retry + 1, None
        pause = min(declared.backoff_factor**task.retry, declared.backoff_max_seconds)
        task.not_before = self.now() + timedelta(seconds=pause)
        self.queue.append(task)

    def _finish(self, worker: Worker, task: Task, state: RunState, output: str) -> None:
        del worker.given[task.run_id]
        task.run.state = state
        self.finished.append(task)
        self.outputs.append(output)

    def payload(self, task: Task) -> str:
        """Return what a worker is given for the task."""
        return json.dumps(
            {
                "input": task.run.input or None,
                "parents": {},
                "triggers": {"filter_payload": None},
                "overrides": None,
                "user_data": None,
                "triggered_by": "manual",
            }
        )


def id_of(*what: str) -> str:
    """Return the id that something of this name has."""
    return str(uuid5(NAMESPACE_OID, ":".join(what)))
