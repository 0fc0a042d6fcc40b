"""A runtime in one process, with the agents that the tests of serve/ talk to.

`assistant` looks at a state, remembers and completes at once; `patient` runs until it is cancelled; `broken` has no SOUL.md.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from owlclaw_ray.access.authentication import Authenticator
from owlclaw_ray.access.keys import AccessKeys
from owlclaw_ray.access.sessions import Sessions
from owlclaw_ray.access.sign_in import SignIns
from owlclaw_ray.access.tenants import Tenants
from owlclaw_ray.definitions.api import plain_name
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, AgentState, Limits, ModelChoice
from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalRequest, ApprovalStatus
from owlclaw_ray.domain.artifact import TEXT, Artifact, StoredArtifact
from owlclaw_ray.domain.focus import FocusQuery
from owlclaw_ray.domain.governance import Breaker
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord, LedgerKind, LedgerRecord, NotedHead
from owlclaw_ray.domain.memory import Memory, MemoryStats, MemoryTextVersion, Recall, ScoredMemory, ScoreParts
from owlclaw_ray.domain.node import (
    ClusterView,
    Disk,
    LeaseView,
    NodeClock,
    NodeCondition,
    NodeLoad,
    NodeReport,
    NodeVariable,
    NodeView,
    OtherCluster,
    Slots,
    Versions,
    nodes_called,
)
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.domain.run import Run, RunResult, RunStatus, Usage
from owlclaw_ray.domain.score import Judgement, Score, score_of
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.trigger import ENQUEUED, Admission, BusyPolicy, Trigger
from owlclaw_ray.errors import (
    AgentBusyError,
    AlreadyDecidedError,
    DefinitionError,
    IdempotencyConflictError,
    MemoryChangedError,
    MemoryTextChangedError,
    MemoryTooLargeError,
    MemoryUnavailableError,
    NotFoundError,
    OwlClawError,
    Problem,
    QueueFullError,
    ScoreRefusedError,
    ToolArgumentsError,
    UnknownAgentError,
)
from owlclaw_ray.ids import (
    DEFAULT_TENANT,
    AgentId,
    ApprovalId,
    ArtifactId,
    MemoryId,
    RandomIds,
    RecordId,
    RunId,
    ScheduleId,
    TenantId,
    ToolCallId,
)
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.runs.submissions import Submission
from owlclaw_ray.runtime.api import AgentView, Health, LedgerVerification, Runtime, TriggerRequest
from owlclaw_ray.runtime.tenant_export import TenantExport
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.schedules.firings import ScheduleFirer
from owlclaw_ray.schedules.timetable import Timetable
from owlclaw_ray.secrets.keyring import read_keys
from owlclaw_ray.secrets.vault import SecretVault
from owlclaw_ray.store.commands import RunAccepted, SubmitRun
from owlclaw_ray.store.followers import RunFollower
from owlclaw_ray.store.queries import (
    AgentQueue,
    AgentRecord,
    ApprovalFilter,
    JournalPosition,
    LedgerChain,
    LedgerFilter,
    LedgerPlace,
    LongestQueues,
    RunFilter,
    RunProgress,
    ScheduleById,
)
from owlclaw_ray.store.run_search import RunPage, RunSearch
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.telemetry.metrics.api import MetricFamily, Sample
from owlclaw_ray.tools.arguments import argument_problems
from owlclaw_ray.tools.artifact_home import HeldArtifact
from owlclaw_ray.tools.mcp.api import LeftOut, McpServerView, McpState
from tests.serve.webhook_double import webhooks
from tests.world import InlineDatabase

DEFINITIONS = ("assistant", "broken", "patient")
BROKEN = Problem("agents/broken/SOUL.md", "is missing", "write who the agent is")
ARTIFACT = Artifact(ArtifactId("art_0123456789abcdef0123456789"), TEXT, "很长的结果".encode())
FINAL_TEXT = "一切正常: nothing unusual\u2028 today"


class DefinitionsOfDouble:
    """DEFINITIONS, each with room for three schedules."""

    async def names(self, tenant: TenantId = DEFAULT_TENANT) -> Sequence[str]:
        return DEFINITIONS

    async def own(self) -> dict[TenantId, tuple[str, ...]]:
        return {}

    async def get(self, name: str) -> AgentDefinition:
        name = plain_name(name)
        if name not in DEFINITIONS:
            raise UnknownAgentError(name, DEFINITIONS)
        if name == "broken":
            raise DefinitionError([BROKEN])
        return AgentDefinition(name, "1", "", "", "", "", ModelChoice(("test",)), Limits(active_schedules=3))


class NothingOfTenants:
    """Stands in for the memories and the artifacts of an export: there are none."""

    def agents_of(self, tenant: TenantId) -> Sequence[AgentRef]:
        return ()

    def text(self, agent: AgentRef) -> bytes:
        return b""

    def archive_text(self, agent: AgentRef) -> bytes:
        return b""

    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        return ()


class Signals:
    """A Dispatcher that notes who was woken, and which runs were told to end."""

    def __init__(self) -> None:
        self.woken: list[AgentRef] = []
        self.told: list[RunId] = []

    async def wake(self, agents: Sequence[AgentRef]) -> None:
        self.woken += agents

    async def cancel(self, agent: AgentRef, run_id: RunId) -> None:
        self.told.append(run_id)


PARTS = ScoreParts(words=0.5, meaning=0.0, word_share=1.0, neighbours=0.0, bm25=2.5, cosine=None)


class MemoriesInMemory:
    """Stands in for AgentMemories with lists; a query finds what contains it."""

    def __init__(self, clock: Clock, known: Callable[[AgentRef], None]) -> None:
        self._clock, self._known = clock, known
        self.active: dict[AgentRef, list[Memory]] = {}
        self.archive_of: dict[AgentRef, list[Memory]] = {}
        self.texts: dict[AgentRef, bytes] = {}
        """MEMORY.md of each."""
        self.archive_texts: dict[AgentRef, bytes] = {}
        self.broken = ""
        """Why the files cannot be used."""
        self.degraded = ""
        self.by: list[str] = []
        """Who had each change made."""

    async def memories(self, agent: AgentRef, *, archived: bool = False) -> Sequence[Memory]:
        return tuple(self._of(agent, archived=archived))

    async def memory(self, agent: AgentRef, memory_id: MemoryId) -> Memory:
        for each in (*self._of(agent), *self._of(agent, archived=True)):
            if each.memory_id == memory_id:
                return each
        raise NotFoundError("memory", memory_id)

    async def search(
        self, agent: AgentRef, query: str, limit: int, tags: Sequence[str] = (), *, archived: bool = False
    ) -> Recall:
        among = [each for each in self._of(agent, archived=archived) if set(tags) <= set(each.tags)]
        found = [ScoredMemory(each, PARTS) for each in among if query in each.content]
        return Recall(tuple(found[:limit]), bool(self.degraded), self.degraded)

    async def remember(
        self,
        agent: AgentRef,
        content: str,
        tags: Sequence[str] = (),
        *,
        by: str = "",
        idempotency_key: str | None = None,
    ) -> Memory:
        memories = self._of(agent)
        self.by.append(by)
        memory = Memory(MemoryId(f"mem_{idempotency_key or len(memories)}"), content, tuple(tags), self._clock.now())
        earlier = next((each for each in memories if each.memory_id == memory.memory_id), None)
        if earlier is None:
            memories.append(memory)
        return earlier or memory

    async def edit(
        self,
        agent: AgentRef,
        memory_id: MemoryId,
        content: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        by: str = "",
        old_content: str | None = None,
        old_tags: Sequence[str] | None = None,
    ) -> Memory:
        self.by.append(by)
        before = await self.memory(agent, memory_id)
        if old_content not in {None, before.content} or (old_tags is not None and tuple(old_tags) != before.tags):
            raise MemoryChangedError(memory_id, ["content"])
        after = replace(
            before,
            content=before.content if content is None else content,
            tags=before.tags if tags is None else tuple(tags),
        )
        memories = self._of(agent)
        memories[memories.index(before)] = after
        return after

    async def delete(self, agent: AgentRef, memory_id: MemoryId, *, by: str = "") -> Memory:
        self.by.append(by)
        memory = await self.memory(agent, memory_id)
        for memories in (self._of(agent), self._of(agent, archived=True)):
            if memory in memories:
                memories.remove(memory)
        return memory

    async def archive(self, agent: AgentRef, memory_ids: Collection[MemoryId], *, by: str = "") -> Sequence[Memory]:
        self.by.append(by)
        memories = self._of(agent)
        moved = [each for each in memories if each.memory_id in memory_ids]
        memories[:] = [each for each in memories if each not in moved]
        self._of(agent, archived=True).extend(moved)
        return moved

    async def reindex(self, agent: AgentRef, *, by: str = "") -> int:
        self.by.append(by)
        return len(self._of(agent))

    async def text(self, agent: AgentRef) -> bytes:
        self._of(agent)
        return self.texts.get(agent, b"")

    async def put_text(
        self, agent: AgentRef, text: bytes, base: MemoryTextVersion | None = None, *, by: str = ""
    ) -> Sequence[Memory]:
        self.by.append(by)
        now = await self.text(agent)
        if len(text) > 5_000:
            raise MemoryTooLargeError(len(text), 5_000)
        if base is not None and not base.begins(now):
            raise MemoryTextChangedError
        self.texts[agent] = text if base is None else text + now[base.size :]
        return [each for each in self._of(agent) if base is None and each.content.encode() not in text]

    async def archive_text(self, agent: AgentRef) -> bytes:
        self._of(agent)
        return self.archive_texts.get(agent, b"")

    async def put_archive_text(self, agent: AgentRef, text: bytes, *, by: str = "") -> Sequence[MemoryId]:
        self.by.append(by)
        self.archive_texts[agent] = await self.archive_text(agent) + text
        return [MemoryId("mem_9")]

    async def stats(self, agent: AgentRef) -> MemoryStats:
        memories = self._of(agent)
        times = [each.created_at for each in memories]
        problem = Problem("MEMORY.md:12", "the time is none", "write it as 2026-11-03T09:30:01+00:00")
        oldest, newest = min(times, default=None), max(times, default=None)
        archived = len(self._of(agent, archived=True))
        return MemoryStats(len(memories), archived, 310, 90, 1_100, oldest, newest, (problem,))

    def _of(self, agent: AgentRef, *, archived: bool = False) -> list[Memory]:
        self._known(agent)
        if self.broken:
            raise MemoryUnavailableError(self.broken)
        return (self.archive_of if archived else self.active).setdefault(agent, [])


class Submitting:
    """What the inbox does with triggers, over the runtime in dictionaries."""

    def __init__(self, runtime: MemoryRuntime) -> None:
        self._runtime = runtime

    async def prepare(self, agent: AgentRef, trigger: Trigger, admission: Admission) -> Submission:
        accepted = await self._runtime.submit(agent, trigger, admission)
        return Submission(SubmitRun(accepted.run_id, agent, trigger, datetime(2026, 11, 3, tzinfo=UTC)), scripted=True)


_DATABASE = InlineDatabase()
"""Of one runtime after another: tables take longer to make than to empty."""


def node_view(name: str = "alpha", **changes: object) -> NodeView:
    """A node that has everything, with these things changed: of the view, or else of its report or load."""
    load = NodeLoad(2, 5, 1, 0.4, 0.001, "", {"tool_slots": 12, "quick_slots": 0})
    report = NodeReport(
        versions=Versions("3.11.9", "2.60.0", "1.0.0", "Linux x86_64"),
        memory=32 * 10**9,
        data_dir=Disk("/srv/shop/.owlclaw", 90 * 10**9, 120 * 10**9),
        ray_dir=Disk("/var/lib/ray", 90 * 10**9, 120 * 10**9),
        load=replace(load, **{key: changes.pop(key) for key in {*load.__struct_fields__} & changes.keys()}),
        variables=(NodeVariable("RAY_AUTH_MODE", "token"), NodeVariable("RAY_AUTH_TOKEN", "hash 1")),
        application="9c1e",
        shared_files=False,
        folder_mark="77d0",
    )
    report = replace(report, **{key: changes.pop(key) for key in {*report.__struct_fields__} & changes.keys()})
    view = NodeView(
        node_id=f"id-of-{name}",
        name=name,
        address="10.0.0.1",
        head=name == "alpha",
        state=NodeCondition.ACTIVE,
        problem="",
        cpus=4.0,
        slots=tuple(Slots(each, 4.0, 3.0) for each in ("tool_slots", "quick_slots", "memory_slots", "state_slots")),
        parts=("root", "keeper", "gateway"),
        clock=NodeClock(0.001, 0.0005),
        report=report,
    )
    return replace(view, **changes)


LOST = {"state": NodeCondition.LOST, "problem": "missed heartbeats", "report": None, "clock": None, "parts": ()}
WEST = OtherCluster("west", ("omega",), "0.0.9", "0015", "2026-11-20T10:00:00+00:00")
CLUSTER = ClusterView(
    (node_view(), node_view("beta", **LOST)),
    LeaseView("east", held=True, generation=3, holder="", others=(WEST,)),
    missing=("directory", "scheduler"),
)


class MemoryRuntime(Runtime):
    """Keeps everything in dictionaries of one event loop, but for schedules, which a real store has."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ids = RandomIds()
        self._runs: dict[RunId, Run] = {}
        self._accepted = 0
        self._journals: dict[RunId, list[JournalEntry]] = {}
        self._keys: dict[tuple[AgentRef, str], tuple[str, RunAccepted]] = {}
        self.memory = MemoriesInMemory(clock, self._known)
        self._ledger: list[ChainedRecord] = []
        self._approvals: dict[ApprovalId, Approval] = {}
        self._followers: list[RunFollower] = []
        _DATABASE.empty()
        self.schedules = self._store = SqlStore(_DATABASE, "double")
        keys = base64.urlsafe_b64encode(b"k" * 32).decode()
        redactors = TenantRedactors(Redactor)
        self.secrets = SecretVault(self.schedules, self.schedules, read_keys(keys), redactors, clock)
        self.signals = Signals()
        self.timetable = Timetable(
            store=self.schedules,
            dispatcher=self.signals,
            definitions=DefinitionsOfDouble(),
            clock=clock,
            ids=self._ids,
        )
        self.firings = ScheduleFirer(
            store=self.schedules,
            wake=self.signals.wake,
            cancel=self.signals.cancel,
            definitions=DefinitionsOfDouble(),
            clock=clock,
        )
        self.authenticator = Authenticator(self.schedules, clock, self._ids)
        self.sessions = Sessions(self.schedules, self.authenticator, clock, self._ids)
        self.sign_ins = SignIns((), None, tokens=None, sessions=self.sessions, clock=clock)
        self.keys = AccessKeys(self.schedules, clock, self._ids, made=self.authenticator.close)
        self.tenants = Tenants(self.schedules, clock, self._ids, made=self.authenticator.close)
        nothing = NothingOfTenants()
        self.tenant_export = TenantExport(
            tenants=self.tenants,
            store=self.schedules,
            memories=nothing,
            artifacts=nothing,
            definitions=DefinitionsOfDouble(),
            clock=clock,
        )
        self._stored = {(AgentRef.parse("assistant"), ARTIFACT.artifact_id): ARTIFACT}
        self.reloaded: list[AgentRef] = []
        self.refusal: OwlClawError | None = None
        self.admissions: list[Admission] = []
        self.full_at: int | None = None
        """The limit of every queue, if they are full."""
        self.merging_into: RunId | None = None
        """The run that triggers with the policy COALESCE join."""
        self.breaks: tuple[ChainBreak, ...] = ()
        """What is wrong with the ledger."""
        self.waits_for: tuple[str, ...] = ()
        """The approvals that every run of `assistant` waits for on its way."""
        self.outcomes: tuple[str, ...] = ("completed: 一切正常",)
        self.breakers: dict[AgentRef, tuple[Breaker, ...]] = {}
        """Of every agent's last runs."""
        self.inbox, self.outbox = webhooks(clock, Submitting(self))
        self.healthy = Health(ready=True, parts={"store": "ok", "directory": "ok"})
        self.cluster = CLUSTER
        self.drained: set[str] = set()
        self.defined: dict[str, AgentDefinition] = {}
        """Definitions that say more than those of DefinitionsOfDouble, by name."""
        self.texts: dict[RunId, dict[str, str]] = {}
        """What each run's prompt names by its hashes."""

    async def ring(self, tenant: TenantId, schedule_id: ScheduleId) -> Alarm:
        if await self.schedules.read(ScheduleById(tenant, schedule_id)) is None:
            return Alarm(schedule_id, None)
        (alarm,) = await self.firings.ring([schedule_id])
        return alarm

    async def submit(
        self,
        agent: AgentRef,
        trigger: Trigger,
        admission: Admission = ENQUEUED,
        *,
        idempotency_key: str | None = None,
        body_hash: str = "",
    ) -> RunAccepted:
        self._known(agent)
        if agent.definition == "broken":
            raise DefinitionError([BROKEN])
        if idempotency_key is not None and (agent, idempotency_key) in self._keys:
            known_hash, accepted = self._keys[agent, idempotency_key]
            if known_hash != body_hash:
                raise IdempotencyConflictError(idempotency_key)
            return replace(accepted, duplicate=True)
        now, running = self._clock.now(), (await self.agent(agent)).record
        busy_with = running.running_run if running else None
        self.admissions.append(admission)
        if self.refusal is not None:
            raise self.refusal
        if self.full_at is not None:
            raise QueueFullError(agent.agent_id, self.full_at)
        if busy_with is not None and admission.busy is BusyPolicy.REJECT:
            raise AgentBusyError(agent.agent_id, busy_with)
        merged = self.merging_into if admission.busy is BusyPolicy.COALESCE else None
        if merged is not None:
            return RunAccepted(merged, self._runs[merged].seq, agent, scripted=True, merged=True)
        run_id = RunId(self._ids.make("run"))
        self._accepted += 1
        interrupted = busy_with if admission.busy is BusyPolicy.INTERRUPT else None
        accepted = RunAccepted(run_id, self._accepted, agent, scripted=True, interrupted=interrupted)
        deadline = None if admission.deadline is None else now + timedelta(seconds=admission.deadline)
        self._runs[run_id] = Run(
            run_id,
            accepted.seq,
            agent,
            trigger,
            RunStatus.QUEUED,
            now,
            priority=admission.priority,
            deadline=deadline,
        )
        self._journals[run_id] = []
        if idempotency_key is not None:
            self._keys[agent, idempotency_key] = (body_hash, accepted)
        await self._append(run_id, EntryKind.RUN_QUEUED, {"trigger": trigger.kind.value, "focus": trigger.focus})
        if agent.definition == "assistant":
            await self._play(run_id)
        else:
            await self._start(run_id)
        return accepted

    async def submit_all(self, requests: Sequence[TriggerRequest]) -> Sequence[RunAccepted | OwlClawError]:
        return [await self._submitted(each) for each in requests]

    async def _submitted(self, request: TriggerRequest) -> RunAccepted | OwlClawError:
        key, hashed = request.idempotency_key, request.body_hash
        try:
            return await self.submit(
                request.agent, request.trigger, request.admission, idempotency_key=key, body_hash=hashed
            )
        except OwlClawError as error:
            return error

    async def run(self, tenant: TenantId, run_id: RunId) -> Run:
        if run_id not in self._runs:
            raise NotFoundError("run", run_id)
        return self._runs[run_id]

    async def runs(self, where: RunFilter) -> Sequence[Run]:
        found = [
            run
            for run in reversed(self._runs.values())
            if (where.agent is None or run.agent == where.agent)
            and (where.status is None or run.status is where.status)
            and (where.before_seq is None or run.seq < where.before_seq)
        ]
        return found[: where.limit]

    async def search_runs(self, where: RunSearch) -> RunPage:
        query = None if where.text is None else FocusQuery.of(where.text)
        found = [
            run
            for run in reversed(self._runs.values())
            if (where.agent is None or run.agent == where.agent)
            and (where.definition is None or run.agent.definition == where.definition)
            and (where.status is None or run.status is where.status)
            and not (where.open and run.status.final)
            and (where.kind is None or run.trigger.kind is where.kind)
            and (where.since is None or run.created_at >= where.since)
            and (where.until is None or run.created_at < where.until)
            and (query is None or query.matches(run.trigger.focus))
            and (where.before_seq is None or run.seq < where.before_seq)
            and (where.after_seq is None or run.seq > where.after_seq)
        ]
        page = found[: where.limit]
        return RunPage(page, page[-1].run_id if len(found) > len(page) else None)

    @asynccontextmanager
    async def follow(self, tenant: TenantId, run_id: RunId, after: int = 0) -> AsyncIterator[RunFollower]:
        follower = RunFollower(JournalPosition(tenant, run_id, after), self._watched)
        self._followers.append(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)

    async def watch(self, tenant: TenantId, run_id: RunId, after: int, seconds: float) -> RunProgress:
        async with self.follow(tenant, run_id, after) as follower:
            return await follower.next(seconds)

    async def journal(
        self, tenant: TenantId, run_id: RunId, before: int | None = None, limit: int = 200
    ) -> Sequence[JournalEntry]:
        found = self._journals.get(run_id, []) if tenant == DEFAULT_TENANT else []
        return [each for each in found if before is None or each.seq < before][-limit:]

    async def entries_of(
        self, tenant: TenantId, run_id: RunId, kinds: tuple[EntryKind, ...], after: int = 0, limit: int = 1_000
    ) -> Sequence[JournalEntry]:
        found = await self.journal(tenant, run_id, None, 1_000_000)
        return [each for each in found if each.kind in kinds and each.seq > after][:limit]

    @property
    def followers(self) -> int:
        return len(self._followers)

    def tell_followers(self) -> None:
        for follower in self._followers:
            follower.news()

    async def _watched(self, position: JournalPosition) -> RunProgress | None:
        if position.run_id not in self._runs:
            return None
        return RunProgress(tuple(self._journals[position.run_id][position.after :]), self._runs[position.run_id].status)

    async def cancel(self, tenant: TenantId, run_id: RunId, by: str = "") -> Run:
        run = await self.run(tenant, run_id)
        if run.status.final or run.cancel_requested:
            return run
        requested = self._runs[run_id] = replace(run, cancel_requested=True)
        await self._append(run_id, EntryKind.CANCEL_REQUESTED, {})
        await self._finish(run_id, RunResult(RunStatus.CANCELLED))
        return requested

    async def score(self, tenant: TenantId, run_id: RunId, judgement: Judgement, by: str = "") -> Score:
        if judgement.name == "refused":
            raise ScoreRefusedError("nobody keeps it")
        return score_of(await self.run(tenant, run_id), judgement)

    async def agents(
        self,
        tenant: TenantId,
        after: str = "",
        limit: int = 1_000,
        *,
        prefix: str = "",
        busy: bool = False,
        with_open_breaker: bool = False,
    ) -> Sequence[AgentView]:
        triggered = {run.agent for run in self._runs.values() if run.agent.definition in DEFINITIONS}
        refs = {AgentRef.parse(name) for name in DEFINITIONS} | triggered
        if busy:
            refs = {run.agent for run in self._runs.values() if run.agent in triggered and not run.status.final}
        if with_open_breaker:
            refs &= {ref for ref, breakers in self.breakers.items() if any(each.open_until for each in breakers)}
        found = sorted(
            (ref for ref in refs if ref.agent_id > after and ref.agent_id.startswith(prefix)),
            key=lambda ref: ref.agent_id,
        )
        return [await self.agent(ref) for ref in found[:limit]]

    async def longest_queues(self, where: LongestQueues) -> Sequence[AgentQueue]:
        queued: dict[AgentRef, list[Run]] = {}
        for run in self._runs.values():
            if run.status is RunStatus.QUEUED and run.agent.tenant == where.tenant:
                queued.setdefault(run.agent, []).append(run)
        found = [AgentQueue(runs[0], len(runs)) for runs in queued.values()]
        return sorted(found, key=lambda each: (-each.length, each.oldest.seq))[: where.limit]

    async def definition_names(self, tenant: TenantId) -> Sequence[str]:
        return [*DEFINITIONS]

    async def agents_called(self, tenant: TenantId, agent_ids: Sequence[AgentId]) -> Sequence[AgentView]:
        async def view(ref: AgentRef) -> AgentView:
            try:
                return await self.agent(ref)
            except UnknownAgentError as error:
                return AgentView(ref, None, "", scripted=False, isolation="", warnings=(), problem=str(error))

        return [await view(AgentRef(tenant, each)) for each in agent_ids]

    async def agent(self, agent: AgentRef) -> AgentView:
        self._known(agent)
        broken = agent.definition == "broken"
        runs = [run for run in self._runs.values() if run.agent == agent]
        begun = next((run for run in runs if run.status in {RunStatus.RUNNING, RunStatus.WAITING}), None)
        running, status = (begun.run_id, begun.status) if begun else (None, None)
        state = AgentState(recent_outcomes=self.outcomes, runs=len(runs), breakers=self.breakers.get(agent, ()))
        record = AgentRecord(agent, 1, None, state, runs[0].created_at, 0, running, status) if runs else None
        return AgentView(
            agent, record, "" if broken else "scripted:demo", not broken, "dedicated", (), str(BROKEN) if broken else ""
        )

    async def definition(self, agent: AgentRef) -> AgentDefinition:
        self._known(agent)
        return self.defined.get(agent.definition) or await DefinitionsOfDouble().get(agent.definition)

    async def prompt_texts(self, tenant: TenantId, run_id: RunId) -> Mapping[str, str]:
        return self.texts.get(run_id, {})

    async def skills(self, agent: AgentRef) -> Sequence[Skill]:
        self._known(agent)
        if agent.definition == "broken":
            raise DefinitionError([BROKEN])
        return [
            Skill("巡检", "怎么看负载", "/巡检/SKILL.md", 20, triggers=("api",), daily_calls=2),
            Skill("scan", "How to scan.", "/scan/SKILL.md", 30, unmet="there is no program rg on the PATH"),
        ]

    async def reload(self, agent: AgentRef) -> AgentView:
        await self.skills(agent)
        self.reloaded.append(agent)
        return await self.agent(agent)

    async def artifacts(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        self._known(agent)
        at = datetime(2026, 11, 4, 1, tzinfo=UTC)
        found = [each for (owner, _), each in self._stored.items() if owner == agent]
        return [StoredArtifact(each.artifact_id, each.media_type, len(each.content), at) for each in found][:limit]

    async def artifact(self, agent: AgentRef, artifact_id: ArtifactId) -> HeldArtifact:
        self._known(agent)
        found = self._stored.get((agent, artifact_id))
        if found is None:
            raise NotFoundError("artifact", artifact_id)
        return HeldArtifact(found)

    async def nodes(self) -> ClusterView:
        return replace(self.cluster, nodes=tuple(self._as_drained(each) for each in self.cluster.nodes))

    def _as_drained(self, node: NodeView) -> NodeView:
        drained = node.node_id in self.drained and node.state is NodeCondition.ACTIVE
        return replace(node, state=NodeCondition.DRAINING) if drained else node

    async def callback_secrets(self, by: Principal) -> Sequence[str]:
        return self.outbox.secrets(by.tenant)

    async def export(self, tenant: TenantId, by: Principal) -> AsyncIterator[bytes]:
        return await self.tenant_export.begin(tenant)

    async def drain(self, node: str, by: str = "") -> ClusterView:
        self.drained |= {each.node_id for each in nodes_called(self.cluster, node)}
        return await self._called(node)

    async def undrain(self, node: str, by: str = "") -> ClusterView:
        self.drained -= {each.node_id for each in nodes_called(self.cluster, node)}
        return await self._called(node)

    async def _called(self, node: str) -> ClusterView:
        return ClusterView(nodes_called(await self.nodes(), node), self.cluster.lease)

    async def mcp_servers(self) -> Sequence[McpServerView]:
        at = datetime(2026, 11, 3, 9, tzinfo=UTC)
        left_out = (LeftOut("move", "its schema has oneOf"),)
        return (
            McpServerView("files", "stdio", "npx", McpState.UP, at, "", 1, 14, 0, ("mcp.files.read",), left_out),
            McpServerView(
                "web",
                "http",
                "https://example.com/mcp",
                McpState.DOWN,
                at,
                "ConnectError: refused",
                3,
                tenants=(TenantId("acme"),),
            ),
        )

    async def ledger(self, where: LedgerFilter) -> Sequence[ChainedRecord]:
        found = [
            chained
            for chained in self._ledger
            if (where.agent is None or chained.record.agent_id == where.agent.agent_id)
            and (where.run_id is None or chained.record.run_id == where.run_id)
            and (where.kind is None or chained.record.kind is where.kind)
            and (where.tool is None or chained.record.data.get("tool") == where.tool)
            and (where.since is None or chained.record.at >= where.since)
            and (where.until is None or chained.record.at < where.until)
            and (
                where.after is None
                or (
                    LedgerPlace.of(chained) < where.after
                    if where.newest_first
                    else LedgerPlace.of(chained) > where.after
                )
            )
        ]
        return (found[::-1] if where.newest_first else found)[: where.limit]

    async def ledger_chains(self, tenant: TenantId) -> Sequence[LedgerChain]:
        return [LedgerChain("test", len(self._ledger), "1" * 64)]

    async def verify_ledger(self, tenant: TenantId, since: Sequence[NotedHead] = ()) -> LedgerVerification:
        self.since = list(since)
        return LedgerVerification((LedgerChain("test", len(self._ledger), "1"),), self.breaks, len(since))

    def request_approval(self, agent: str = "assistant", **fields: object) -> Approval:
        """Have a call of an agent wait for a decision."""
        number, now = len(self._approvals) + 1, self._clock.now()
        request = ApprovalRequest(
            ApprovalId(f"apr_{number}"),
            AgentRef.parse(agent),
            RunId(f"run_{number}"),
            ToolCallId("c1"),
            "mail.send",
            "Send a mail.",
            "write",
            ("dangerous",),
            "dangerous tools ask",
            {"to": "张三", "text": "行情\u2028"},
            '{"to":"李四"}',
            {"type": "object", "properties": {"to": {"type": "string"}, "text": {"type": "string"}}},
            '{"to":"张三"}',
            now,
            now + timedelta(hours=24),
            "/work",
            ({"hook": "app.check", "stage": "before", "verdict": "changed"},),
            "agent",
            "run_0",
        )
        approval = Approval(replace(request, **fields))
        self._approvals[approval.request.approval_id] = approval
        return approval

    async def approvals(self, where: ApprovalFilter) -> Sequence[Approval]:
        def place(approval: Approval) -> tuple[datetime, str]:
            request = approval.request
            return request.expires_at if where.expiring else request.requested_at, request.approval_id

        ordered = sorted(self._approvals.values(), key=place, reverse=not where.expiring)
        behind = None if where.after is None else (where.after.at, where.after.id)
        found = [
            approval
            for approval in ordered
            if (where.agent is None or approval.request.agent == where.agent)
            and (where.run_id is None or approval.request.run_id == where.run_id)
            and (where.status is None or approval.status is where.status)
            and not (where.expiring and approval.status is not ApprovalStatus.PENDING)
            and (behind is None or (place(approval) > behind if where.expiring else place(approval) < behind))
        ]
        return found[: where.limit]

    async def pending_approvals(self, tenant: TenantId, limit: int) -> Mapping[AgentRef, int]:
        pending = [each for each in self._approvals.values() if each.status is ApprovalStatus.PENDING]
        return Counter(each.request.agent for each in pending[:limit])

    async def approval(self, tenant: TenantId, approval_id: ApprovalId) -> Approval:
        if approval_id not in self._approvals:
            raise NotFoundError("approval", approval_id)
        return self._approvals[approval_id]

    async def decide(self, tenant: TenantId, approval_id: ApprovalId, decision: ApprovalDecision) -> Approval:
        approval = await self.approval(tenant, approval_id)
        problems = argument_problems(approval.request.input_schema, decision.arguments or {})
        if problems:
            raise ToolArgumentsError(approval.request.tool, problems)
        if approval.status is ApprovalStatus.PENDING and decision.allows and approval.request.needed > 1:
            approval = self._approvals[approval_id] = approval.allowed(decision, self._clock.now())
            return approval
        if approval.status is ApprovalStatus.PENDING:
            status = ApprovalStatus.ALLOWED if decision.allows else ApprovalStatus.DENIED
            approval = replace(approval, status=status, decision=decision, decided_at=self._clock.now())
            self._approvals[approval_id] = approval
        if approval.decision != decision:
            raise AlreadyDecidedError(approval_id, approval.status.value)
        return approval

    async def metrics(self) -> Sequence[MetricFamily]:
        return [MetricFamily("owlclaw_runs", "gauge", "Runs", (Sample("owlclaw_runs", (("status", "queued"),), 3.0),))]

    async def health(self) -> Health:
        return self.healthy

    def _known(self, agent: AgentRef) -> None:
        if agent.definition not in DEFINITIONS:
            raise UnknownAgentError(agent.agent_id, DEFINITIONS)

    async def _start(self, run_id: RunId) -> None:
        self._runs[run_id] = replace(self._runs[run_id], status=RunStatus.RUNNING, started_at=self._clock.now())
        await self._append(run_id, EntryKind.RUN_STARTED, {"epoch": 1})

    async def _play(self, run_id: RunId) -> None:
        run = self._runs[run_id]
        await self._start(run_id)
        model = {"model": "scripted:demo", "scripted": True}
        prompt = {"system": "h1", "tools": "h2", "user": "…", **model, "visible": ["query_state"], "memories": 0}
        calls = [
            {"id": "c1", "name": "query_state", "arguments": '{"state_name": "负载"}'},
            {"id": "c2", "name": "recall", "arguments": "{}"},
        ]
        usage = {"prompt_tokens": 20, "completion_tokens": 5, "cached_tokens": 0, "cost": 0.0}
        reply = {"text": "Let me look.", "tool_calls": calls, **model, "usage": usage, "duration_ms": 2}
        found = {"call_id": "c1", "tool": "query_state", "arguments": calls[0]["arguments"], "duration_ms": 3}
        failed = {"call_id": "c2", "tool": "recall", "arguments": "{}", "duration_ms": 1}
        error = {"type": "invalid_arguments", "message": "query: is missing", "retryable": False, "details": None}
        await self._append(run_id, EntryKind.PROMPT_BUILT, prompt)
        await self._append(run_id, EntryKind.MODEL_REPLIED, reply)
        await self._append(run_id, EntryKind.TOOL_FINISHED, {**found, "content": {"state": {"load": 0.5}}})
        await self._append(run_id, EntryKind.TOOL_FINISHED, {**failed, "error": error})
        if self.waits_for:
            await self._append(run_id, EntryKind.RUN_WAITING, {"approvals": [*self.waits_for]})
        await self._append(run_id, EntryKind.MODEL_REPLIED, {**reply, "text": FINAL_TEXT, "tool_calls": []})
        memory = Memory(MemoryId("mem_1"), "机器很闲", ("load",), self._clock.now(), run_id)
        self.memory.active.setdefault(run.agent, []).append(memory)
        record = LedgerRecord(
            RecordId(f"rec_{len(self._ledger) + 1}"),
            run.agent.tenant,
            run.agent.agent_id,
            run_id,
            LedgerKind.DECISION,
            self._clock.now(),
            {"reasoning": "负载低", "decision_type": "no_action"},
        )
        self._ledger.append(ChainedRecord(record, "test", len(self._ledger) + 1, "0", "1"))
        result = RunResult(
            RunStatus.COMPLETED, 2, 2, FINAL_TEXT, ("query_state", "recall"), 7, Usage(40, 10), "scripted:demo", True
        )
        await self._finish(run_id, result)

    async def _finish(self, run_id: RunId, result: RunResult) -> None:
        now = self._clock.now()
        self._runs[run_id] = replace(self._runs[run_id], status=result.status, finished_at=now, result=result)
        data = {
            "status": result.status.value,
            "final_text": result.final_text,
            "error": None,
            "turns": result.turns,
            "tool_calls": result.tool_calls,
            "duration_ms": result.duration_ms,
            "usage": {"prompt_tokens": 40, "completion_tokens": 10, "cached_tokens": 0, "cost": 0.0},
        }
        await self._append(run_id, EntryKind.RUN_FINISHED, data)

    async def _append(self, run_id: RunId, kind: EntryKind, data: JsonObject) -> None:
        journal = self._journals[run_id]
        journal.append(JournalEntry(len(journal) + 1, kind, self._clock.now(), data))
        self.tell_followers()
