"""A world in which nothing happens by itself: time, store, models and tools move when a test says so.

The engine, the Directory and the SQL of the store are the real ones. Everything runs in one event loop without threads or
timers, so that what a test does in which order is all that there is to a history.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from msgspec.structs import replace
from sqlalchemy import create_engine, event
from sqlalchemy.pool import StaticPool

from owlclaw_ray.definitions.api import plain_name
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, Isolation, Limits, ModelChoice
from owlclaw_ray.domain.approval import ApprovalDecision, ApprovalStatus, Decision
from owlclaw_ray.domain.budget import Budget, BudgetScope, BudgetUnit
from owlclaw_ray.domain.governance import Governance
from owlclaw_ray.domain.heartbeat import PENDING_EVENTS
from owlclaw_ray.domain.model import ModelReply, ModelRequest
from owlclaw_ray.domain.permission import PermissionPolicy
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.tool import (
    DANGEROUS,
    RECALL,
    Effect,
    Permission,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolOrigin,
    ToolResult,
)
from owlclaw_ray.domain.tool_call import CheckedCall, Stage, ToolInvocation, ToolOutcome, nothing_to_confirm
from owlclaw_ray.domain.trigger import ENQUEUED, Trigger, TriggerKind
from owlclaw_ray.errors import (
    AgentBusyError,
    AlreadyDecidedError,
    IdempotencyConflictError,
    ModelRefusedError,
    ModelUnavailableError,
    NotFoundError,
    QueueFullError,
    StoreUnavailableError,
)
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.models.model_gateway import ModelGateway
from owlclaw_ray.models.tokens import EstimatedTokens
from owlclaw_ray.placement.directory import Directory
from owlclaw_ray.placement.host import AgentHost
from owlclaw_ray.policy.governor import DefinitionGovernor
from owlclaw_ray.runs.catalog import ToolCatalog
from owlclaw_ray.runs.compaction import ContextWindows
from owlclaw_ray.runs.run_loop import RunServices
from owlclaw_ray.store.commands import ActivateAgent, AgentActivated, CancelRun
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.store.group_commit import GroupCommit
from owlclaw_ray.store.queries import AgentsWithWork, ApprovalFilter
from owlclaw_ray.store.sql.databases import _WRITING, _begin, _transact
from owlclaw_ray.store.sql.dialects import Sqlite
from owlclaw_ray.store.sql.schema import metadata
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from owlclaw_ray.testing.in_process import InProcessRuntime, LocalHost, LocalPool, Wire, assemble, isolation_of
from owlclaw_ray.tools.artifacts import ArtifactFolder
from tests.witness import Witness

AGENTS = tuple(AgentRef.parse(name) for name in ("solo", "solo:1", "crew:a", "crew:b", "crew:c"))
PLACEMENT = Placement(warm=1, most=4, agents_per_actor=2, idle=3.0, heartbeat=1.0, sweep=6.0)
REFUSALS = (AgentBusyError, IdempotencyConflictError, NotFoundError, QueueFullError, StoreUnavailableError)
"""What a client may be told."""
_SPINNING = 2_000


async def has_memories(agent):
    return agent.key == "a"


def _tool(name, permission, effect, *tags):
    schema = {"type": "object"}
    return ToolDefinition(name, name, schema, permission, effect, tags=frozenset(tags), origin=ToolOrigin.APPLICATION)


TOOLS = (
    _tool("look", Permission.READONLY, Effect.PURE),
    _tool("probe", Permission.READONLY, Effect.ONCE),
    _tool("put", Permission.WRITE, Effect.IDEMPOTENT),
    _tool("act", Permission.WRITE, Effect.ONCE),
    _tool("risk", Permission.WRITE, Effect.ONCE, DANGEROUS),
    _tool("peek", Permission.READONLY, Effect.PURE, DANGEROUS),
    _tool(RECALL, Permission.READONLY, Effect.PURE),
)


BUDGETS = (
    Budget("crew", BudgetScope.TENANT, BudgetUnit.CALLS, 10**9),
    Budget("puts", BudgetScope.AGENT, BudgetUnit.CALLS, 4, tools=("put",)),
)
"""Of the crew: model calls, more than there are, and calls of one tool, too few."""

WRITES = frozenset(tool.name for tool in TOOLS if tool.permission is Permission.WRITE)


class ExactClock(ManualClock):
    """A ManualClock that lets other tasks run until each of them waits."""

    async def settle(self):
        loop = asyncio.get_running_loop()
        for _ in range(_SPINNING):
            if not loop._ready:
                return
            await asyncio.sleep(0)
        raise AssertionError("some task never waits")


class InlineDatabase:
    """SQLite in memory, each transaction at once and on the event loop."""

    def __init__(self):
        self.dialect = Sqlite()
        self._engine = create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"isolation_level": None, "check_same_thread": False}
        )
        self._writing_engine = self._engine.execution_options(**{_WRITING: True})
        self.engine_dialect = self._engine.dialect
        event.listen(self._engine, "begin", _begin)
        metadata.create_all(self._writing_engine)
        self._connection = self._engine.raw_connection().driver_connection

    def empty(self):
        for table in metadata.tables:
            self._connection.execute(f"DELETE FROM {table}")

    def tables(self, statement):
        return self._connection.execute(statement).fetchall()

    async def write(self, work, *args):
        return _transact(self._writing_engine, work, args)

    async def read(self, work, *args, tenant=None):
        return _transact(self._engine, work, args)

    async def close(self):
        self._engine.dispose()


@dataclass(frozen=True)
class Transaction:
    """One that waits for the test."""

    commands: list
    answer: asyncio.Future


class Fate(Enum):
    """What becomes of a transaction."""

    COMMIT = "commit"
    LOSE_ANSWER = "lose answer"
    """It is committed, and its callers are told that the store is unavailable."""
    REFUSE = "refuse"
    """It is not committed."""
    KILL_AFTER = "kill after"
    """It is committed, and all hosts die before they hear of it."""
    KILL_BEFORE = "kill before"
    DELAY = "delay"
    """It is committed, and the answer comes when the test lets it come."""


DISASTERS = (Fate.LOSE_ANSWER, Fate.REFUSE, Fate.KILL_BEFORE, Fate.KILL_AFTER)


class Gate:
    """A Store that lets transactions through at once while it is open, else one by one when the test says so.

    An ambush waits for the first transaction with a command of its kind.
    """

    def __init__(self, store, node):
        self._store, self._node = store, node
        self.open = True
        self.waiting = []
        self.ambushes = []
        self.answers = asyncio.Event()
        """Set it to let delayed answers come."""
        self.transactions_to_ambush = {}

    def ambush_transaction(self, at, fate):
        """Disturb the transaction that comes after `at` others."""
        self.transactions_to_ambush[self._node.world.witness.transactions + at] = fate

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def apply(self, commands):
        fate = self.transactions_to_ambush.pop(self._node.world.witness.transactions, None)
        if fate is not None:
            return await self._suffer(commands, fate)
        for ambush in self.ambushes:
            kind, fate = ambush
            if any(isinstance(command, kind) for command in commands):
                self.ambushes.remove(ambush)
                return await self._suffer(commands, fate)
        if self.open:
            return await self.pass_through(commands)
        waiting = Transaction(list(commands), asyncio.get_running_loop().create_future())
        self.waiting.append(waiting)
        return await waiting.answer

    async def read(self, query):
        if isinstance(query, AgentsWithWork) and not self.open:
            raise StoreUnavailableError("the gate is closed")
        return await self._store.read(query)

    async def decide(self, fate):
        """Let what waits meet its fate."""
        taken, self.waiting = self.waiting, []
        for each in taken:
            if not each.answer.done():
                try:
                    each.answer.set_result(await self._suffer(each.commands, fate))
                except StoreUnavailableError as error:
                    each.answer.set_exception(error)

    async def pass_through(self, commands):
        return await self._suffer(commands, Fate.COMMIT)

    async def _suffer(self, commands, fate):
        if fate is Fate.KILL_BEFORE:
            await self._node.kill_hosts()
        if fate in {Fate.REFUSE, Fate.KILL_BEFORE}:
            raise StoreUnavailableError("nothing was committed")
        outcomes = await self._store.apply(commands)
        self._node.world.witness.saw(commands, outcomes)
        if fate is Fate.KILL_AFTER:
            await self._node.kill_hosts()
        if fate in {Fate.KILL_AFTER, Fate.LOSE_ANSWER}:
            raise StoreUnavailableError("the answer was lost")
        if fate is Fate.DELAY:
            await self.answers.wait()
        return outcomes


@dataclass(frozen=True)
class PendingModel:
    request: ModelRequest
    answer: asyncio.Future


@dataclass(frozen=True)
class PendingTool:
    invocation: ToolInvocation
    answer: asyncio.Future


class Models:
    """A ModelClient whose calls wait for the test."""

    def __init__(self):
        self.pending = []

    def serves(self, model):
        return True

    async def load(self):
        pass

    async def complete(self, request, model):
        call = PendingModel(request, asyncio.get_running_loop().create_future())
        self.pending.append(call)
        try:
            return await call.answer
        finally:
            self.pending.remove(call)


class Tools:
    """A ToolRunner, of one host, whose calls wait for the test."""

    def __init__(self, world, epochs):
        self._world, self._epochs = world, epochs

    async def run(self, invocation, confirm=nothing_to_confirm):
        world = self._world
        if invocation.stage is Stage.CHECK:
            world.checks += 1
            return ToolOutcome(ToolResult(invocation.call_id), 0, checked=CheckedCall(invocation.arguments, "{}"))
        if invocation.tool not in {RECALL, PENDING_EVENTS}:
            world.witness.calls(self._epochs[invocation.agent], invocation)
        call = PendingTool(invocation, asyncio.get_running_loop().create_future())
        world.tools.append(call)
        try:
            return await call.answer
        finally:
            world.tools.remove(call)


class EpochNotes(Wire):
    """A host's way to the store that remembers under which epochs the host works."""

    def __init__(self, store):
        super().__init__(store)
        self.epochs = {}

    async def apply(self, commands):
        outcomes = await super().apply(commands)
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(command, ActivateAgent) and isinstance(outcome, AgentActivated):
                self.epochs[command.agent] = outcome.epoch
        return outcomes


