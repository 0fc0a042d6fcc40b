"""The command about tasks, and its outcomes."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.task import Task


class PutTask(Struct, frozen=True):
    """Store a task, if the version that is stored is the `expected` one (0: none is). Outcome: TaskStored or TaskChanged."""

    task: Task
    expected: int
    at: datetime


class TaskStored(Struct, frozen=True):
    """The task is durable, or was before."""


class TaskChanged(Struct, frozen=True):
    """Somebody else changed it; `task` is what is stored. None: it does not exist."""

    task: Task | None
