"""What runs tool calls, put together in one place for tool workers and for a runtime in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from typing_extensions import override

from owlclaw_ray.access.tenant_terms import QuotasNow
from owlclaw_ray.app import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import Budget
from owlclaw_ray.domain.embedding import EmbeddingCalls, EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.principal import agent_principal
from owlclaw_ray.domain.schedule import Schedule
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import IdSource, RunId, ScheduleId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.memory.embedders import ConfiguredEmbedders
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.policy.embeddings import BudgetedEmbeddings
from owlclaw_ray.schedules.api import Schedules
from owlclaw_ray.store.commands import (
    CancelSchedule,
    Command,
    CommandFailed,
    CreateSchedule,
    Outcome,
    QuotaReached,
    ScheduleCancelled,
    ScheduleCreated,
    TooManySchedules,
)
from owlclaw_ray.store.queries import Query
from owlclaw_ray.tools.agents.runtime_agents import DefinitionView, RuntimeAgents
from owlclaw_ray.tools.agents.toolset import AgentTools
from owlclaw_ray.tools.artifact_home import ArtifactHome
from owlclaw_ray.tools.builtin import BuiltInTools
from owlclaw_ray.tools.composition import tools_of
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.host import HostTools
from owlclaw_ray.tools.internal.events import EventTools
from owlclaw_ray.tools.internal.results import ResultTools
from owlclaw_ray.tools.mcp.adapter import McpTools
from owlclaw_ray.tools.mcp.api import McpServerAccess
from owlclaw_ray.tools.secrets import ToolSecrets
from owlclaw_ray.tools.sql_rows import read_rows

_T = TypeVar("_T")


class RuntimeClients(Protocol):
    """The store and the Directory, as tools reach them. Synchronous: it is used inside a tool worker."""

    def commit(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Return what the store answers to each command; raises StoreUnavailableError if that cannot be known."""
        ...

    def read(self, query: Query[_T]) -> _T:
        """Return the answer of the store."""
        ...

    def secret(self, tenant: TenantId, name: str) -> str:
        """Return the value of a tenant's secret; raises NotFoundError, or SecretsUnavailableError if it cannot be decrypted."""
        ...

    def wake(self, agent: AgentRef) -> None:
        """Have an agent look for its runs. It may get lost: the Directory's sweep makes up for it."""
        ...

    def definitions(self, tenant: TenantId) -> Sequence[DefinitionView]:
        """Return all definitions that the tenant may use, by name."""
        ...

    def budgets(self, agent: AgentRef) -> Sequence[Budget]:
        """Return the budgets of the agent's definition."""
        ...


def apply_all(clients: RuntimeClients, commands: Sequence[Command]) -> Sequence[Outcome]:
    """Return what the store answers to each command; raises StoreUnavailableError if one of them failed."""
    outcomes = clients.commit(commands)
    for outcome in outcomes:
        if isinstance(outcome, CommandFailed):
            raise StoreUnavailableError(outcome.message)
    return outcomes


class StoredSchedules(Schedules):
    """Schedules in the store."""

    def __init__(self, clients: RuntimeClients, clock: Clock) -> None:
        self._clients, self._clock = clients, clock

    @override
    def create(self, schedule: Schedule, limit: int) -> ScheduleCreated | TooManySchedules | QuotaReached:
        (outcome,) = apply_all(self._clients, [CreateSchedule(schedule, limit, agent_principal(schedule.agent))])
        if not isinstance(outcome, ScheduleCreated | TooManySchedules | QuotaReached):
            raise StoreUnavailableError(f"the schedule was not stored: {outcome}")
        return outcome

    @override
    def cancel(self, agent: AgentRef, schedule_id: ScheduleId, caller_run: RunId) -> ScheduleCancelled:
        command = CancelSchedule(agent, schedule_id, self._clock.now(), caller_run, by=agent_principal(agent))
        (outcome,) = apply_all(self._clients, [command])
        if not isinstance(outcome, ScheduleCancelled):
            raise StoreUnavailableError(f"the schedule was not cancelled: {outcome}")
        return outcome


def embedders_of(
    name: str,
    ask: Callable[[EmbeddingRequest], EmbeddingReply],
    *,
    calls: EmbeddingCalls,
    clients: RuntimeClients,
    clock: Clock,
    ids: IdSource,
) -> ConfiguredEmbedders:
    """Return the embedders of the setting `memory.embedder`; those of providers are asked within budgets and quotas."""

    def apply(commands: Sequence[Command]) -> Sequence[Outcome]:
        return apply_all(clients, commands)

    quotas = QuotasNow(clients.read, clock).quotas
    paid = BudgetedEmbeddings(ask, apply=apply, budgets=clients.budgets, quotas=quotas, clock=clock, ids=ids)
    return ConfiguredEmbedders(name, paid, calls)


def tool_executor(
    app: OwlClaw,
    clients: RuntimeClients,
    memory: LanceMemory,
    *,
    host_tools: HostTools,
    environ: Mapping[str, str],
    artifacts: ArtifactHome,
    agents_dir: Path,
    clock: Clock,
    mcp: McpServerAccess | None = None,
    secrets: ToolSecrets | None = None,
) -> LocalExecutor:
    """Return what runs the calls of all tools: built-in ones, the application's, those of the machine and of MCP servers.

    Programs, and sources of events, get from `environ` what they are allowed.
    """
    built_ins = BuiltInTools(schedules=StoredSchedules(clients, clock), memory=memory, states=app.registry, clock=clock)
    agents = RuntimeAgents(
        lambda command: apply_all(clients, [command])[0], clients.read, clients.wake, clients.definitions, clock
    )
    options = host_tools.agents
    tools = tools_of(
        built_ins,
        (
            EventTools(
                sources=app.registry.event_sources, read=clients.read, rows=read_rows, environ=environ, clock=clock
            ),
            ResultTools(clients.read),
            *(() if options is None else (AgentTools(agents, options, clock),)),
            *app.sources(),
        ),
        host_tools,
        environ,
        artifacts,
        agents_dir=agents_dir,
        live=None if mcp is None else McpTools(mcp, artifacts, clock.monotonic),
    )
    return LocalExecutor(tools, clock, artifacts, app.registry.hooks, secrets or ToolSecrets(clients.secret, clock))