class Pool(LocalPool):
    """Hosts whose tool calls can be told apart."""

    world: World

    async def spawn(self, node_id):
        host_id, wire = self._ids.make("host"), EpochNotes(self._store)
        services = replace(self._services, tools=Tools(self.world, wire.epochs))
        durable = DurableStore(wire, services.clock)
        host = AgentHost(
            store=durable, runs=self._runs, definitions=self._definitions, services=services, ids=self._ids
        )
        self.hosts[host_id] = LocalHost(host_id, host, wire)
        return self.hosts[host_id]


class Definitions:
    """`solo`, which has an actor to itself, and `crew`, which share; some with memories to preload."""

    def __init__(self, expires=86_400.0):
        self.readable = asyncio.Event()
        self.readable.set()
        limits = Limits(tool_calls=6, turns=5, run_timeout=20.0, model_timeout=8.0, queued_runs=4)
        model = ModelChoice(("test",))
        self._all = {
            name: AgentDefinition(
                name,
                "1",
                "",
                "Be calm.",
                "- look",
                "",
                model,
                limits,
                isolation,
                permissions=PermissionPolicy(expires=expires),
                governance=rules,
            )
            for name, isolation, rules in (
                ("solo", Isolation.DEDICATED, Governance()),
                ("crew", Isolation.SHARED, Governance(budgets=BUDGETS)),
            )
        }

    def have_models(self, *chain):
        self._all = {name: replace(each, model=ModelChoice(chain)) for name, each in self._all.items()}

    def have_approvals_expire_after(self, seconds):
        policy = PermissionPolicy(expires=seconds)
        self._all = {name: replace(each, permissions=policy) for name, each in self._all.items()}

    def have_tool_calls(self, number):
        """Allow a run so many calls, and no more."""
        self._all = {
            name: replace(each, limits=replace(each.limits, tool_calls=number)) for name, each in self._all.items()
        }

    def present(self, _tenant=DEFAULT_TENANT):
        return tuple(self._all)

    async def names(self, tenant=DEFAULT_TENANT):
        return self.present(tenant)

    async def own(self):
        return {}

    def load(self, name):
        return self._all[plain_name(name)]

    async def get(self, name):
        await self.readable.wait()
        return self._all[plain_name(name)]


