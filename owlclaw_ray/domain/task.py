"""Tasks: work split into steps that depend on each other, which agents share among them.

A task is a value. Every change returns another one, or raises TaskRefusedError and changes nothing. Steps go

    pending ─claim→ claimed ─→ completed
       ↑               ├─────→ failed ──→ pending (its owner tries again)
       └──── release ──┘
    and every step that is not over is cancelled when its task fails or is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import UserError
from owlclaw_ray.ids import AgentId, RunId, TaskId

MAX_STEPS = 100
REMEMBERED = 100


class TaskRefusedError(UserError):
    """A task cannot be changed like this. `type` is the error's type as models see it."""

    def __init__(self, type_: str, message: str) -> None:
        self.type = type_
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.type, str(self)))


class TaskStatus(Enum):
    """Where a task stands."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepStatus(Enum):
    """Where a step stands. A pending step is ready when all steps that it depends on are completed."""

    PENDING = "pending"
    CLAIMED = "claimed"
    """A run works on it, and nobody else may."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nobody will work on it as things stand."""
        return self not in {StepStatus.PENDING, StepStatus.CLAIMED}


class Claim(Struct, frozen=True):
    """Who works, or worked, on a step."""

    agent: AgentId
    run_id: RunId
    key: str
    """The idempotency key of the call that claimed it."""


class Step(Struct, frozen=True):
    """One part of a task."""

    step_id: str
    title: str
    description: str = ""
    depends_on: tuple[str, ...] = ()
    status: StepStatus = StepStatus.PENDING
    claim: Claim | None = None
    result: str = ""
    """What came of it, or why it failed."""


class Task(Struct, frozen=True):
    """Steps without cycles: every dependency is a step of the same task."""

    task_id: TaskId
    owner: AgentRef
    """The agent that made it. Its children work on it."""
    title: str
    goal: str
    steps: tuple[Step, ...]
    status: TaskStatus = TaskStatus.OPEN
    result: str = ""
    version: int = 1
    """Counts its changes."""
    applied: tuple[str, ...] = ()
    """The idempotency keys of the calls that changed it last, at most REMEMBERED."""

    def noting(self, key: str) -> Task:
        """Return the task as changed by the call of that key."""
        return replace(self, applied=(*self.applied, key)[-REMEMBERED:])

    def step(self, step_id: str) -> Step:
        """Return the step; raises TaskRefusedError."""
        found = next((step for step in self.steps if step.step_id == step_id), None)
        if found is None:
            known = ", ".join(step.step_id for step in self.steps)
            raise TaskRefusedError("unknown_step", f"task {self.task_id} has no step {step_id!r}; it has {known}")
        return found

    def is_ready(self, step: Step) -> bool:
        """Return whether the step can be claimed now."""
        if self.status is not TaskStatus.OPEN or step.status is not StepStatus.PENDING:
            return False
        return not self.missing(step)

    def missing(self, step: Step) -> tuple[str, ...]:
        """Return the dependencies of the step that are not completed."""
        completed = {each.step_id for each in self.steps if each.status is StepStatus.COMPLETED}
        return tuple(each for each in step.depends_on if each not in completed)

    def ready(self) -> tuple[Step, ...]:
        """Return the steps that can be claimed now, in their order."""
        return tuple(step for step in self.steps if self.is_ready(step))

    def revised(self, title: str | None, goal: str | None, put: Sequence[Step], remove: Sequence[str]) -> Task:
        """Return the task with other words, with these pending steps put in (in the place of those of the same id, or at the
        end), and without some others. Only steps that are pending and were never begun can be replaced or removed.
        """
        self._require_open("updated")
        new = {step.step_id: step for step in _checked_ids(put)}
        for step_id in (*remove, *(step.step_id for step in self.steps if step.step_id in new)):
            step = self.step(step_id)
            if step.status is not StepStatus.PENDING:
                message = f"step {step_id!r} is {step.status.value}; only pending steps can be replaced or removed"
                raise TaskRefusedError("step_not_pending", message)
        kept = [new.pop(step.step_id, step) for step in self.steps if step.step_id not in remove]
        steps = checked_steps((*kept, *(step for step in new.values() if step.step_id not in remove)))
        return self._changed(
            title=self.title if title is None else title, goal=self.goal if goal is None else goal, steps=steps
        )

    def claimed(self, step_id: str | None, claim: Claim) -> tuple[Task, Step]:
        """Return the task with a step claimed, and that step: the named one, or the first that is ready.

        The same claim again changes nothing.
        """
        made = next((step for step in self.steps if step.claim == claim), None)
        if made is not None:
            return self, made
        self._require_open("worked on")
        step = self.step(step_id) if step_id is not None else next(iter(self.ready()), None)
        if step is None:
            raise TaskRefusedError("no_ready_step", f"no step of task {self.task_id} is ready: {self._standing()}")
        if step.status is not StepStatus.PENDING:
            by = f" by {step.claim.agent}" if step.claim is not None else ""
            raise TaskRefusedError("step_not_ready", f"step {step.step_id!r} is {step.status.value}{by}")
        missing = self.missing(step)
        if missing:
            waits = f"step {step.step_id!r} depends on {', '.join(missing)}, not completed yet"
            raise TaskRefusedError("step_not_ready", waits)
        taken = replace(step, status=StepStatus.CLAIMED, claim=claim, result="")
        return self._with(taken), taken

    def moved(self, step_id: str, status: StepStatus, result: str, by: RunId | None) -> Task:
        """Return the task with a step's status changed. `by`: the run that must have claimed it; None for the task's owner.

        The same again changes nothing.
        """
        step = self.step(step_id)
        if by is not None and (step.claim is None or step.claim.run_id != by):
            whose = f"claimed by {step.claim.agent}" if step.claim is not None else "claimed by nobody"
            raise TaskRefusedError("not_your_step", f"step {step_id!r} is {whose}; claim a step before you update it")
        if step.status is status and (step.result == result or not result):
            return self
        self._require_open("worked on")
        if status not in _NEXT[step.status]:
            allowed = ", ".join(each.value for each in StepStatus if each in _NEXT[step.status]) or "nothing"
            message = f"step {step_id!r} is {step.status.value}; it can become {allowed}, not {status.value}"
            raise TaskRefusedError("wrong_transition", message)
        if by is not None and step.status is StepStatus.FAILED:
            message = f"step {step_id!r} is failed; only the owner of the task can have it tried again"
            raise TaskRefusedError("wrong_transition", message)
        claim = None if status is StepStatus.PENDING else step.claim
        return self._with(replace(step, status=status, claim=claim, result=result))

    def ended(self, status: TaskStatus, result: str) -> Task:
        """Return the task as it ends. It completes only with every step completed; otherwise open steps are cancelled.

        The same end again changes nothing.
        """
        if self.status is status and (self.result == result or not result):
            return self
        self._require_open(status.value)
        left = [step.step_id for step in self.steps if step.status is not StepStatus.COMPLETED]
        if status is TaskStatus.COMPLETED and left:
            message = f"task {self.task_id} cannot be completed: {', '.join(left)} not completed ({self._standing()})"
            raise TaskRefusedError("steps_left", message)
        steps = tuple(step if step.status.over else replace(step, status=StepStatus.CANCELLED) for step in self.steps)
        return self._changed(status=status, result=result, steps=steps)

    def _require_open(self, what: str) -> None:
        if self.status is not TaskStatus.OPEN:
            message = f"task {self.task_id} is {self.status.value}; it cannot be {what} any more"
            raise TaskRefusedError("task_over", message)

    def _standing(self) -> str:
        counts = {status: sum(step.status is status for step in self.steps) for status in StepStatus}
        return ", ".join(f"{number} {status.value}" for status, number in counts.items() if number)

    def _with(self, changed: Step) -> Task:
        return self._changed(steps=tuple(changed if step.step_id == changed.step_id else step for step in self.steps))

    def _changed(self, **changes: Any) -> Task:
        return replace(self, version=self.version + 1, **changes)


