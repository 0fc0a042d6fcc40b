"""The inside of a tool worker: what a process keeps between tasks, as a cache that any call can fill."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TypeVar

from msgspec import Struct

from actors.attempt_markers import AttemptId, AttemptMarkers
from actors.gateway_link import GatewayEmbeddings
from actors.logs import configure
from actors.mcp_link import McpWorkerLink
from actors.plan import WorkerPlan
from actors.remote import DIRECTORY, KEEPER, NamedActor
from actors.secrets import take_over
from owlclaw_ray.app_loader import application
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import Budget
from owlclaw_ray.domain.schedule import Schedule
from owlclaw_ray.domain.tool import ToolError, ToolResult
from owlclaw_ray.domain.tool_call import ToolInvocation, ToolOutcome
from owlclaw_ray.errors import MemoryUnavailableError, RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.ids import RandomIds, RunId, ScheduleId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.memory.embedders import ConfiguredEmbedders
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.policy.embeddings import BudgetedEmbeddings
from owlclaw_ray.store.command_link import apply_now
from owlclaw_ray.store.commands import (
    CancelSchedule,
    Command,
    CommandFailed,
    CreateSchedule,
    Outcome,
    ScheduleCancelled,
    ScheduleCreated,
    TooManySchedules,
)
from owlclaw_ray.store.queries import Query
from owlclaw_ray.tools.adapter import ToolAdapter
from owlclaw_ray.tools.agents.runtime_agents import DefinitionView, RuntimeAgents
from owlclaw_ray.tools.agents.toolset import AgentTools
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.builtin import BuiltInTools
from owlclaw_ray.tools.composition import tools_of
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.internal.events import EventTools
from owlclaw_ray.tools.internal.results import ResultTools
from owlclaw_ray.tools.mcp.adapter import McpTools
from owlclaw_ray.tools.sql_rows import read_rows

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

_WAKE_SECONDS = _ANSWER_SECONDS = 3.0
KILL_AFTER = 2.0
"""Seconds past its time limit after which a call that cannot be interrupted takes its process with it."""


class WorkerClients:
    """The store and the Directory, from inside a tool worker."""

    def __init__(self, namespace: str) -> None:
        self._keeper, self._directory = NamedActor(KEEPER, namespace), NamedActor(DIRECTORY, namespace)
        self._budgets: dict[str, tuple[str, Sequence[Budget]]] = {}
        """Those of definitions, with the version that they are of."""

    def agents(self, clock: Clock) -> RuntimeAgents:
        """Return the agents and tasks of the runtime."""
        return RuntimeAgents(self._apply, self.read, self._wake, self._definitions, clock)

    def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Return what the store answers to each command; raises StoreUnavailableError if one of them failed."""
        outcomes = apply_now(commands, lambda parcels: self._keeper.call_now(lambda keeper: keeper.apply(parcels)))
        for outcome in outcomes:
            if isinstance(outcome, CommandFailed):
                raise StoreUnavailableError(outcome.message)
        return outcomes

    def budgets(self, agent: AgentRef) -> Sequence[Budget]:
        """Return the budgets of the agent's definition; the last known ones while the Directory does not answer."""
        version, known = self._budgets.get(agent.definition, ("", ()))
        try:
            changed = self._directory.call_now(
                lambda directory: directory.definition(agent.definition, version), _ANSWER_SECONDS
            )
        except RuntimeUnavailableError:
            if not version:
                raise
            return known
        if changed is None:
            return known
        self._budgets[agent.definition] = changed.version, changed.governance.budgets
        return changed.governance.budgets

    def _apply(self, command: Command) -> Outcome:
        return self.apply([command])[0]

    def read(self, query: Query[_T]) -> _T:
        """Return the answer of the store."""
        return self._keeper.call_now(lambda keeper: keeper.read(query))

    def _definitions(self) -> Sequence[DefinitionView]:
        return self._directory.call_now(lambda directory: directory.definitions())

    def _wake(self, agent: AgentRef) -> None:
        try:
            self._directory.call_now(lambda directory: directory.wake((agent,)), _WAKE_SECONDS)
        except RuntimeUnavailableError as error:
            logger.warning("%s is woken by the next sweep: %s", agent, error)


class KeeperSchedules:
    """Implements `Schedules` from inside a tool worker, through the Keeper."""

    def __init__(self, reach: WorkerClients) -> None:
        self._reach = reach

    def create(self, schedule: Schedule, limit: int) -> ScheduleCreated | TooManySchedules:
        """See Schedules.create."""
        (outcome,) = self._reach.apply([CreateSchedule(schedule, limit)])
        if not isinstance(outcome, ScheduleCreated | TooManySchedules):
            raise StoreUnavailableError(f"the schedule was not stored: {outcome}")
        return outcome

    def cancel(self, agent: AgentRef, schedule_id: ScheduleId, caller_run: RunId) -> ScheduleCancelled:
        """See Schedules.cancel. What is under way learns it with its next commit."""
        (outcome,) = self._reach.apply([CancelSchedule(agent, schedule_id, SystemClock().now(), caller_run)])
        if not isinstance(outcome, ScheduleCancelled):
            raise StoreUnavailableError(f"the schedule was not cancelled: {outcome}")
        return outcome


