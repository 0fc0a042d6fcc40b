"""The whole engine in one process, without Ray: for testing agents, and for the core's own tests.

Everything is the real thing (store, run loop, Directory, schedules, memory, tools) except that hosts are objects instead of
processes and tools run in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from owlclaw_ray.adapters.lance_memory import LanceMemory
from owlclaw_ray.adapters.scripted.client import ScriptedClient
from owlclaw_ray.adapters.store.opening import open_store
from owlclaw_ray.adapters.system_clock import SystemClock
from owlclaw_ray.app import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.schedule import Schedule
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.engine.catalog import ToolCatalog
from owlclaw_ray.engine.directory import Directory, Placement
from owlclaw_ray.engine.durable import DurableStore
from owlclaw_ray.engine.facade import RuntimeFacade
from owlclaw_ray.engine.group_commit import GroupCommit
from owlclaw_ray.engine.host import AgentHost, HostStatus
from owlclaw_ray.engine.host_pool import Host, HostGoneError
from owlclaw_ray.engine.model_gateway import ModelGateway
from owlclaw_ray.engine.retry import RetryPolicy
from owlclaw_ray.engine.run_loop import RunServices
from owlclaw_ray.engine.scheduler import Scheduler
from owlclaw_ray.engine.watching import RunWatch
from owlclaw_ray.identity.defaults import Defaults
from owlclaw_ray.identity.folder import DefinitionFolder
from owlclaw_ray.ids import IdSource, RandomIds, RunId, ScheduleId
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.models import ModelClient
from owlclaw_ray.ports.runtime import Health
from owlclaw_ray.ports.store import (
    CancelRun,
    CancelSchedule,
    Command,
    CreateSchedule,
    Outcome,
    RunAccepted,
    ScheduleCancelled,
    ScheduleCreated,
    Store,
    TooManySchedules,
)
from owlclaw_ray.ports.tools import ToolInvocation, ToolOutcome
from owlclaw_ray.tools.builtin import BuiltInTools
from owlclaw_ray.tools.cron import next_fire
from owlclaw_ray.tools.executor import LocalExecutor

_WATCH_SECONDS = 30.0
_DRAIN_SECONDS = 5.0


def _no_jitter() -> float:
    return 0.0


class _CommittingStore:
    """Reads the store, writes through the group commit."""

    def __init__(self, store: Store, commits: GroupCommit) -> None:
        self.apply = commits.apply
        self.due_schedules, self.next_due = store.due_schedules, store.next_due
        self.schedules, self.ticks = store.schedules, store.ticks


class LocalTools:
    """Implements `ToolRunner` with threads of this process."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor = executor

    async def run(self, invocation: ToolInvocation) -> ToolOutcome:
        """See ToolRunner.run; a cancelled call goes on in its thread, its result unread."""
        return (await asyncio.to_thread(self._executor.run_all, [invocation]))[0]