class Node:
    """A runtime: a Directory, a pool of hosts of its own, a way of its own to the one store."""

    def __init__(self, world, store):
        self.world, self._store = world, store
        self.clients = set()
        self._assemble()

    def _assemble(self):
        world = self.world
        self.gate = Gate(self._store, self)
        commits = GroupCommit(self.gate, linger=0)
        services = RunServices(
            models=ModelGateway(
                [world.models],
                clock=world.clock,
                retry=RetryPolicy(2),
                max_concurrent=world.model_slots,
                jitter=lambda: 0.0,
            ),
            tools=Tools(world, {}),
            catalog=ToolCatalog(TOOLS),
            governor=DefinitionGovernor(TOOLS, world.clock),
            clock=world.clock,
            has_memories=has_memories,
            windows=ContextWindows(EstimatedTokens(), [("*", 10**9)]),
        )
        memory = LanceMemory(Path("/nonexistent"), None, world.clock)
        self.runtime: InProcessRuntime = assemble(
            store=self.gate,
            commits=commits,
            services=services,
            definitions=world.definitions,
            memory=memory,
            memory_files=memory.files,
            artifacts=ArtifactFolder(Path("/nonexistent")),
            data_dir=Path("/nonexistent"),
            placement=world.placement,
            ids=world.ids,
        )
        pool = Pool(services, commits, self.gate, world.definitions, world.ids)
        pool.world = world
        self.runtime.pool = self.runtime.directory._pool = pool

    @property
    def hosts(self):
        return [host for host in self.runtime.pool.hosts.values() if not host.dead]

    async def start(self):
        await self.runtime.directory.start()

    def submit(self, agent, payload, key=None, admission=ENQUEUED):
        trigger = Trigger(TriggerKind.API, payload)
        self._call(self.runtime.submit(agent, trigger, admission, idempotency_key=key, body_hash=str(payload)))

    def cancel(self, run_id):
        self._call(self.runtime.cancel(DEFAULT_TENANT, run_id))

    async def decide(self, pick, decision):
        """Have a person decide about one of the calls that wait."""
        waiting = await self._store.read(ApprovalFilter(DEFAULT_TENANT, status=ApprovalStatus.PENDING))
        if waiting:
            request = waiting[pick % len(waiting)].request
            self._ask(self.runtime.decide(DEFAULT_TENANT, request.approval_id, ApprovalDecision(decision)))

    def expire(self):
        """Have the approvals end whose time is over."""
        self._ask(self.runtime.expiry.tick())

    def _ask(self, request):
        task = asyncio.create_task(request)
        self.clients.add(task)
        task.add_done_callback(self._told)

    def _told(self, task):
        self.clients.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreUnavailableError | AlreadyDecidedError):
            self.world.witness.blame(f"who decides gets {error!r}")

    def _call(self, request):
        task = asyncio.create_task(request)
        self.clients.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task):
        self.clients.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is None:
                self.world.acknowledged.add(task.result().run_id)
            elif not isinstance(error, REFUSALS):
                self.world.witness.blame(f"a client gets {error!r}")

    async def restart_directory(self):
        """End the Directory where it stands; another one starts over the same hosts."""
        self._end_directory()
        runtime, world = self.runtime, self.world
        runtime.directory = runtime._dispatcher.directory = Directory(
            pool=runtime.pool,
            store=self.gate,
            isolation_of=lambda name: isolation_of(world.definitions, name),
            placement=world.placement,
            clock=world.clock,
        )
        await runtime.directory.start()

    def _end_directory(self):
        directory = self.runtime.directory
        directory._closed = True
        for task in tuple(directory._tasks):
            task.cancel()

    async def kill_hosts(self):
        for host in self.hosts:
            await host.crash()

    async def kill(self):
        """End all of it where it stands, and start again over the same store."""
        self._end_directory()
        await self.kill_hosts()
        for client in tuple(self.clients):
            client.cancel()
        for transaction in self.gate.waiting:
            transaction.answer.cancel()
        self._assemble()
        await self.start()

    async def stop(self, grace):
        """Drain as `owlclaw down` does; kill what does not end."""
        draining = asyncio.create_task(self.runtime.directory.stop(grace))
        await self.world.clock.advance(grace + 5)
        draining.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await draining
        await self.kill()


