"""What the engine knows: workflows, scheduled runs, workers and tasks. One lock, no time of its own."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import uuid4

from hatchet_sdk.contracts import dispatcher_pb2 as wire
from hatchet_sdk.contracts.v1 import workflows_pb2 as workflow_wire

WAIT_SECONDS = 30.0


class UnknownError(Exception):
    """The engine has no such thing."""


class RunState(Enum):
    """Where a scheduled run stands, as the REST API names it."""

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
    metadata: dict[str, str]
    created_at: datetime
    state: RunState = RunState.SCHEDULED


@dataclass
class Task:
    """One delivery of a run to a worker."""

    run: ScheduledRun
    action: str
    run_id: str = field(default_factory=lambda: str(uuid4()))
    retry: int = 0


@dataclass
class Worker:
    """A registered worker, and what it has been given and has not finished."""

    id: str
    name: str
    actions: frozenset[str]
    listening: bool = False
    paused: bool = False
    heartbeats: int = 0
    given: dict[str, Task] = field(default_factory=dict)


class Records:
    """The engine's data base."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.changed = threading.Condition(threading.RLock())
        self.workflows: dict[str, workflow_wire.CreateWorkflowVersionRequest] = {}
        self.scheduled: dict[str, ScheduledRun] = {}
        self.workers: dict[str, Worker] = {}
        self.queue: deque[Task] = deque()
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
        self, workflow: str, trigger_at: datetime, given: dict[str, Any], metadata: dict[str, str]
    ) -> ScheduledRun:
        """Add a one-time schedule; the engine keeps milliseconds."""
        with self.changed:
            if workflow not in self.workflows:
                raise UnknownError(f"workflow {workflow} not found")
            at = trigger_at.replace(microsecond=trigger_at.microsecond // 1_000 * 1_000)
            run = ScheduledRun(str(uuid4()), workflow, at, given, metadata, self.now())
            self.scheduled[run.id] = run
            self.changed.notify_all()
            return run

    def listed(self, metadata: Mapping[str, str], states: frozenset[str]) -> list[ScheduledRun]:
        """Return those that carry the metadata, the earliest first."""
        with self.changed:
            found = [
                each
                for each in self.scheduled.values()
                if metadata.items() <= each.metadata.items() and (not states or each.state.value in states)
            ]
        return sorted(found, key=lambda each: (each.trigger_at, each.id))

    def delete(self, run_id: str) -> None:
        """Forget a schedule; what it has become goes on."""
        with self.changed:
            if self.scheduled.pop(run_id, None) is None:
                raise UnknownError("scheduled workflow not found")
            self.changed.notify_all()

    def ring(self) -> int:
        """Turn the schedules whose time has come into tasks; return how many."""
        with self.changed:
            due = [each for each in self.listed({}, frozenset({"SCHEDULED"})) if each.trigger_at <= self.now()]
            for run in due:
                self.start(run)
            return len(due)

    def start(self, run: ScheduledRun) -> None:
        """Queue a task for the run, whether or not there was one before."""
        with self.changed:
            run.state = RunState.QUEUED
            self.queue.extend(Task(run, task.action) for task in self.workflows[run.workflow].tasks)
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
                raise UnknownError(f"worker {worker_id} not found")
            return self.workers[worker_id]

    def tasks_for(self, worker_id: str, over: threading.Event) -> Iterator[Task]:
        """Yield tasks as they come; what was not finished when it ends goes back to the queue."""
        worker = self.worker(worker_id)
        try:
            with self.changed:
                worker.listening = True
                self.changed.notify_all()
            while (task := self._next(worker, over)) is not None:
                yield task
        finally:
            with self.changed:
                worker.listening = False
                self.queue.extendleft(worker.given.values())
                worker.given.clear()
                self.changed.notify_all()

    def _next(self, worker: Worker, over: threading.Event) -> Task | None:
        def ready() -> Task | None:
            return next((each for each in self.queue if each.action in worker.actions and not worker.paused), None)

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
            self.worker(worker_id).heartbeats += 1
            self.changed.notify_all()

    def event(self, event: wire.StepActionEvent) -> None:
        """Note what a worker says of a task; a failed one is given out again while it has retries."""
        with self.changed:
            worker = self.workers.get(event.worker_id)
            task = worker.given.get(event.task_run_external_id) if worker else None
            if worker is None or task is None or event.event_type == wire.STEP_EVENT_TYPE_STARTED:
                return
            if event.event_type == wire.STEP_EVENT_TYPE_COMPLETED:
                self._finish(worker, task, RunState.SUCCEEDED, event.event_payload)
            elif event.event_type == wire.STEP_EVENT_TYPE_FAILED:
                (declared,) = [each for each in self.workflows[task.run.workflow].tasks if each.action == task.action]
                if event.should_not_retry or task.retry >= declared.retries:
                    self._finish(worker, task, RunState.FAILED, event.event_payload)
                else:
                    del worker.given[task.run_id]
                    task.retry += 1
                    self.queue.append(task)
            self.changed.notify_all()

    def _finish(self, worker: Worker, task: Task, state: RunState, output: str) -> None:
        del worker.given[task.run_id]
        task.run.state = state
        self.finished.append(task)
        self.outputs.append(output)

    def payload(self, task: Task) -> str:
        """Return what a worker is given for the task."""
        return json.dumps({"input": task.run.input, "triggered_by": "schedule"})
