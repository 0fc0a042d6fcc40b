"""Tasks, to rows and from them."""

from __future__ import annotations

from typing import Any

from owlclaw_ray.domain.task import Claim, Step, StepStatus, Task, TaskStatus
from owlclaw_ray.ids import TaskId
from owlclaw_ray.store.sql.codec import agent_key, agent_of, dump, load, to_micros
from owlclaw_ray.store.sql.schema import tasks
from owlclaw_ray.store.sql.working_set import PutRow

TASK_COLUMNS = tuple(tasks.c)


def task_row(put: PutRow) -> tuple[Any, ...]:
    """Return the values of TASK_COLUMNS."""
    task = put.task
    data = {
        "title": task.title,
        "goal": task.goal,
        "status": task.status.value,
        "result": task.result,
        "steps": task.steps,
        "applied": task.applied,
    }
    owner = agent_key(task.owner)
    return (task.task_id, owner, task.version, put.created_at, to_micros(put.at), dump(data))


def task_of(row: Any) -> Task:
    """Return the task of a row that has TASK_COLUMNS."""
    data = load(row.data)
    steps = tuple(_step(each) for each in data["steps"])
    return Task(
        TaskId(row.task_id),
        agent_of(row.agent),
        data["title"],
        data["goal"],
        steps,
        TaskStatus(data["status"]),
        data["result"],
        row.version,
        tuple(data["applied"]),
    )


def _step(data: Any) -> Step:
    claim = None if data["claim"] is None else Claim(**data["claim"])
    depends_on = tuple(data["depends_on"])
    return Step(**{**data, "depends_on": depends_on, "status": StepStatus(data["status"]), "claim": claim})