_NEXT: Mapping[StepStatus, frozenset[StepStatus]] = {
    StepStatus.PENDING: frozenset(),
    StepStatus.CLAIMED: frozenset({StepStatus.PENDING, StepStatus.COMPLETED, StepStatus.FAILED}),
    StepStatus.COMPLETED: frozenset(),
    StepStatus.FAILED: frozenset({StepStatus.PENDING}),
    StepStatus.CANCELLED: frozenset(),
}


def checked_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps of a task; raises TaskRefusedError for none, too many, a duplicate id, an unknown dependency, a cycle."""
    if not 1 <= len(steps) <= MAX_STEPS:
        raise TaskRefusedError("wrong_steps", f"a task has 1 to {MAX_STEPS} steps, not {len(steps)}")
    known = {step.step_id: step for step in _checked_ids(steps)}
    for step in steps:
        for dependency in step.depends_on:
            if dependency not in known:
                message = f"step {step.step_id!r} depends on {dependency!r}, which is no step of the task"
                raise TaskRefusedError("unknown_dependency", message)
    cycle = _cycle(known)
    if cycle:
        raise TaskRefusedError("cycle", f"these steps wait for each other: {' → '.join((*cycle, cycle[0]))}")
    return tuple(steps)


def _checked_ids(steps: Iterable[Step]) -> tuple[Step, ...]:
    steps, seen = tuple(steps), set[str]()
    for step in steps:
        if step.step_id in seen:
            raise TaskRefusedError("duplicate_step", f"there are two steps {step.step_id!r}")
        seen.add(step.step_id)
    return steps


def _cycle(steps: Mapping[str, Step]) -> tuple[str, ...]:
    """Return steps that depend on each other in a ring, each on the next; none if there is no ring."""
    left = {step_id: set(step.depends_on) for step_id, step in steps.items()}
    while free := [step_id for step_id, needs in left.items() if not needs & left.keys()]:
        for step_id in free:
            del left[step_id]
    if not left:
        return ()
    path = [next(iter(left))]
    while (following := next(each for each in steps[path[-1]].depends_on if each in left)) not in path:
        path.append(following)
    return tuple(path[path.index(following) :])