class LoopSchedules:
    """Implements `Schedules` for tools in threads, through the event loop that owns the store."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits, self._clock = commits, clock
        self._loop = asyncio.get_running_loop()

    def create(self, schedule: Schedule, limit: int) -> ScheduleCreated | TooManySchedules:
        """See Schedules.create."""
        outcome = self._apply(CreateSchedule(schedule, limit))
        assert isinstance(outcome, ScheduleCreated | TooManySchedules)
        return outcome

    def cancel(self, agent: AgentRef, schedule_id: ScheduleId, caller_run: RunId) -> ScheduleCancelled:
        """See Schedules.cancel."""
        now = self._clock.now()
        outcome = self._apply(CancelSchedule(agent, schedule_id, now))
        assert isinstance(outcome, ScheduleCancelled)
        for run_id in outcome.running:
            if run_id != caller_run:
                self._apply(CancelRun(agent.tenant, run_id, now))
        return outcome

    def _apply(self, command: Command) -> Outcome:
        return asyncio.run_coroutine_threadsafe(self._commits.apply([command]), self._loop).result()[0]


class LocalHost:
    """Implements `Host` over an AgentHost in this process."""

    def __init__(self, host_id: str, host: AgentHost) -> None:
        self._host_id, self._host = host_id, host
        self._dead = asyncio.Event()

    @property
    def host_id(self) -> str:
        """See Host.host_id."""
        return self._host_id

    async def adopt(self, agents: Sequence[AgentRef]) -> None:
        """See Host.adopt."""
        await self._alive().adopt(agents)

    async def wake(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.wake."""
        return self._alive().wake(agents)

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """See Host.cancel."""
        return self._alive().cancel(agent, run_id)

    async def release(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.release."""
        return await self._alive().release(agents)

    async def hand_over(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.hand_over."""
        return await self._alive().hand_over(agents)

    async def status(self, most: int) -> HostStatus:
        """See Host.status."""
        return self._alive().status(most)

    async def hosted(self) -> tuple[AgentRef, ...]:
        """See Host.hosted."""
        return self._alive().hosted()

    async def ended(self) -> None:
        """See Host.ended."""
        await self._dead.wait()

    async def drain(self, grace: float) -> None:
        """See Host.drain."""
        await self._alive().drain(grace)

    async def crash(self) -> None:
        """Stop wherever it is, as a killed process would: runs under way are left as the store has them."""
        self._dead.set()
        await self._host.drain(0)

    def _alive(self) -> AgentHost:
        if self._dead.is_set():
            raise HostGoneError(self._host_id)
        return self._host


class LocalPool:
    """Implements `HostPool` with objects."""

    def __init__(
        self, services: RunServices, store: DurableStore, definitions: DefinitionFolder, ids: IdSource
    ) -> None:
        self._services, self._store, self._definitions, self._ids = services, store, definitions, ids
        self.hosts: dict[str, LocalHost] = {}

    @property
    def nodes(self) -> int:
        """See HostPool.nodes."""
        return 1

    async def spawn(self) -> Host:
        """See HostPool.spawn."""
        host_id = self._ids.make("host")
        host = AgentHost(store=self._store, definitions=self._definitions, services=self._services, ids=self._ids)
        self.hosts[host_id] = LocalHost(host_id, host)
        return self.hosts[host_id]

    async def living(self) -> Sequence[Host]:
        """See HostPool.living."""
        return tuple(self.hosts.values())

    async def kill(self, host: Host) -> None:
        """See HostPool.kill."""
        gone = self.hosts.pop(host.host_id, None)
        if gone is not None:
            await gone.crash()


class LocalDispatcher:
    """Implements `Dispatcher` over the Directory in this process."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def wake(self, agents: Sequence[AgentRef]) -> None:
        """See Dispatcher.wake."""
        await self._directory.wake(agents)

    async def cancel(self, agent: AgentRef, run_id: RunId) -> None:
        """See Dispatcher.cancel."""
        await self._directory.cancel(agent, run_id)


class InProcessRuntime(RuntimeFacade):
    """A `Runtime` in this process, with means to make it suffer. Get one from `in_process_runtime`."""

    store: Store
    directory: Directory
    pool: LocalPool
    scheduler: Scheduler

    async def trigger(self, agent: str, payload: JsonValue = None, *, focus: str = "") -> Run:
        """Submit an `api` trigger and return its run when it is over."""
        accepted = await self.submit(AgentRef.parse(agent), Trigger(TriggerKind.API, payload, focus))
        return await self.outcome(accepted)

    async def outcome(self, accepted: RunAccepted) -> Run:
        """Return the run when it is over."""
        after = 0
        while True:
            seen = await self.watch(accepted.agent.tenant, accepted.run_id, after, _WATCH_SECONDS)
            if seen.status.final:
                return await self.run(accepted.agent.tenant, accepted.run_id)
            after = max([after, *(entry.seq for entry in seen.entries)])

    async def crash_hosts(self) -> None:
        """Kill every host where it is, and let the Directory notice."""
        for host in tuple(self.pool.hosts.values()):
            await host.crash()
        await self.directory.heartbeat()


@asynccontextmanager
async def in_process_runtime(
    *,
    agents_dir: Path,
    data_dir: Path,
    app: OwlClaw | None = None,
    models: Sequence[ModelClient] | None = None,
    defaults: Defaults | None = None,
    placement: Placement | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    store_url: str | None = None,
) -> AsyncIterator[InProcessRuntime]:
    """Run the engine over these folders until the block ends; then hosts are drained as `owlclaw down` does.

    A second runtime over the same `data_dir` continues where the first stopped. `models` replace the scripted model, `clock` and
    `ids` the system's. Schedules fire when `runtime.scheduler.tick()` is called.
    """
    clock, ids, app = clock or SystemClock(), ids or RandomIds(), app or OwlClaw("testing")
    await asyncio.to_thread(data_dir.mkdir, parents=True, exist_ok=True)
    store = await open_store(store_url or f"sqlite:///{data_dir}/owlclaw.db", writer="in-process")
    commits = GroupCommit(store)
    memory = LanceMemory(data_dir, None, clock)
    builtins = BuiltInTools(schedules=LoopSchedules(commits, clock), memory=memory, states=app.registry, clock=clock)
    definitions = DefinitionFolder(agents_dir, defaults or Defaults())
    gateway = ModelGateway(models or [ScriptedClient(clock)], clock=clock, retry=RetryPolicy(), jitter=_no_jitter)
    services = RunServices(
        models=gateway,
        tools=LocalTools(LocalExecutor(app.registry, builtins, clock)),
        catalog=ToolCatalog((*builtins.definitions(), *app.registry.definitions())),
        clock=clock,
        has_memories=lambda agent: (data_dir / "agents" / agent.folder / "MEMORY.md").exists(),
    )
    pool = LocalPool(services, DurableStore(commits, clock), definitions, ids)
    directory = Directory(
        pool=pool,
        store=store,
        isolation_of=lambda name: definitions.load(name).isolation,
        placement=placement or Placement(warm=1),
        clock=clock,
    )
    dispatcher = LocalDispatcher(directory)

    async def healthy() -> Health:
        return Health(ready=True, parts={"engine": "ok"})

    runtime = InProcessRuntime(
        store=store,
        watch=RunWatch(store, commits.watchers),
        dispatcher=dispatcher,
        definitions=definitions,
        memories_of=memory.memories,
        health_of=healthy,
        clock=clock,
        ids=ids,
    )
    runtime.store, runtime.directory, runtime.pool = store, directory, pool
    runtime.scheduler = Scheduler(
        store=_CommittingStore(store, commits), wake=dispatcher.wake, next_fire=next_fire, clock=clock
    )
    await directory.start()
    try:
        yield runtime
    finally:
        await directory.stop(_DRAIN_SECONDS)
        await commits.close()
        await store.close()
