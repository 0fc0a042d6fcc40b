"""The inside of a tool worker: what a process keeps between tasks, as a cache that any call can fill."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct
from typing_extensions import override

from actors.artifacts import artifact_home, storing_seconds
from actors.attempt_markers import AttemptId, AttemptMarkers, BeginsAttempts, StoredBeginnings
from actors.gateway_link import GatewayEmbeddings
from actors.keeper_client import KeeperNow
from actors.logs import configure, hide_in_output
from actors.mcp_link import McpWorkerLink
from actors.ownership import ANSWER_SECONDS, OwnershipCheck
from actors.plan import WorkerPlan
from actors.remote import DIRECTORY, NamedActor
from actors.secrets import take_over
from owlclaw_ray.app_loader import application
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import Budget
from owlclaw_ray.domain.tool import ToolError, ToolResult
from owlclaw_ray.domain.tool_call import ToolInvocation, ToolOutcome
from owlclaw_ray.errors import MemoryUnavailableError, RetryableError, RuntimeUnavailableError
from owlclaw_ray.ids import RandomIds, TenantId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.runtime.memory_home import memory_home, memory_retention
from owlclaw_ray.runtime.worker_tools import RuntimeClients, embedders_of, tool_executor
from owlclaw_ray.tools.agents.runtime_agents import DefinitionView
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.secrets import ToolSecrets

logger = logging.getLogger(__name__)

_WAKE_SECONDS = _ANSWER_SECONDS = 3.0
KILL_AFTER = 2.0
"""Seconds past its time limit after which a call that cannot be interrupted takes its process with it."""


class WorkerClients(KeeperNow, RuntimeClients):
    """The store and the Directory, from inside a tool worker."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self._directory = NamedActor(DIRECTORY, namespace)
        self._budgets: dict[str, tuple[str, Sequence[Budget]]] = {}
        """Those of definitions, with the version that they are of."""

    @override
    def budgets(self, agent: AgentRef) -> Sequence[Budget]:
        """Return the last known ones while the Directory does not answer."""
        version, known = self._budgets.get(agent.qualified_definition, ("", ()))
        try:
            changed = self._directory.call_now(
                lambda directory: directory.definition(agent.qualified_definition, version), _ANSWER_SECONDS
            )
        except RuntimeUnavailableError:
            if not version:
                raise
            return known
        if changed is None:
            return known
        self._budgets[agent.qualified_definition] = changed.version, changed.governance.budgets
        return changed.governance.budgets

    @override
    def definitions(self, tenant: TenantId) -> Sequence[DefinitionView]:
        return self._directory.call_now(lambda directory: directory.definitions(tenant))

    @override
    def wake(self, agent: AgentRef) -> None:
        try:
            self._directory.call_now(lambda directory: directory.wake((agent,)), _WAKE_SECONDS)
        except RuntimeUnavailableError as error:
            logger.warning("%s is woken by the next sweep: %s", agent, error)


class _Worker(Struct):
    """What this process has made so far for one plan."""

    plan: WorkerPlan
    executor: LocalExecutor
    memory: LanceMemory
    attempts: BeginsAttempts
    ownership: OwnershipCheck
    silent: IO[str]


_WORKERS: dict[WorkerPlan, _Worker] = {}


def execute(
    plan: WorkerPlan, invocations: Sequence[ToolInvocation], attempt: AttemptId | None = None
) -> list[ToolOutcome]:
    """Execute the calls in this process, in order, each within its own time limit; first note that the attempt begins. What comes too late
    is not executed if its run is no longer the host's, see OwnershipCheck.

    What does not stop (a loop in C, a blocked system call) is ended together with the process by a watchdog that needs no
    interpreter lock; the caller then sees the worker die.
    """
    worker = _worker(plan)
    try:
        if attempt is not None:
            worker.attempts.begin(attempt)
    except (OSError, RetryableError) as error:
        return [_not_begun(each, f"that it begins could not be noted: {error}") for each in invocations]
    after = KILL_AFTER + 2 * storing_seconds(
        plan
    )  # its content and the details of its error, when it has used up its time
    outcomes = []
    try:
        for each in invocations:
            faulthandler.cancel_dump_traceback_later()
            refused = _refused(worker, each)
            if refused is not None:
                outcomes.append(refused)
                continue
            faulthandler.dump_traceback_later(each.timeout + after, exit=True, file=worker.silent)
            outcomes.append(worker.executor.run_one(each))
    finally:
        faulthandler.cancel_dump_traceback_later()
    return outcomes


def _refused(worker: _Worker, invocation: ToolInvocation) -> ToolOutcome | None:
    """Return the outcome of a call that must not be made; None if it may be."""
    try:
        why = worker.ownership.refusal(invocation)
    except Exception as error:  # noqa: BLE001 - what was made of the task before it is to be told
        return _not_begun(invocation, f"whose its run is could not be asked: {error}")
    if not why:
        return None
    logger.warning("a call of %s came too late and was not made: %s", invocation.tool, why)
    not_made = ToolError("not_executed", f"{invocation.tool} was not made: {why}")
    return ToolOutcome(ToolResult(invocation.call_id, error=not_made), 0)


def _not_begun(invocation: ToolInvocation, why: str) -> ToolOutcome:
    message = f"{invocation.tool} did not run: {why}"
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
    folders = Path(plan.data_dir, "agents")
    if any(each for name in ("MEMORY.md", "index") for each in folders.glob(f"*/*/{name}")):
        importlib.import_module("lancedb")


def _worker(plan: WorkerPlan) -> _Worker:
    if plan not in _WORKERS:
        _WORKERS[plan] = _make_worker(plan)
    return _WORKERS[plan]


def _make_worker(plan: WorkerPlan) -> _Worker:
    take_over()
    clock, data_dir = SystemClock(), Path(plan.data_dir)
    silent = Path(os.devnull).open("w")  # noqa: SIM115 - the watchdog writes to it for the life of the process
    clients = WorkerClients(plan.namespace)
    secrets = ToolSecrets(clients.secret, clock)
    configure(plan.log, secrets.hidden)
    # Before the application is imported: its loggers take the streams that are there then.
    hide_in_output(secrets.hidden)
    app = application(plan.app_path, Path(plan.app_folder))
    ask = GatewayEmbeddings(plan.namespace).embed
    embedders = embedders_of(plan.embedder, ask, calls=plan.embedding, clients=clients, clock=clock, ids=RandomIds())
    home = memory_home(plan.memory_home, clients, data_dir, clock)
    retention = memory_retention(clients.read, plan.memory_limits.retention)
    memory = LanceMemory(data_dir, embedders, clock, plan.memory_limits, home, retention=retention)
    executor = tool_executor(
        app,
        clients,
        memory,
        host_tools=plan.host_tools,
        environ=os.environ,  # noqa: TID251 - programs and sources of events get what is allowed of it
        artifacts=artifact_home(plan, clock),
        agents_dir=Path(plan.agents_dir),
        clock=clock,
        secrets=secrets,
        mcp=McpWorkerLink(plan.namespace) if plan.has_mcp else None,
    )
    ownership = OwnershipCheck(KeeperNow(plan.namespace, ANSWER_SECONDS).commit)
    return _Worker(plan, executor, memory, _attempts(plan, clients), ownership, silent)


def _attempts(plan: WorkerPlan, clients: WorkerClients) -> BeginsAttempts:
    if plan.stored_attempts:
        return StoredBeginnings(clients.commit)
    markers = AttemptMarkers(Path(plan.data_dir), SystemClock())
    markers.clear()
    return markers
