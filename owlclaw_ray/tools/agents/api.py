"""Other agents and shared tasks, as the agent tools use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.task import Task
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ids import RunId, TaskId, TenantId
from owlclaw_ray.store.commands import (
    AgentBusy,
    IdempotencyConflict,
    QueueFull,
    RunAccepted,
    SubmitRun,
    TaskChanged,
    TaskStored,
)
from owlclaw_ray.store.queries import AgentRecord


class DefinitionView(Struct, frozen=True):
    """An agent definition as other agents see it."""

    name: str
    capabilities: str
    problem: str = ""
    """Why it cannot be used, if it cannot."""
    callback_url: str = ""
    """Who is told of the ends of its agents' runs."""


def views_of(names: Sequence[str], load: Callable[[str], AgentDefinition]) -> Sequence[DefinitionView]:
    """Return the definitions of these names as other agents see them."""
    return [_view(name, load) for name in names]


def _view(name: str, load: Callable[[str], AgentDefinition]) -> DefinitionView:
    try:
        definition = load(name)
    except OwlClawError as error:
        return DefinitionView(name, "", str(error))
    return DefinitionView(name, definition.capabilities, callback_url=definition.callback_url)


class Agents(Protocol):
    """The agents of the runtime. Synchronous: it is called from inside a tool worker. Raises StoreUnavailableError."""

    def definitions(self) -> Sequence[DefinitionView]:
        """Return all definitions, by name."""
        ...

    def submit(self, command: SubmitRun) -> RunAccepted | IdempotencyConflict | AgentBusy | QueueFull:
        """Commit a trigger and wake its agent; committing it again changes nothing."""
        ...

    def run(self, tenant: TenantId, run_id: RunId) -> Run | None:
        """See RunById."""
        ...

    def last_run(self, agent: AgentRef) -> Run | None:
        """Return the run of the agent that was accepted last."""
        ...

    def journal(self, tenant: TenantId, run_id: RunId) -> Sequence[JournalEntry]:
        """See JournalOfRun."""
        ...

    def agent(self, agent: AgentRef) -> AgentRecord | None:
        """See AgentByRef."""
        ...

    def family(self, tenant: TenantId, definition: str, key_prefix: str) -> Sequence[AgentRecord]:
        """See AgentsByKeyPrefix."""
        ...


class Tasks(Protocol):
    """The tasks of the runtime. Synchronous: it is called from inside a tool worker. Raises StoreUnavailableError."""

    def task(self, tenant: TenantId, task_id: TaskId) -> Task | None:
        """See TaskById."""
        ...

    def tasks(self, owner: AgentRef) -> Sequence[Task]:
        """See TasksOfAgent."""
        ...

    def put(self, task: Task, expected: int) -> TaskStored | TaskChanged:
        """See PutTask."""
        ...
