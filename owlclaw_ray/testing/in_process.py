"""The whole engine in one process, without Ray: for testing agents, and for the core's own tests.

Everything is the real thing (store, run loop, Directory, schedules, memory, tools) except that hosts are objects instead of
processes and tools run in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec.structs import replace
from typing_extensions import override

from owlclaw_ray.access.quota_use import quota_uses
from owlclaw_ray.access.tenant_terms import TenantTerms
from owlclaw_ray.access.tenants import NOTHING
from owlclaw_ray.app import OwlClaw
from owlclaw_ray.definitions.api import Definitions, NamedDefinitions
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.folder import DefinitionFolder
from owlclaw_ray.definitions.skills.host_facts import Machine
from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.domain.budget import Budget
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.domain.embedding import EmbeddingCalls
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.memory import Memory, MemoryHomeKind, Recall
from owlclaw_ray.domain.model import Price
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.provider import ProviderLimits
from owlclaw_ray.domain.quota import uncounted_quotas
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.tool_call import Confirm, ToolInvocation, ToolOutcome, nothing_to_confirm
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.domain.webhook import WebhookSource
from owlclaw_ray.errors import OwlClawError, StoreUnavailableError
from owlclaw_ray.ids import IdSource, RandomIds, RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.embedding import Embedders
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.models.api import EmbeddingClient, ModelClient, TokenCounter
from owlclaw_ray.models.embedding_gateway import EmbeddingGateway
from owlclaw_ray.models.model_gateway import ModelGateway
from owlclaw_ray.models.provider_slots import SlotCounts
from owlclaw_ray.models.scripted.client import ScriptedClient
from owlclaw_ray.models.tokens import EstimatedTokens
from owlclaw_ray.placement.directory import Directory
from owlclaw_ray.placement.host import AgentHost, HostDrainedError, HostStatus
from owlclaw_ray.placement.host_pool import Host, HostGoneError
from owlclaw_ray.policy.approval_expiry import ApprovalExpiry
from owlclaw_ray.policy.permission import Approve
from owlclaw_ray.runs.callback_rules import TenantCallbackRules
from owlclaw_ray.runs.family import Family
from owlclaw_ray.runs.run_loop import RunServices
from owlclaw_ray.runs.submissions import Dispatcher
from owlclaw_ray.runtime.api import Health, Runtime, refuse_score
from owlclaw_ray.runtime.host_services import host_services
from owlclaw_ray.runtime.memory_home import has_memories, memory_home, memory_retention
from owlclaw_ray.runtime.tenant_places import ArtifactPlace, DataFolder
from owlclaw_ray.runtime.tenant_removal import TenantRemoval
from owlclaw_ray.runtime.worker_tools import RuntimeClients, embedders_of, tool_executor
from owlclaw_ray.schedules.firings import ScheduleFirer
from owlclaw_ray.schedules.heartbeat_schedules import HeartbeatScheduler
from owlclaw_ray.secrets.keyring import Keyring, new_key, read_keys
from owlclaw_ray.secrets.vault import SecretVault
from owlclaw_ray.store.api import CommandStore, QueryStore, Store
from owlclaw_ray.store.commands import (
    Command,
    Outcome,
    RunAccepted,
)
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.store.followers import FollowerRegistry
from owlclaw_ray.store.group_commit import GroupCommit, unblocked
from owlclaw_ray.store.queries import ActiveRunCounts, Query
from owlclaw_ray.store.run_updates import RunUpdates, RunUpdateSource
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.telemetry.metrics import gauges
from owlclaw_ray.telemetry.metrics.api import MetricFamily
from owlclaw_ray.telemetry.metrics.commit_metrics import CommitMetrics
from owlclaw_ray.telemetry.tracing.api import ScoreReceiver
from owlclaw_ray.testing.store_file import create_store
from owlclaw_ray.tools.agents.runtime_agents import DefinitionView, LoadedDefinitions, views_of
from owlclaw_ray.tools.artifact_home import ArtifactHome
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.composition import declared_tools
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.host import HostTools
from owlclaw_ray.tools.mcp.api import McpCall, McpCatalog, McpNode, McpProblem
from owlclaw_ray.tools.mcp.options import McpOptions
from owlclaw_ray.webhooks.callback_http import HttpCallbackSender
from owlclaw_ray.webhooks.outbox import CallbackDelivery, CallbackOptions

if TYPE_CHECKING:
    from owlclaw_ray.tools.mcp.pool import McpPool

_HERE = "here"
"""The only node."""
_T = TypeVar("_T")
_WATCH_SECONDS = 30.0
_DRAIN_SECONDS = 5.0
_NO_WINDOWS: Mapping[str, int] = {}
_NO_PRICES: Mapping[str, Price] = {}


def _no_jitter() -> float:
    return 0.0


class GroupedStore(Store):
    """Reads a store, and writes through its group commit."""

    def __init__(self, store: Store, commits: GroupCommit) -> None:
        self._store, self._commits = store, commits

    @override
    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        return unblocked(await self._commits.apply(commands))

    @override
    async def read(self, query: Query[_T]) -> _T:
        return await self._store.read(query)

    @override
    async def check_writable(self) -> None:
        await self._store.check_writable()

    @override
    async def close(self) -> None:
        await self._store.close()


class LocalDefinitions(NamedDefinitions, LoadedDefinitions, Protocol):
    """Definitions that are also at hand without an event loop."""


class LocalTools:
    """Implements `ToolRunner` with threads of this process."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor = executor

    async def run(self, invocation: ToolInvocation, _confirm: Confirm = nothing_to_confirm, /) -> ToolOutcome:
        """See ToolRunner.run: nothing waits; a cancelled call goes on in its thread, its result unread."""
        return (await asyncio.to_thread(self._executor.run_all, [invocation]))[0]


