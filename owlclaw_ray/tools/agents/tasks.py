"""agent.plan_template and the tools of tasks: work that agents share (T22).

A task belongs to the agent that made it; the agents that this one started work on it. Every change is stored only if nobody
changed the task meanwhile, else it is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.task import Claim, Step, StepStatus, Task, TaskRefusedError, TaskStatus, checked_steps
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import RunId, TaskId, derived_id
from owlclaw_ray.store.commands import TaskChanged
from owlclaw_ray.store.queries import TaskById, TasksOfAgent
from owlclaw_ray.tools.agents import arguments as models
from owlclaw_ray.tools.agents.runtime_agents import RuntimeAgents
from owlclaw_ray.tools.failure import ToolFailureError

_TRIES = 50
"""Of changing a task that others change at the same time; each time it fails, somebody else's change was stored."""

PLAN_TEMPLATE = """\
# Goal
What is true when this is done, and how one sees it.
# What is known
Facts, and where they are from. What is not known, and how it can be found out.
# Steps
1. <step>: what is done, what comes out, how one sees that it is right. Depends on: <steps>.
# Who
Which steps can be done beside each other by other agents (agent.dispatch_worker), and which you do yourself.
# Risks
What may go wrong, how one notices, and what is done then.
"""
TASK_TEMPLATE: JsonObject = {
    "title": "Compare three suppliers",
    "goal": "A recommendation with prices and delivery times of all three.",
    "steps": [
        {"step_id": "prices", "title": "Collect prices", "description": "Of all three, per piece.", "depends_on": []},
        {"step_id": "times", "title": "Collect delivery times", "description": "In workdays.", "depends_on": []},
        {
            "step_id": "recommend",
            "title": "Recommend one",
            "description": "With the reason.",
            "depends_on": ["prices", "times"],
        },
    ],
}


