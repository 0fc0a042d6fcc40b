"""The agents and tasks of a runtime, for tools in a worker: over whatever reaches the store and the Directory from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.task import Task
from owlclaw_ray.errors import OwlClawError, StoreUnavailableError
from owlclaw_ray.ids import AgentId, RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import QueryFunction
from owlclaw_ray.store.commands import (
    AgentBusy,
    Command,
    IdempotencyConflict,
    Outcome,
    PutTask,
    QueueFull,
    QuotaReached,
    RunAccepted,
    SubmitRun,
    TaskChanged,
    TaskStored,
)
from owlclaw_ray.store.queries import RunById


class DefinitionView(Struct, frozen=True):
    """An agent definition as other agents see it."""

    name: str
    capabilities: str
    problem: str = ""
    """Why it cannot be used, if it cannot."""
    callback_url: str = ""
    """Who is told of the ends of its agents' runs."""


class LoadedDefinitions(Protocol):
    """Definitions, for callers without an event loop."""

    def present(self, tenant: TenantId) -> Sequence[str]:
        """Return the names of all definitions that the tenant may use, sorted."""
        ...

    def load(self, name: str) -> AgentDefinition:
        """See Definitions.get."""
        ...


def views_of(definitions: LoadedDefinitions, tenant: TenantId) -> Sequence[DefinitionView]:
    """Return the definitions that the tenant may use, as its agents see them."""
    views = []
    for name in definitions.present(tenant):
        try:
            definition = definitions.load(AgentRef(tenant, AgentId(name)).qualified_definition)
        except OwlClawError as error:
            views.append(DefinitionView(name, "", str(error)))
        else:
            views.append(DefinitionView(name, definition.capabilities, callback_url=definition.callback_url))
    return views


class RuntimeAgents(Struct, frozen=True):
    """Synchronous: it is used inside a tool worker. Raises StoreUnavailableError."""

    apply: Callable[[Command], Outcome]
    """Commits one command."""
    read: QueryFunction
    """Answers a query from the store."""
    wake: Callable[[AgentRef], object]
    """Has an agent look for its runs; it may get lost."""
    definitions: Callable[[TenantId], Sequence[DefinitionView]]
    """Returns all definitions that the tenant may use, by name."""
    clock: Clock

    def submit(self, command: SubmitRun) -> RunAccepted | IdempotencyConflict | AgentBusy | QueueFull | QuotaReached:
        """Commit a trigger and wake its agent; committing it again changes nothing."""
        outcome = self.apply(command)
        if not isinstance(outcome, RunAccepted | IdempotencyConflict | AgentBusy | QueueFull | QuotaReached):
            raise StoreUnavailableError(f"the run was not accepted: {outcome}")
        if isinstance(outcome, RunAccepted):
            self.wake(command.agent)
        return outcome

    def run(self, tenant: TenantId, run_id: RunId) -> Run | None:
        """Return the run of that id."""
        return self.read(RunById(tenant, run_id))

    def put(self, task: Task, expected: int) -> TaskStored | TaskChanged:
        """Store a task whose version is `expected`, unless another caller changed it meanwhile."""
        outcome = self.apply(PutTask(task, expected, self.clock.now()))
        if not isinstance(outcome, TaskStored | TaskChanged):
            raise StoreUnavailableError(f"the task was not stored: {outcome}")
        return outcome
