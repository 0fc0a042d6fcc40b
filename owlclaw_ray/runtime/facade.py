"""The runtime as its users see it, over whatever it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from owlclaw_ray.definitions.api import NamedDefinitions
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalStatus
from owlclaw_ray.domain.artifact import Artifact, StoredArtifact
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import ChainedRecord, NotedHead, NotedHeads
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.score import Judgement, Score, score_of
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.trigger import ENQUEUED, Admission, Trigger
from owlclaw_ray.domain.webhook import WebhookSource
from owlclaw_ray.errors import (
    AlreadyDecidedError,
    DefinitionError,
    NotFoundError,
    OwlClawError,
    ScoreRefusedError,
    StoreUnavailableError,
    ToolArgumentsError,
    UnknownAgentError,
)
from owlclaw_ray.ids import AgentId, ApprovalId, ArtifactId, IdSource, RunId, ScheduleId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.memory.api import MemoryFiles
from owlclaw_ray.memory.memory_ledger import MemoryLedger
from owlclaw_ray.memory.runtime_api import IndexedMemory
from owlclaw_ray.memory.runtime_memory import AgentMemories
from owlclaw_ray.runs.submissions import Dispatcher, Submission, Submissions, is_scripted
from owlclaw_ray.runtime.api import AgentView, Follower, Health, LedgerVerification, TriggerRequest
from owlclaw_ray.schedules.api import Alarm, Timetable
from owlclaw_ray.store.api import QueryStore, Store
from owlclaw_ray.store.commands import (
    ApprovalClosed,
    ApprovalSettled,
    CancelOutcome,
    CancelRun,
    DecideApproval,
    NoSuchApproval,
    RunAccepted,
)
from owlclaw_ray.store.followers import FollowerRegistry
from owlclaw_ray.store.queries import (
    AgentByRef,
    AgentPage,
    AgentRecord,
    ApprovalById,
    ApprovalFilter,
    LedgerBreaks,
    LedgerChain,
    LedgerChains,
    LedgerFilter,
    MissingLedgerGuards,
    RunById,
    RunFilter,
    RunProgress,
    ScheduleById,
)
from owlclaw_ray.telemetry.metrics.api import MetricFamily, Metrics
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.mcp.api import McpNode, McpServerView
from owlclaw_ray.webhooks.inbox import WebhookInbox
from owlclaw_ray.webhooks.outbox import WebhookOutbox


async def refuse_score(score: Score) -> None:
    """Refuse a score where traces go to nobody who keeps any."""
    raise ScoreRefusedError(
        f"the score {score.judgement.name!r} is kept by nobody: only Langfuse keeps scores, and traces do not go there; set "
        "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"
    )


async def verified_ledger(store: QueryStore, tenant: TenantId, noted: NotedHeads) -> LedgerVerification:
    """Follow all chains of the tenant, and compare them with the heads of it that were noted outside the store."""
    heads = [head for head in noted.heads if head.tenant == tenant]
    chains = await store.read(LedgerChains(tenant))
    breaks = await store.read(LedgerBreaks(tenant, heads))
    missing = await store.read(MissingLedgerGuards())
    return LedgerVerification(tuple(chains), tuple(breaks), len(heads), noted.problems, tuple(missing))


_CHECK_SECONDS = 5.0
"""How long the check of edited arguments may take."""


class RuntimeFacade:
    """Implements `Runtime`. Without `callbacks`, the rules of where they may go, nobody can be told of a run's end."""

    def __init__(
        self,
        *,
        store: Store,
        following: FollowerRegistry,
        dispatcher: Dispatcher,
        definitions: NamedDefinitions,
        memory_files: MemoryFiles,
        indexed_memory: IndexedMemory,
        artifacts: ArtifactFolder,
        health_of: Callable[[], Awaitable[Health]],
        argument_problems: Callable[[JsonObject, JsonObject], Sequence[str]],
        clock: Clock,
        ids: IdSource,
        metrics: Metrics,
        timetable: Timetable,
        ring: Callable[[Sequence[ScheduleId]], Awaitable[Sequence[Alarm]]],
        mcp: McpNode | None = None,
        sources: Sequence[WebhookSource] = (),
        callbacks: CallbackRules | None = None,
        noted_heads: Callable[[], NotedHeads] = NotedHeads,
        keep_score: Callable[[Score], Awaitable[None]] = refuse_score,
    ) -> None:
        self._noted_heads = noted_heads
        self.timetable, self._ring = timetable, ring
        self._keep_score = keep_score
        self._store, self._following, self._dispatcher = store, following, dispatcher
        self._definitions, self._health_of = definitions, health_of
        self._artifacts, self._argument_problems = artifacts, argument_problems
        self._clock = clock
        self._mcp, self._metrics = mcp, metrics
        self._submissions = Submissions(
            dispatcher=dispatcher, definitions=definitions, callbacks=callbacks, clock=clock, ids=ids
        )
        self._behind = self._submissions.behind
        self.memory = AgentMemories(
            files=memory_files,
            indexed=indexed_memory,
            ledger=MemoryLedger(store, clock, ids),
            require_known=self._require_known,
            timezone_of=self._timezone_of,
            behind=self._behind,
            clock=clock,
            ids=ids,
        )
        self.inbox = WebhookInbox(sources, store=store, submissions=self._submissions, clock=clock, ids=ids)
        self.outbox = WebhookOutbox(store, clock, ids)

    async def submit(
        self,
        agent: AgentRef,
        trigger: Trigger,
        admission: Admission = ENQUEUED,
        *,
        idempotency_key: str | None = None,
        body_hash: str = "",
    ) -> RunAccepted:
        """See Runtime.submit."""
        submission = await self._submissions.prepare(
            agent, trigger, admission, idempotency_key=idempotency_key, body_hash=body_hash
        )
        (outcome,) = await self._store.apply([submission.command])
        concluded = self._submissions.concluded(submission, outcome)
        if isinstance(concluded, OwlClawError):
            raise concluded
        return concluded

    async def submit_all(self, requests: Sequence[TriggerRequest]) -> Sequence[RunAccepted | OwlClawError]:
        """See Runtime.submit_all."""
        prepared = [await self._prepared(each) for each in requests]
        ready = [each for each in prepared if isinstance(each, Submission)]
        outcomes = await self._store.apply([each.command for each in ready]) if ready else ()
        concluded = iter([self._submissions.concluded(*each) for each in zip(ready, outcomes, strict=True)])
        return [next(concluded) if isinstance(each, Submission) else each for each in prepared]

    async def _prepared(self, request: TriggerRequest) -> Submission | OwlClawError:
        try:
            return await self._submissions.prepare(
                request.agent,
                request.trigger,
                request.admission,
                idempotency_key=request.idempotency_key,
                body_hash=request.body_hash,
            )
        except OwlClawError as error:
            return error

    async def run(self, tenant: TenantId, run_id: RunId) -> Run:
        """See Runtime.run."""
        run = await self._store.read(RunById(tenant, run_id))
        if run is None:
            raise NotFoundError("run", run_id)
        return run

    async def runs(self, where: RunFilter) -> Sequence[Run]:
        """See Runtime.runs."""
        return await self._store.read(where)

    def follow(self, tenant: TenantId, run_id: RunId, after: int = 0) -> AbstractAsyncContextManager[Follower]:
        """See Runtime.follow."""
        return self._following.follow(tenant, run_id, after)

    async def watch(self, tenant: TenantId, run_id: RunId, after: int, seconds: float) -> RunProgress:
        """See Runtime.watch."""
        return await self._following.watch(tenant, run_id, after, seconds)

    async def cancel(self, tenant: TenantId, run_id: RunId) -> Run:
        """See Runtime.cancel."""
        outcome = (await self._store.apply([CancelRun(tenant, run_id, self._clock.now())]))[0]
        if not isinstance(outcome, CancelOutcome):
            raise StoreUnavailableError(f"the cancellation was not stored: {outcome}")
        if outcome.run is None:
            raise NotFoundError("run", run_id)
        if outcome.waited:
            self._behind(self._dispatcher.wake([outcome.run.agent]))
        elif not outcome.run.status.final:
            await self._dispatcher.cancel(outcome.run.agent, run_id)
        return outcome.run

    async def score(self, tenant: TenantId, run_id: RunId, judgement: Judgement) -> Score:
        """See Runtime.score."""
        score = score_of(await self.run(tenant, run_id), judgement)
        await self._keep_score(score)
        return score

    async def agents(self, tenant: TenantId, after: str = "", limit: int = 1_000) -> Sequence[AgentView]:
        """See Runtime.agents."""
        records = {record.agent: record for record in await self._store.read(AgentPage(tenant, after, limit))}
        plain = [AgentRef(tenant, AgentId(name)) for name in await self._definitions.names() if name > after]
        agents = sorted({*plain, *records}, key=lambda agent: agent.agent_id)
        return [await self._view(agent, records.get(agent)) for agent in agents[:limit]]

    async def agent(self, agent: AgentRef) -> AgentView:
        """See Runtime.agent."""
        await self._require_known(agent)
        return await self._view(agent, await self._store.read(AgentByRef(agent)))

    async def skills(self, agent: AgentRef) -> Sequence[Skill]:
        """See Runtime.skills."""
        await self._require_known(agent)
        return (await self._definitions.get(agent.definition)).skills

    async def reload(self, agent: AgentRef) -> AgentView:
        """See Runtime.reload."""
        await self._require_known(agent)
        await self._definitions.reload(agent.definition)
        return await self._view(agent, await self._store.read(AgentByRef(agent)))

    async def artifacts(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """See Runtime.artifacts."""
        await self._require_known(agent)
        return await asyncio.to_thread(self._artifacts.listing, agent, limit)

    async def artifact(self, agent: AgentRef, artifact_id: ArtifactId) -> Artifact:
        """See Runtime.artifact."""
        await self._require_known(agent)
        return await asyncio.to_thread(self._artifacts.get, agent, artifact_id)

    async def approvals(self, where: ApprovalFilter) -> Sequence[Approval]:
        """See Runtime.approvals."""
        return await self._store.read(where)

    async def approval(self, tenant: TenantId, approval_id: ApprovalId) -> Approval:
        """See Runtime.approval."""
        approval = await self._store.read(ApprovalById(tenant, approval_id))
        if approval is None:
            raise NotFoundError("approval", approval_id)
        return approval

    async def decide(self, tenant: TenantId, approval_id: ApprovalId, decision: ApprovalDecision) -> Approval:
        """See Runtime.decide."""
        if decision.arguments is not None:
            request = (await self.approval(tenant, approval_id)).request
            problems = await self._checked(request.input_schema, decision.arguments)
            if problems:
                raise ToolArgumentsError(request.tool, problems)
        now = self._clock.now()
        match (await self._store.apply([DecideApproval(tenant, approval_id, decision, now)]))[0]:
            case ApprovalSettled(approval, resumes):
                if resumes:
                    self._behind(self._dispatcher.wake([approval.request.agent]))
                return approval
            case ApprovalClosed(approval):
                if approval.status is ApprovalStatus.EXPIRED:
                    self._behind(self._dispatcher.wake([approval.request.agent]))
                raise AlreadyDecidedError(approval_id, approval.status.value)
            case NoSuchApproval():
                raise NotFoundError("approval", approval_id)
            case other:
                raise StoreUnavailableError(f"the decision was not stored: {other}")

    async def _checked(self, schema: JsonObject, arguments: JsonObject) -> Sequence[str]:
        """Return what is wrong with the arguments; whatever they are, nobody else waits for it."""
        try:
            async with deadline(self._clock, _CHECK_SECONDS):
                return await asyncio.to_thread(self._argument_problems, schema, arguments)
        except TimeoutError:
            return [f"arguments: they could not be checked within {_CHECK_SECONDS:g} s"]

    async def ledger(self, where: LedgerFilter) -> Sequence[ChainedRecord]:
        """See Runtime.ledger."""
        return await self._store.read(where)

    async def ledger_chains(self, tenant: TenantId) -> Sequence[LedgerChain]:
        """See Runtime.ledger_chains."""
        return await self._store.read(LedgerChains(tenant))

    async def verify_ledger(self, tenant: TenantId, since: Sequence[NotedHead] = ()) -> LedgerVerification:
        """See Runtime.verify_ledger."""
        noted = await asyncio.to_thread(self._noted_heads)
        return await verified_ledger(self._store, tenant, NotedHeads((*noted.heads, *since), noted.problems))

    async def ring(self, tenant: TenantId, schedule_id: ScheduleId) -> Alarm:
        """See Runtime.ring."""
        if await self._store.read(ScheduleById(tenant, schedule_id)) is None:
            return Alarm(schedule_id, None)
        (alarm,) = await self._ring([schedule_id])
        return alarm

    async def mcp_servers(self) -> Sequence[McpServerView]:
        """See Runtime.mcp_servers."""
        return () if self._mcp is None else await self._mcp.servers()

    async def metrics(self) -> Sequence[MetricFamily]:
        """See Runtime.metrics."""
        return await self._metrics.families()

    async def health(self) -> Health:
        """See Runtime.health."""
        return await self._health_of()

    async def _require_known(self, agent: AgentRef) -> None:
        names = await self._definitions.names()
        if agent.definition not in names:
            raise UnknownAgentError(agent.agent_id, names)

    async def _timezone_of(self, agent: AgentRef) -> str:
        """Return the agent's zone; UTC while its definition cannot be read, for its memories can."""
        try:
            return (await self._definitions.get(agent.definition)).timezone
        except DefinitionError:
            return "UTC"

    async def _view(self, agent: AgentRef, record: AgentRecord | None) -> AgentView:
        try:
            definition = await self._definitions.get(agent.definition)
        except (DefinitionError, UnknownAgentError) as error:
            return AgentView(agent, record, model="", scripted=False, isolation="", warnings=(), problem=str(error))
        return AgentView(
            agent,
            record,
            model=definition.model.chain[0],
            scripted=is_scripted(definition),
            isolation=definition.isolation.value,
            warnings=definition.warnings,
        )