class World:
    """Two nodes over one store, and everything that they depend on."""

    def __init__(self, database, stores, definitions=None, placement=PLACEMENT, model_slots=64):
        database.empty()
        for store in stores:
            store._applier._loader._known_agents.clear()
        self.database = database
        self.clock, self.ids, self.witness = ExactClock(), SequentialIds(), Witness(WRITES)
        self.models, self.tools = Models(), []
        self.checks = 0
        self.definitions, self.placement = definitions or Definitions(), placement
        self.acknowledged, self.model_slots = set(), model_slots
        self.nodes = [Node(self, store) for store in stores]

    def answer_model(self, call, *names):
        """Reply with calls of these tools, or with a text."""
        turn = sum(bool(message.tool_calls) for message in call.request.messages)
        calls = tuple(ToolCall(f"t{turn}-{at}", name, "{}") for at, name in enumerate(names))
        call.answer.set_result(ModelReply("" if names else "done", calls, "test", Usage(10, 5)))

    def fail_model(self, call, error):
        call.answer.set_exception({"unavailable": ModelUnavailableError, "refused": ModelRefusedError}[error](error))

    def end_tool(self, call, error=None, content="done"):
        invocation = call.invocation
        if invocation.tool == RECALL:
            content = {"memories": []}
        failure = ToolError("execution_failed", error) if error else None
        result = ToolResult(invocation.call_id, None if error else content, failure)
        call.answer.set_result(ToolOutcome(result, 1))

    async def cancel_in_the_store(self, run_id):
        """Cancel a run as somebody does who cannot reach its host."""
        await self.nodes[1].gate.pass_through([self.cancellation(run_id)])

    def cancellation(self, run_id):
        return CancelRun(DEFAULT_TENANT, run_id, self.clock.now())

    def agent_of(self, run_id):
        return self.witness.agents[run_id]

    async def answer_all(self, names=()):
        """Answer every model call, with these calls or a text, and end every tool call."""
        for call in tuple(self.models.pending):
            self.answer_model(call, *names)
        for call in tuple(self.tools):
            self.end_tool(call)

    async def end(self):
        """End everything that runs in this event loop, but the caller."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def come_to_rest(self):
        """Heal everything and let it run: return whether no run is left that has not ended."""
        for _ in range(30):
            for node in self.nodes:
                node.gate.open = True
                node.gate.ambushes.clear()
                await node.gate.decide(Fate.COMMIT)
            await self.clock.settle()
            await self.answer_all()
            await self.clock.settle()
            await self.nodes[0].decide(0, Decision.ALLOW_ONCE)
            await self.clock.settle()
            busy = any(node.clients for node in self.nodes) or self.models.pending or self.tools
            if not busy and not self.database.tables(
                "SELECT 1 FROM runs WHERE status IN ('queued', 'running', 'waiting') LIMIT 1"
            ):
                return True
            await self.clock.advance(1.5)
        return False


def new_stores():
    """Return a database and two stores over it, to be used by one world after another."""
    database = InlineDatabase()
    return database, [SqlStore(database, writer) for writer in ("one", "two")]