class _Worker(Struct):
    """What this process has made so far for one plan."""

    plan: WorkerPlan
    executor: LocalExecutor
    memory: LanceMemory
    attempt_markers: AttemptMarkers
    silent: IO[str]


_WORKERS: dict[WorkerPlan, _Worker] = {}


def execute(
    plan: WorkerPlan, invocations: Sequence[ToolInvocation], attempt: AttemptId | None = None
) -> list[ToolOutcome]:
    """Execute the calls in this process, in order, each within its own time limit; first note that the attempt begins.

    What does not stop (a loop in C, a blocked system call) is ended together with the process by a watchdog that needs no
    interpreter lock; the caller then sees the worker die.
    """
    worker = _worker(plan)
    try:
        if attempt is not None:
            worker.attempt_markers.begin(attempt)
    except OSError as error:
        return [_not_begun(each, error) for each in invocations]
    outcomes = []
    try:
        for each in invocations:
            faulthandler.dump_traceback_later(each.timeout + KILL_AFTER, exit=True, file=worker.silent)
            outcomes.append(worker.executor.run_one(each))
    finally:
        faulthandler.cancel_dump_traceback_later()
    return outcomes


def _not_begun(invocation: ToolInvocation, cause: OSError) -> ToolOutcome:
    message = f"{invocation.tool} did not run: that it begins could not be noted: {cause}"
    return ToolOutcome(ToolResult(invocation.call_id, error=ToolError("execution_failed", message, retryable=True)), 0)


def use_memory(plan: WorkerPlan, method: str, arguments: Sequence[object]) -> object:
    """Return what the method of this process's LanceMemory returns; raises MemoryUnavailableError if the files cannot be used."""
    try:
        return getattr(_worker(plan).memory, method)(*arguments)
    except OSError as error:
        raise MemoryUnavailableError(f"the agent's memory files cannot be used: {error}") from error


def warm(plan: WorkerPlan) -> None:
    """Import what calls will need: the index of memories only where there are any, for it takes two seconds and 40 MB."""
    _worker(plan)
    if any(Path(plan.data_dir, "agents").glob("*/*/MEMORY.md")):
        importlib.import_module("lancedb")


def _worker(plan: WorkerPlan) -> _Worker:
    if plan not in _WORKERS:
        _WORKERS[plan] = _make_worker(plan)
    return _WORKERS[plan]


def _make_worker(plan: WorkerPlan) -> _Worker:
    take_over()
    configure(plan.log)
    clock = SystemClock()
    app = application(plan.app_path, Path(plan.app_folder))
    reach = WorkerClients(plan.namespace)
    paid = BudgetedEmbeddings(
        GatewayEmbeddings(plan.namespace).embed, apply=reach.apply, budgets=reach.budgets, clock=clock, ids=RandomIds()
    )
    embedders = ConfiguredEmbedders(plan.embedder, paid, plan.embedding)
    memory = LanceMemory(Path(plan.data_dir), embedders, clock, plan.memory_limits)
    schedules = KeeperSchedules(reach)
    builtins = BuiltInTools(schedules=schedules, memory=memory, states=app.registry, clock=clock)
    attempt_markers = AttemptMarkers(Path(plan.data_dir), clock)
    attempt_markers.clear()
    silent = Path(os.devnull).open("w")  # noqa: SIM115 - the watchdog writes to it for the life of the process
    artifacts = ArtifactFolder(Path(plan.data_dir))
    live = McpTools(McpWorkerLink(plan.namespace), artifacts, clock.monotonic) if plan.has_mcp else None
    reach = WorkerClients(plan.namespace)
    events = EventTools(
        sources=app.registry.event_sources,
        read=reach.read,
        rows=read_rows,
        environ=os.environ,  # noqa: TID251 - the variable that a definition names holds the URL of its database
        clock=clock,
    )
    sources: tuple[ToolAdapter, ...] = (
        events,
        ResultTools(reach.read),
        *_agent_tools(plan, reach, clock),
        *app.sources(),
    )
    environ, agents_dir = os.environ, Path(plan.agents_dir)  # noqa: TID251 - programs get what is allowed of it
    tools = tools_of(builtins, sources, plan.host_tools, environ, artifacts, agents_dir=agents_dir, live=live)
    executor = LocalExecutor(tools, clock, artifacts, app.registry.hooks)
    return _Worker(plan, executor, memory, attempt_markers, silent)


def _agent_tools(plan: WorkerPlan, reach: WorkerClients, clock: Clock) -> tuple[AgentTools, ...]:
    options = plan.host_tools.agents
    if options is None:
        return ()
    agents = reach.agents(clock)
    return (AgentTools(agents, options, clock),)
