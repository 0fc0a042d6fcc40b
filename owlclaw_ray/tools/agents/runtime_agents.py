"""The agents and tasks of a runtime, for tools in a worker: over whatever reaches the store and the Directory from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.task import Task
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import RunId, TaskId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import QueryFunction
from owlclaw_ray.store.commands import (
    AgentBusy,
    Command,
    IdempotencyConflict,
    Outcome,
    PutTask,
    QueueFull,
    RunAccepted,
    SubmitRun,
    TaskChanged,
    TaskStored,
)
from owlclaw_ray.store.queries import (
    AgentByRef,
    AgentRecord,
    AgentsByKeyPrefix,
    JournalOfRun,
    RunById,
    RunFilter,
    TaskById,
    TasksOfAgent,
)
from owlclaw_ray.tools.agents.api import DefinitionView


class RuntimeAgents(Struct, frozen=True):
    """Implements Agents and Tasks."""

    apply: Callable[[Command], Outcome]
    """Commits one command."""
    read: QueryFunction
    """Asks the store."""
    wake: Callable[[AgentRef], object]
    """Has an agent look for its runs; it may get lost."""
    definitions_now: Callable[[], Sequence[DefinitionView]]
    clock: Clock

    def definitions(self) -> Sequence[DefinitionView]:
        """See Agents.definitions."""
        return self.definitions_now()

    def submit(self, command: SubmitRun) -> RunAccepted | IdempotencyConflict | AgentBusy | QueueFull:
        """See Agents.submit."""
        outcome = self.apply(command)
        if not isinstance(outcome, RunAccepted | IdempotencyConflict | AgentBusy | QueueFull):
            raise StoreUnavailableError(f"the run was not accepted: {outcome}")
        if isinstance(outcome, RunAccepted):
            self.wake(command.agent)
        return outcome

    def run(self, tenant: TenantId, run_id: RunId) -> Run | None:
        """See Agents.run."""
        return self.read(RunById(tenant, run_id))

    def last_run(self, agent: AgentRef) -> Run | None:
        """See Agents.last_run."""
        return next(iter(self.read(RunFilter(agent.tenant, agent, limit=1))), None)

    def journal(self, tenant: TenantId, run_id: RunId) -> Sequence[JournalEntry]:
        """See Agents.journal."""
        return self.read(JournalOfRun(tenant, run_id))

    def agent(self, agent: AgentRef) -> AgentRecord | None:
        """See Agents.agent."""
        return self.read(AgentByRef(agent))

    def family(self, tenant: TenantId, definition: str, key_prefix: str) -> Sequence[AgentRecord]:
        """See Agents.family."""
        return self.read(AgentsByKeyPrefix(tenant, definition, key_prefix))

    def task(self, tenant: TenantId, task_id: TaskId) -> Task | None:
        """See Tasks.task."""
        return self.read(TaskById(tenant, task_id))

    def tasks(self, owner: AgentRef) -> Sequence[Task]:
        """See Tasks.tasks."""
        return self.read(TasksOfAgent(owner))

    def put(self, task: Task, expected: int) -> TaskStored | TaskChanged:
        """See Tasks.put."""
        outcome = self.apply(PutTask(task, expected, self.clock.now()))
        if not isinstance(outcome, TaskStored | TaskChanged):
            raise StoreUnavailableError(f"the task was not stored: {outcome}")
        return outcome