class LocalMemory:
    """Implements `IndexedMemory` with threads of this process."""

    def __init__(self, memory: LanceMemory) -> None:
        self._memory = memory

    async def remember(self, agent: AgentRef, memory: Memory) -> Memory:
        """See IndexedMemory.remember."""
        return await asyncio.to_thread(self._memory.remember, agent, memory)

    async def recall(self, agent: AgentRef, query: str, limit: int, tags: Sequence[str], timezone: str) -> Recall:
        """See IndexedMemory.recall."""
        return await asyncio.to_thread(self._memory.recall, agent, query, limit, tags, timezone)

    async def reindex(self, agent: AgentRef) -> int:
        """See IndexedMemory.reindex."""
        return await asyncio.to_thread(self._memory.reindex, agent)

    async def refresh(self, agent: AgentRef) -> None:
        """See IndexedMemory.refresh."""
        self._memory.refresh(agent)


class LoopServers:
    """Implements McpServers for tools in threads, through the event loop that owns the pool."""

    def __init__(self, pool: McpPool) -> None:
        self._pool, self._loop = pool, asyncio.get_running_loop()

    def catalog(self, known: str) -> McpCatalog | None:
        """See McpServers.catalog."""
        return asyncio.run_coroutine_threadsafe(self._pool.catalog(known, 0), self._loop).result()

    def call(self, call: McpCall) -> JsonObject | McpProblem:
        """See McpServers.call."""
        return asyncio.run_coroutine_threadsafe(self._pool.call(call), self._loop).result()