class TaskTools:
    """Makes, reads and changes tasks."""

    def __init__(self, tasks: RuntimeAgents) -> None:
        self._tasks = tasks

    def create(self, arguments: models.CreateTask, caller: ToolInvocation) -> JsonObject:
        """Make a task; made again by the same call it is the same one."""
        task_id = TaskId(derived_id("task", caller.idempotency_key))
        known = self._tasks.read(TaskById(caller.agent.tenant, task_id))
        if known is not None:
            return _task(known)
        try:
            steps = checked_steps(_steps(arguments.steps))
        except TaskRefusedError as error:
            raise ToolFailureError(error.type, str(error)) from None
        task = Task(task_id, caller.agent, arguments.title, arguments.goal, steps)
        changed = self._tasks.put(task, 0)
        return _task(changed.task if isinstance(changed, TaskChanged) and changed.task is not None else task)

    def get(self, arguments: models.TaskArgument, caller: ToolInvocation) -> JsonObject:
        """Return the whole task."""
        return _task(self._task(arguments.task_id, caller))

    def list(self, arguments: models.ListTasks, caller: ToolInvocation) -> JsonObject:
        """Return the caller's tasks in short, newest first."""
        tasks = self._tasks.read(TasksOfAgent(_owner(caller)))
        return {"tasks": [_brief(each) for each in tasks if arguments.status in {"any", each.status.value}]}

    def update(self, arguments: models.UpdateTask, caller: ToolInvocation) -> JsonObject:
        """Change a task's words and pending steps."""
        put = _steps(arguments.put_steps)
        title, goal, remove = arguments.title, arguments.goal, arguments.remove_steps
        return _task(self._change(arguments.task_id, caller, lambda task: task.revised(title, goal, put, remove)))

    def query_steps(self, arguments: models.QuerySteps, caller: ToolInvocation) -> JsonObject:
        """Return the steps of a task that stand so."""
        task = self._task(arguments.task_id, caller)
        return {
            "task_id": task.task_id,
            "status": task.status.value,
            "steps": [
                _step(task, step) for step in task.steps if _matches_status(task, step, arguments.status, caller.run_id)
            ],
        }

    def claim_step(self, arguments: models.ClaimStep, caller: ToolInvocation) -> JsonObject:
        """Claim a step for the caller's run: nobody else can."""
        claim = Claim(caller.agent.agent_id, caller.run_id, caller.idempotency_key)
        task = self._change(arguments.task_id, caller, lambda task: task.claimed(arguments.step_id, claim)[0])
        step = next((step for step in task.steps if step.claim == claim), None)
        if step is None:
            message = "the step that this call claimed was taken back since; claim one again"
            raise ToolFailureError("not_your_step", message, details={"task": _brief(task)})
        before = {each.step_id: each.result for each in task.steps if each.step_id in step.depends_on}
        return {"task_id": task.task_id, "goal": task.goal, "step": _step(task, step), "results_before": before}

    def update_step(self, arguments: models.UpdateStep, caller: ToolInvocation) -> JsonObject:
        """Say how the work on a step ended. A started agent says so only of a step that its own run claimed."""
        status = StepStatus(arguments.status)
        by = None if caller.lineage is None else caller.run_id
        step_id, result = arguments.step_id, arguments.result
        task = self._change(arguments.task_id, caller, lambda task: task.moved(step_id, status, result, by))
        return {
            "task_id": task.task_id,
            "step": _step(task, task.step(step_id)),
            "ready": [each.step_id for each in task.ready()],
        }

    def end(self, status: TaskStatus, arguments: models.EndTask, caller: ToolInvocation) -> JsonObject:
        """End a task: completed, once all its steps are; failed; or cancelled."""
        return _task(self._change(arguments.task_id, caller, lambda task: task.ended(status, arguments.result)))

    def _task(self, task_id: str, caller: ToolInvocation) -> Task:
        task = self._tasks.read(TaskById(caller.agent.tenant, TaskId(task_id)))
        if task is None or task.owner != _owner(caller):
            whose = "you have" if caller.lineage is None else f"{caller.lineage.parent} has"
            raise ToolFailureError("unknown_task", f"{whose} no task {task_id!r}")
        return task

    def _change(self, task_id: str, caller: ToolInvocation, change: Callable[[Task], Task]) -> Task:
        for _ in range(_TRIES):
            task = self._task(task_id, caller)
            if caller.idempotency_key in task.applied:
                return task
            try:
                changed = change(task)
            except TaskRefusedError as error:
                raise ToolFailureError(error.type, str(error), details={"task": _brief(task)}) from None
            if changed == task:
                return task
            changed = changed.noting(caller.idempotency_key)
            if not isinstance(self._tasks.put(changed, task.version), TaskChanged):
                return changed
        raise StoreUnavailableError(f"task {task_id} changes too fast; try again")


def _owner(caller: ToolInvocation) -> AgentRef:
    """Return whose tasks the caller sees: its own, or those of the agent that started it."""
    lineage = caller.lineage
    return caller.agent if lineage is None else AgentRef(caller.agent.tenant, lineage.parent)


def _steps(given: Sequence[models.StepArguments]) -> tuple[Step, ...]:
    return tuple(
        Step(each.step_id, each.title, each.description, tuple(dict.fromkeys(each.depends_on))) for each in given
    )


def _matches_status(task: Task, step: Step, status: str, run_id: RunId) -> bool:
    match status:
        case "any":
            return True
        case "ready":
            return task.is_ready(step)
        case "mine":
            return step.status is StepStatus.CLAIMED and step.claim is not None and step.claim.run_id == run_id
        case _:
            return step.status.value == status


def _brief(task: Task) -> JsonObject:
    return {
        "task_id": task.task_id,
        "title": task.title,
        "status": task.status.value,
        "steps": {
            status.value: number
            for status in StepStatus
            if (number := sum(step.status is status for step in task.steps))
        },
        "ready": [step.step_id for step in task.ready()],
    }


def _task(task: Task) -> JsonObject:
    return {
        **_brief(task),
        "goal": task.goal,
        "result": task.result,
        "steps": [_step(task, step) for step in task.steps],
    }


def _step(task: Task, step: Step) -> JsonObject:
    claim = step.claim
    return {
        "step_id": step.step_id,
        "title": step.title,
        "description": step.description,
        "depends_on": list(step.depends_on),
        "status": step.status.value,
        "ready": task.is_ready(step),
        "owner": None if claim is None else {"agent_id": claim.agent, "run_id": claim.run_id},
        "result": step.result,
    }