class LoopClients(RuntimeClients):
    """Reaches store and Directory for tools in threads, through the event loop that owns both."""

    def __init__(self, store: Store, commits: GroupCommit, definitions: LocalDefinitions, vault: SecretVault) -> None:
        self._store, self._commits, self._definitions, self._vault = store, commits, definitions, vault
        self._loop = asyncio.get_running_loop()
        self.directory: Directory | None = None

    @override
    def commit(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        return self.wait_for(self._commits.apply(commands))

    @override
    def read(self, query: Query[_T]) -> _T:
        return self.wait_for(self._store.read(query))

    @override
    def secret(self, tenant: TenantId, name: str) -> str:
        return self.wait_for(self._vault.secret(tenant, name))

    @override
    def wake(self, agent: AgentRef) -> None:
        if self.directory is not None:
            self.wait_for(self.directory.wake([agent]))

    @override
    def definitions(self, tenant: TenantId) -> Sequence[DefinitionView]:
        return views_of(self._definitions, tenant)

    @override
    def budgets(self, agent: AgentRef) -> Sequence[Budget]:
        return self._definitions.load(agent.qualified_definition).governance.budgets

    def wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of work that the loop does, to a thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class Wire:
    """Implements `CommandStore` for one process: its way to the store, until it is cut."""

    def __init__(self, store: CommandStore) -> None:
        self._store = store
        self._whole = True
        self._answers: set[asyncio.Future[Sequence[Outcome]]] = set()

    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """See CommandStore.apply; ends the caller if the wire is cut, before or while it waits."""
        if not self._whole:
            raise asyncio.CancelledError
        answer = asyncio.shield(asyncio.ensure_future(self._store.apply(commands)))
        self._answers.add(answer)
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    def cut(self) -> None:
        """Cut the connection. Commands sent before may still be committed, but no answer comes back."""
        self._whole = False
        for answer in self._answers:
            answer.cancel()


class LocalHost:
    """Implements `Host` over an AgentHost in this process."""

    def __init__(self, host_id: str, host: AgentHost, wire: Wire) -> None:
        self._host_id, self._host, self._wire = host_id, host, wire
        self._calls: set[asyncio.Task[Any]] = set()
        self._death = asyncio.Event()

    @property
    def host_id(self) -> str:
        """See Host.host_id."""
        return self._host_id

    @property
    def node_id(self) -> str:
        """See Host.node_id."""
        return _HERE

    async def adopt(self, agents: Sequence[AgentRef], term: int) -> None:
        """See Host.adopt."""
        try:
            await self._reach(lambda host: host.adopt(agents, term))
        except HostDrainedError as error:
            raise HostGoneError(f"{self._host_id}: {error}") from error

    async def wake(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.wake."""
        return self._alive().wake(agents)

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """See Host.cancel."""
        return self._alive().cancel(agent, run_id)

    async def release(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.release."""
        return await self._reach(lambda host: host.release(agents))

    async def hand_over(self, agents: Sequence[AgentRef], grace: float | None = None) -> tuple[AgentRef, ...]:
        """See Host.hand_over."""
        return await self._reach(lambda host: host.hand_over(agents, grace))

    async def status(self, most: int) -> HostStatus:
        """See Host.status."""
        return self._alive().status(most)

    async def hosted(self) -> tuple[AgentRef, ...]:
        """See Host.hosted."""
        return self._alive().hosted()

    async def ended(self) -> None:
        """See Host.ended."""
        await self._death.wait()

    async def drain(self, grace: float) -> None:
        """See Host.drain."""
        await self._reach(lambda host: host.drain(grace))

    async def crash(self) -> None:
        """Stop like a killed process: unfinished runs stay as the store has them."""
        self._death.set()
        self._wire.cut()
        for call in self._calls:
            call.cancel()
        self._host.abandon()
        await asyncio.sleep(0)

    @property
    def dead(self) -> bool:
        """Whether it was crashed."""
        return self._death.is_set()

    def _alive(self) -> AgentHost:
        if self.dead:
            raise HostGoneError(self._host_id)
        return self._host

    async def _reach(self, call: Callable[[AgentHost], Coroutine[None, None, _T]]) -> _T:
        """Return the host's answer, unless it dies first. The call goes on if the caller is cancelled."""
        answer = asyncio.create_task(call(self._alive()))
        self._calls.add(answer)
        answer.add_done_callback(self._calls.discard)
        death = asyncio.create_task(self._death.wait())
        try:
            await asyncio.wait({answer, death}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            death.cancel()
        if self.dead:
            raise HostGoneError(self._host_id)
        return answer.result()


class LocalPool:
    """Implements `HostPool` with objects."""

    def __init__(
        self, services: RunServices, store: CommandStore, runs: QueryStore, definitions: Definitions, ids: IdSource
    ) -> None:
        self._services, self._store, self._runs = services, store, runs
        self._definitions, self._ids = definitions, ids
        self.hosts: dict[str, LocalHost] = {}

    @property
    def nodes(self) -> Mapping[str, float]:
        """See HostPool.nodes."""
        return {_HERE: 1.0}

    @property
    def bare(self) -> frozenset[str]:
        """See HostPool.bare."""
        return frozenset()

    async def spawn(self, node_id: str) -> Host:
        """See HostPool.spawn."""
        del node_id
        host_id, wire = self._ids.make("host"), Wire(self._store)
        durable = DurableStore(wire, self._services.clock)
        host = AgentHost(
            store=durable, runs=self._runs, definitions=self._definitions, services=self._services, ids=self._ids
        )
        self.hosts[host_id] = LocalHost(host_id, host, wire)
        return self.hosts[host_id]

    async def living(self) -> Sequence[Host]:
        """See HostPool.living."""
        return tuple(self.hosts.values())

    async def kill(self, host: Host) -> None:
        """See HostPool.kill."""
        gone = self.hosts.pop(host.host_id, None)
        if gone is not None:
            await gone.crash()


class LocalMetrics:
    """Implements Metrics for this process."""

    def __init__(
        self,
        counted: CommitMetrics,
        store: QueryStore,
        directory: Directory,
        slots: Callable[[], Sequence[SlotCounts]],
        clock: Clock,
    ) -> None:
        self._counted, self._store, self._directory = counted, store, directory
        self._slots, self._clock = slots, clock

    async def families(self) -> Sequence[MetricFamily]:
        """See Metrics.families."""
        active = gauges.active_runs(await self._store.read(ActiveRunCounts()))
        quotas = gauges.quotas(await quota_uses(self._store, self._clock.now()))
        pool, slots = gauges.pool(self._directory.hosts()), gauges.slots(self._slots())
        return (*self._counted.families(), active, *quotas, *pool, *slots)


class LocalDispatcher(Dispatcher):
    """Reaches agents through the Directory in this process, which is set once there is one: it needs a pool that needs this."""

    directory: Directory

    @override
    async def wake(self, agents: Sequence[AgentRef]) -> None:
        await self.directory.wake(agents)

    @override
    async def cancel(self, agent: AgentRef, run_id: RunId) -> None:
        await self.directory.cancel(agent, run_id)


async def _only_here(news: RunUpdates) -> Mapping[str, RunUpdateSource]:
    return {"here": news}


class InProcessRuntime(Runtime):
    """A `Runtime` in this process, whose hosts can be crashed. Get one from `in_process_runtime`."""

    store: Store
    directory: Directory
    pool: LocalPool
    schedule_firer: ScheduleFirer
    """Fires schedules when its `fire_all_due` is called."""
    heartbeats: HeartbeatScheduler
    family: Family
    expiry: ApprovalExpiry
    tenant_removal: TenantRemoval
    """Goes on with deletions of tenants when its `tick` is called."""
    callbacks: CallbackDelivery
    indexed_memory: LanceMemory
    following: FollowerRegistry

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

    async def stop(self) -> None:
        """End all followers, and drain the hosts as `owlclaw down` does."""
        self.following.close()
        await self.directory.stop(_DRAIN_SECONDS)

    async def crash_hosts(self) -> None:
        """Kill every host, and let the Directory notice."""
        for host in tuple(self.pool.hosts.values()):
            await host.crash()
        await self.directory.heartbeat()


def assemble(
    *,
    store: SqlStore,
    commits: GroupCommit,
    services: RunServices,
    definitions: LocalDefinitions,
    memory: LanceMemory,
    memory_files: MemoryFolders,
    artifacts: ArtifactHome,
    data_dir: Path,
    placement: Placement,
    ids: IdSource,
    counted: CommitMetrics | None = None,
    mcp: McpNode | None = None,
    webhook_sources: Sequence[WebhookSource] = (),
    callbacks: CallbackRules | None = None,
    callback_secrets: Sequence[str] = (),
    scores: ScoreReceiver | None = None,
    slots: Callable[[], Sequence[SlotCounts]] = tuple,
    secrets: SecretVault | None = None,
    uncounted: Mapping[str, str] = NOTHING,
) -> InProcessRuntime:
    """Put a runtime together from these parts, `commits` being the group commit of `store`. It works from `directory.start()` on.

    `counted` is what observes the commits, if anything does; `slots` tells how model calls stand.
    """
    clock = services.clock
    grouped = GroupedStore(store, commits)

    async def healthy() -> Health:
        try:
            await store.check_writable()
        except StoreUnavailableError as error:
            return Health(ready=False, parts={"store": str(error)})
        return Health(ready=True, parts={"store": "ok"})

    secrets = secrets or SecretVault(store, grouped, Keyring(()), TenantRedactors(Redactor), clock)
    dispatcher = LocalDispatcher()
    family = Family(store=grouped, wake=dispatcher.wake, cancel=dispatcher.cancel, clock=clock)
    services = replace(services, family=family)
    pool = LocalPool(services, commits, store, definitions, ids)
    directory = dispatcher.directory = Directory(
        pool=pool,
        store=store,
        isolation_of=lambda name: isolation_of(definitions, name),
        placement=placement,
        clock=clock,
    )
    schedule_firer = ScheduleFirer(
        store=grouped,
        wake=dispatcher.wake,
        cancel=dispatcher.cancel,
        definitions=definitions,
        clock=clock,
    )
    news = RunUpdates(clock)
    store.tell(news.changed)
    following = FollowerRegistry(grouped, partial(_only_here, news), ids=ids, clock=clock)
    runtime = InProcessRuntime(
        store=grouped,
        following=following,
        dispatcher=dispatcher,
        definitions=definitions,
        memory_files=memory_files,
        indexed_memory=LocalMemory(memory),
        artifacts=artifacts,
        health_of=healthy,
        mcp=mcp,
        metrics=LocalMetrics(counted or CommitMetrics(), grouped, directory, slots, clock),
        sources=webhook_sources,
        callbacks=callbacks,
        callback_secrets=callback_secrets,
        keep_score=refuse_score if scores is None else scores.keep,
        clock=clock,
        ids=ids,
        ring=schedule_firer.ring,
        uncounted=uncounted,
        secrets=secrets,
        secret=secrets.secret,
    )
    runtime.store, runtime.directory, runtime.pool, runtime.family = store, directory, pool, family
    runtime.indexed_memory, runtime.following = memory, following
    runtime.expiry = ApprovalExpiry(store=grouped, wake=dispatcher.wake, clock=clock)
    places = [DataFolder(data_dir), ArtifactPlace(artifacts)]
    runtime.tenant_removal = TenantRemoval(grouped, places, dispatcher.cancel, clock)
    runtime.heartbeats = HeartbeatScheduler(grouped, definitions, clock)
    runtime.schedule_firer = schedule_firer
    return runtime


def isolation_of(definitions: LocalDefinitions, name: str) -> Isolation:
    """Return the definition's isolation; a broken one gets a host too, where its runs fail and say why."""
    try:
        return definitions.load(name).isolation
    except OwlClawError:
        return Isolation.DEDICATED


async def _mcp_pool(
    options: McpOptions, environ: Mapping[str, str], vault: SecretVault, clock: Clock, ids: IdSource
) -> McpPool:
    from owlclaw_ray.tools.mcp.pool import McpPool

    made = ids.make("pool")
    pool = McpPool(options, environ=environ, clock=clock, jitter=_no_jitter, incarnation=made, secret=vault.secret)
    await pool.start()
    return pool


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
    host_tools: HostTools | None = None,
    mcp: McpOptions | None = None,
    environ: Mapping[str, str] | None = None,
    approve: Approve | None = None,
    model_limits: Sequence[ProviderLimits] = (),
    context_windows: Mapping[str, int] = _NO_WINDOWS,
    prices: Mapping[str, Price] = _NO_PRICES,
    tokens: TokenCounter | None = None,
    embedders: Embedders | None = None,
    embedder: str = "none",
    memories: MemoryHomeKind = MemoryHomeKind.FILES,
    embedding: EmbeddingClient | None = None,
    webhook_sources: Sequence[WebhookSource] = (),
    callbacks: CallbackOptions | None = None,
    scores: ScoreReceiver | None = None,
    master_keys: str = "",
) -> AsyncIterator[InProcessRuntime]:
    """Run the engine over these folders until the block ends; then hosts are drained as `owlclaw down` does.

    A second runtime over the same `data_dir` continues where the first stopped. `models` replace the scripted model, `clock` and
    `ids` the system's. `host_tools` and `mcp`, the servers, are off unless given; `environ` is what their programs
    and servers may get variables from. `model_limits`, `context_windows` and `prices` are those of the settings
    `models.limits`, `models.context_windows` and `models.prices`; without `tokens` tokens are estimated, and no other prices are known.
    Schedules fire when `runtime.schedule_firer.fire_all_due()` is called, heartbeats have theirs after `runtime.heartbeats.tick()`,
    approvals expire at `runtime.expiry.tick()`, and runs that
    wait for others and missed their wake resume at `runtime.family.sweep()`.
    Memories are found by their words only, unless there are `embedders`, or an `embedder` as in the setting `memory.embedder`, whose
    provider is asked by `embedding`.
    `memories` says where they are, in the folder or in the store: a call of theirs blocks a thread then, and must not be made on the
    event loop. `webhook_sources` may send webhooks. With `callbacks`, callbacks that triggers and definitions name are sent when
    `runtime.callbacks.tick()` is called, where `defaults` allows it.
    `scores` receives scores of runs, as Langfuse does. `runtime.secrets` keeps secrets for tools, encrypted with `master_keys`,
    or else with a key that nobody has afterwards.
    `approve` decides about calls that need an approval; without it their runs wait for `runtime.decide`, as in production.
    """
    clock, ids, app = clock or SystemClock(), ids or RandomIds(), app or OwlClaw("testing")
    defaults = defaults or Defaults()
    host_tools, environ = host_tools or HostTools(), environ or {}
    await asyncio.to_thread(data_dir.mkdir, mode=0o700, parents=True, exist_ok=True)
    file = data_dir / "owlclaw.db"
    if store_url is None and not file.exists():
        await asyncio.to_thread(create_store, file)
    redactors = TenantRedactors(Redactor)
    store = await open_store(store_url or f"sqlite:///{file}", writer="in-process", redactors=redactors)
    counted = CommitMetrics()
    commits = GroupCommit(store, observer=counted)
    definitions = DefinitionFolder(agents_dir, defaults, Machine(environ))
    vault = SecretVault(store, commits, read_keys(master_keys or new_key()), redactors, clock)
    await vault.learn()
    clients = LoopClients(store, commits, definitions, vault)
    if embedding is not None:
        front = EmbeddingGateway(embedding, clock=clock, retry=RetryPolicy(), jitter=_no_jitter)
        calls = EmbeddingCalls(endpoints=defaults.endpoints)
        embedders = embedders_of(
            embedder,
            lambda request: clients.wait_for(front.embed(request)),
            calls=calls,
            clients=clients,
            clock=clock,
            ids=ids,
        )
    memory = LanceMemory(
        data_dir,
        embedders or FixedEmbedder(None),
        clock,
        home=memory_home(memories, clients, data_dir, clock),
        retention=memory_retention(clients.read, None),
    )
    tokens, price_rules = tokens or EstimatedTokens(), tuple(prices.items())
    gateway = ModelGateway(
        models or [ScriptedClient(clock)], clock=clock, retry=RetryPolicy(), jitter=_no_jitter, prices=price_rules
    )
    tools = declared_tools(app.sources(), host_tools, app.registry.hooks)
    pool = None if mcp is None else await _mcp_pool(mcp, environ, vault, clock, ids)
    executor = tool_executor(
        app,
        clients,
        memory,
        host_tools=host_tools,
        environ=environ,
        artifacts=ArtifactFolder(data_dir),
        agents_dir=agents_dir,
        clock=clock,
        mcp=None if pool is None else LoopServers(pool),
    )
    services, servers = host_services(
        tools,
        models=gateway,
        quotas=TenantTerms(store, clock).quotas,
        runner=LocalTools(executor),
        tokens=tokens,
        limits=model_limits,
        context_windows=tuple(context_windows.items()),
        prices=price_rules,
        has_memories=has_memories(memories, store, data_dir),
        clock=clock,
        mcp=pool,
        approve=approve,
    )
    following = None if servers is None else asyncio.create_task(servers.follow())
    runtime = assemble(
        store=store,
        commits=commits,
        services=services,
        definitions=definitions,
        memory=memory,
        memory_files=memory.files,
        uncounted=uncounted_quotas(memories_in_files=memories is MemoryHomeKind.FILES, artifacts_in_files=True),
        artifacts=ArtifactFolder(data_dir),
        data_dir=data_dir,
        mcp=pool,
        placement=placement or Placement(warm=1),
        ids=ids,
        counted=counted,
        webhook_sources=webhook_sources,
        callbacks=defaults.callbacks,
        callback_secrets=() if callbacks is None else callbacks.secrets,
        scores=scores,
        slots=lambda: gateway.slots,
        secrets=vault,
    )
    if callbacks is not None:
        runtime.callbacks = CallbackDelivery(
            callbacks,
            store=GroupedStore(store, commits),
            sender=HttpCallbackSender(callbacks.seconds, SystemClock()),
            clock=clock,
            ids=ids,
            rules=TenantCallbackRules(defaults.callbacks or CallbackRules(), store),
            weight=TenantTerms(store, clock).weight,
            jitter=_no_jitter,
        )
    clients.directory = runtime.directory
    await runtime.directory.start()
    try:
        yield runtime
    finally:
        await runtime.stop()
        if pool is not None and following is not None:
            following.cancel()
            await asyncio.wait([following])
            await pool.stop()
        if callbacks is not None:
            await runtime.callbacks.stop()
        if embedding is not None or memories is MemoryHomeKind.DATABASE:
            await asyncio.to_thread(memory.settle)
        await commits.close()
        await store.close()
