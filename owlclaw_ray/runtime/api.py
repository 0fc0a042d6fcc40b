"""The runtime, as HTTP, the CLI and tests use it: over Ray or in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from msgspec import Struct

from owlclaw_ray.access.authentication import Authenticator
from owlclaw_ray.access.keys import AccessKeys
from owlclaw_ray.access.sessions import Sessions
from owlclaw_ray.access.sign_in import SignIns
from owlclaw_ray.access.tenant_terms import TenantTerms
from owlclaw_ray.access.tenants import NOTHING, Tenants
from owlclaw_ray.access.tokens import IssuerTokens
from owlclaw_ray.definitions.api import NamedDefinitions
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef
from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalStatus
from owlclaw_ray.domain.artifact import StoredArtifact
from owlclaw_ray.domain.budget import Budget, BudgetScope, BudgetStanding, BudgetUse, BudgetWindow
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.domain.issuer import Issuer, SignInOptions
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord, NotedHead, NotedHeads, access_record
from owlclaw_ray.domain.node import ClusterView, NodeCondition, nodes_called
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.domain.queue_length import QueueMinute
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.score import Judgement, Score, score_of
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.trigger import ENQUEUED, Admission, Trigger
from owlclaw_ray.domain.usage import RunBucket, ToolBucket
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
    UserError,
    VerificationBusyError,
)
from owlclaw_ray.ids import DEFAULT_TENANT, AgentId, ApprovalId, ArtifactId, IdSource, RunId, ScheduleId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.memory.runtime_memory import AgentMemories, IndexedMemory, MemoryLedger
from owlclaw_ray.runs.callback_rules import TenantCallbackRules
from owlclaw_ray.runs.submissions import Dispatcher, Submission, Submissions, is_scripted
from owlclaw_ray.runtime.tenant_export import TenantExport
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.schedules.timetable import Timetable
from owlclaw_ray.secrets.api import AskSecret, SecretKeeper, no_secrets
from owlclaw_ray.store.api import QueryStore, Store
from owlclaw_ray.store.commands import (
    AllowanceStored,
    AppendLedger,
    ApprovalClosed,
    ApprovalSettled,
    CancelOutcome,
    CancelRun,
    CommandFailed,
    DecideApproval,
    NoSuchApproval,
    RunAccepted,
)
from owlclaw_ray.store.followers import FollowerRegistry, RunFollower
from owlclaw_ray.store.ledger_pages import ledger_breaks, ledger_records
from owlclaw_ray.store.queries import (
    AgentByRef,
    AgentPage,
    AgentQueue,
    AgentRecord,
    AgentsByIds,
    ApprovalById,
    ApprovalFilter,
    BudgetUses,
    EntriesOfKinds,
    JournalTail,
    LedgerChain,
    LedgerChains,
    LedgerFilter,
    LongestQueues,
    MissingLedgerGuards,
    PendingApprovalCounts,
    PromptTexts,
    RunById,
    RunFilter,
    RunProgress,
    ScheduleById,
)
from owlclaw_ray.store.run_search import RunPage, RunSearch
from owlclaw_ray.store.usage import QueueMinutes, RunUsage, ToolUsage
from owlclaw_ray.telemetry.metrics.api import MetricFamily, Metrics
from owlclaw_ray.tools.arguments import argument_problems
from owlclaw_ray.tools.artifact_home import ArtifactHome, ArtifactReader
from owlclaw_ray.tools.mcp.api import McpNode, McpServerView
from owlclaw_ray.webhooks.inbox import WebhookInbox
from owlclaw_ray.webhooks.outbox import WebhookOutbox


class AgentView(Struct, frozen=True):
    """An agent as its users see it."""

    agent: AgentRef
    record: AgentRecord | None
    """None before its first trigger."""
    model: str
    scripted: bool
    isolation: str
    warnings: tuple[str, ...]
    problem: str = ""
    """Why the definition cannot be used, if it cannot."""


class Health(Struct, frozen=True):
    """Whether triggers are accepted, and the state of each part by name (`ok` or what is wrong)."""

    ready: bool
    parts: dict[str, str]
    holder: str = ""
    """The other cluster that runs the agents of the store, for which this one stands by; empty if there is none."""


class LedgerVerification(Struct, frozen=True):
    """The result of a verification of all chains of a ledger."""

    chains: tuple[LedgerChain, ...]
    """As recorded when the verification began."""
    breaks: tuple[ChainBreak, ...]
    noted: int = 0
    """How many heads, recorded outside the store, the chains were compared with."""
    problems: tuple[str, ...] = ()
    """Why some recorded heads could not be read."""
    missing_guards: tuple[str, ...] = ()
    """The missing parts of what makes the store refuse changes of records."""


class TriggerRequest(Struct, frozen=True):
    """One of several triggers that are submitted together; see Runtime.submit."""

    agent: AgentRef
    trigger: Trigger
    admission: Admission = ENQUEUED
    idempotency_key: str | None = None
    body_hash: str = ""


async def no_cluster() -> ClusterView:
    """Return what a runtime without Ray has: no nodes."""
    return ClusterView()


async def no_nodes(nodes: Sequence[str], state: NodeCondition) -> None:
    """Refuse to mark nodes where there are none."""
    raise UserError(f"this runtime has no nodes that could be {state.value}: {', '.join(nodes)}")


async def refuse_score(score: Score) -> None:
    """Refuse a score where traces are not exported to Langfuse."""
    raise ScoreRefusedError(
        f"score {score.judgement.name!r} not stored: only Langfuse keeps scores, and traces are not exported there; set "
        "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"
    )


async def verified_ledger(store: QueryStore, tenant: TenantId, noted: NotedHeads) -> LedgerVerification:
    """Verify all chains of the tenant, and compare them with its heads that were recorded outside the store."""
    heads = [head for head in noted.heads if head.tenant == tenant]
    chains = await store.read(LedgerChains(tenant))
    breaks = await ledger_breaks(store, tenant, heads)
    missing = await store.read(MissingLedgerGuards())
    return LedgerVerification(tuple(chains), tuple(breaks), len(heads), noted.problems, tuple(missing))


_CHECK_SECONDS = 5.0
"""How long the check of edited arguments may take."""


class Runtime:
    """Everything that an interface can ask of the running system. `callbacks` says where callbacks may go; None: there are none."""

    def __init__(
        self,
        *,
        store: Store,
        following: FollowerRegistry,
        dispatcher: Dispatcher,
        definitions: NamedDefinitions,
        memory_files: MemoryFolders,
        indexed_memory: IndexedMemory,
        artifacts: ArtifactHome,
        health_of: Callable[[], Awaitable[Health]],
        clock: Clock,
        ids: IdSource,
        metrics: Metrics,
        ring: Callable[[Sequence[ScheduleId]], Awaitable[Sequence[Alarm]]],
        mcp: McpNode | None = None,
        cluster_of: Callable[[], Awaitable[ClusterView]] = no_cluster,
        mark_nodes: Callable[[Sequence[str], NodeCondition], Awaitable[None]] = no_nodes,
        sources: Sequence[WebhookSource] = (),
        callbacks: CallbackRules | None = None,
        callback_secrets: Sequence[str] | None = (),
        noted_heads: Callable[[], NotedHeads] = NotedHeads,
        keep_score: Callable[[Score], Awaitable[None]] = refuse_score,
        secrets: SecretKeeper,
        secret: AskSecret = no_secrets,
        keys_required: bool = False,
        issuers: Sequence[Issuer] = (),
        sign_in: SignInOptions | None = None,
        uncounted: Mapping[str, str] = NOTHING,
    ) -> None:
        self._cluster_of, self._mark_nodes = cluster_of, mark_nodes
        self._ring, self._noted_heads, self._keep_score = ring, noted_heads, keep_score
        self._verified: set[TenantId] = set()
        """Whose ledgers are being verified."""
        self._store, self._following, self._dispatcher = store, following, dispatcher
        self._definitions, self._health_of = definitions, health_of
        self._artifacts, self._clock, self._ids, self._mcp, self._metrics = artifacts, clock, ids, mcp, metrics
        self._submissions = Submissions(
            dispatcher=dispatcher,
            definitions=definitions,
            callbacks=None if callbacks is None else TenantCallbackRules(callbacks, store),
            clock=clock,
            ids=ids,
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
            weight=TenantTerms(store, clock).weight,
        )
        self.inbox = WebhookInbox(
            sources, store=store, submissions=self._submissions, clock=clock, ids=ids, secret=secret
        )
        tokens = IssuerTokens(issuers, clock) if issuers else None
        self.authenticator = Authenticator(store, clock, ids, tokens, keys_required=keys_required)
        people = None if sign_in is None else (issuers, sign_in)
        self.sessions = Sessions(store, self.authenticator, clock, ids, people=people)
        self.sign_ins = SignIns(issuers, sign_in, tokens=tokens, sessions=self.sessions, clock=clock)
        self.keys = AccessKeys(store, clock, ids, made=self.authenticator.close)
        self.tenants = Tenants(store, clock, ids, made=self.authenticator.close, uncounted=uncounted)
        self.tenant_export = TenantExport(
            tenants=self.tenants,
            store=store,
            memories=memory_files,
            artifacts=artifacts,
            definitions=definitions,
            clock=clock,
        )
        self.outbox = WebhookOutbox(store, clock, ids, callback_secrets)
        self.secrets = secrets
        self.timetable = Timetable(store=store, dispatcher=dispatcher, definitions=definitions, clock=clock, ids=ids)

    async def submit(
        self,
        agent: AgentRef,
        trigger: Trigger,
        admission: Admission = ENQUEUED,
        *,
        idempotency_key: str | None = None,
        body_hash: str = "",
    ) -> RunAccepted:
        """Commit a trigger and wake its agent. When this returns, the trigger cannot be lost.

        Raises UnknownAgentError, DefinitionError, CallbackRefusedError, AgentBusyError, QueueFullError (nothing is committed),
        IdempotencyConflictError, StoreUnavailableError, RuntimeUnavailableError.
        """
        (concluded,) = await self.submit_all([TriggerRequest(agent, trigger, admission, idempotency_key, body_hash)])
        if isinstance(concluded, OwlClawError):
            raise concluded
        return concluded

    async def submit_all(self, requests: Sequence[TriggerRequest]) -> Sequence[RunAccepted | OwlClawError]:
        """Commit triggers in one transaction and wake their agents; return for each what `submit` would return or raise.

        A refused trigger does not affect the others. Raises StoreUnavailableError if nothing was committed, for sure or perhaps.
        """
        prepared = [await self._prepared(each) for each in requests]
        ready = [each for each in prepared if isinstance(each, Submission)]
        outcomes = await self._store.apply([each.command for each in ready]) if ready else ()
        concluded = iter([self._submissions.concluded(*each) for each in zip(ready, outcomes, strict=True)])
        return [next(concluded) if isinstance(each, Submission) else each for each in prepared]

    async def _prepared(self, request: TriggerRequest) -> Submission | OwlClawError:
        try:
            if request.idempotency_key is None:
                self._submissions.check_quotas(request.agent, request.admission)
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
        """Return the run; raises NotFoundError."""
        run = await self._store.read(RunById(tenant, run_id))
        if run is None:
            raise NotFoundError("run", run_id)
        return run

    async def runs(self, where: RunFilter) -> Sequence[Run]:
        """Return the runs that match, newest first."""
        return await self._store.read(where)

    async def longest_queues(self, where: LongestQueues) -> Sequence[AgentQueue]:
        """Return the longest queues of a tenant's agents, the longest first."""
        return await self._store.read(where)

    async def search_runs(self, where: RunSearch) -> RunPage:
        """Return the runs that match, newest first, and where to go on."""
        return await self._store.read(where)

    async def run_usage(self, where: RunUsage) -> Sequence[RunBucket]:
        """Return what runs came to, as far as any ended: by time, and at one time what cost most first."""
        return await self._store.read(where)

    async def tool_usage(self, where: ToolUsage) -> Sequence[ToolBucket]:
        """Return what calls of tools came to: by time, and at one time what took most time first."""
        return await self._store.read(where)

    async def queue_minutes(self, where: QueueMinutes) -> Sequence[QueueMinute]:
        """Return how long queues were in each minute, the earliest first, as far as it was noted."""
        return await self._store.read(where)

    def follow(self, tenant: TenantId, run_id: RunId, after: int = 0) -> AbstractAsyncContextManager[RunFollower]:
        """Follow the run, from the entry after the one with that seq. A waiting follower reads nothing; followers of one run share
        their reads.
        """
        return self._following.follow(tenant, run_id, after)

    async def watch(self, tenant: TenantId, run_id: RunId, after: int, seconds: float) -> RunProgress:
        """Return the run's committed entries with a seq over `after`: at once if there are any, else when the next one is
        committed, or none after `seconds` or when the run is final. Raises NotFoundError.
        """
        return await self._following.watch(tenant, run_id, after, seconds)

    async def journal(
        self, tenant: TenantId, run_id: RunId, before: int | None = None, limit: int = 200
    ) -> Sequence[JournalEntry]:
        """Return the last entries of the run's journal, in order; with `before` the last of those with a lower seq.

        An unknown run has none.
        """
        return await self._store.read(JournalTail(tenant, run_id, before, limit))

    async def entries_of(
        self, tenant: TenantId, run_id: RunId, kinds: tuple[EntryKind, ...], after: int = 0, limit: int = 1_000
    ) -> Sequence[JournalEntry]:
        """Return the run's entries of these kinds with a seq over `after`, the first `limit` of them in order.

        An unknown run has none.
        """
        return await self._store.read(EntriesOfKinds(tenant, run_id, kinds, after, limit))

    async def prompt_texts(self, tenant: TenantId, run_id: RunId) -> Mapping[str, str]:
        """Return the texts that the run's prompt_built entry names, by their hashes; none of an unknown run."""
        return await self._store.read(PromptTexts(tenant, run_id))

    async def cancel(self, tenant: TenantId, run_id: RunId, by: str = "") -> Run:
        """Ask for the end of a run, for the principal `by`, and return it as it stands; a final one stays so. Raises NotFoundError."""
        await self.run(tenant, run_id)  # a foreign run is looked for by nobody else
        outcome = (await self._store.apply([CancelRun(tenant, run_id, self._clock.now(), by)]))[0]
        if not isinstance(outcome, CancelOutcome):
            raise StoreUnavailableError(f"the cancellation was not stored: {outcome}")
        if outcome.run is None:
            raise NotFoundError("run", run_id)
        if outcome.waited:
            self._behind(self._dispatcher.wake([outcome.run.agent]))
        elif not outcome.run.status.final:
            await self._dispatcher.cancel(outcome.run.agent, run_id)
        return outcome.run

    async def score(self, tenant: TenantId, run_id: RunId, judgement: Judgement, by: str = "") -> Score:
        """Have the judgement kept beside the run's trace, in the place of an earlier one of its name, and return it when the ledger knows
        that the principal `by` gave it.

        Raises StoreUnavailableError, NotFoundError, ScoreRefusedError, ReceiverError.
        """
        run = await self.run(tenant, run_id)
        score = score_of(run, judgement)
        await self._keep_score(score)
        if by:
            said: JsonObject = {"score_id": score.score_id, "name": judgement.name, "by": by}
            await self.tell(tenant, "run_scored", said, agent_id=run.agent.agent_id, run_id=run_id)
        return score

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
        """Return every definition's agent and every agent with a key that ever had a trigger, with ids after `after`, in the order of
        their code points. An agent that appears between two pages does not shift the others.

        `prefix`: only those whose ids begin like this; `busy`: only those with a run that is queued, running or waiting;
        `with_open_breaker`: only those in whose saved state a breaker is not closed.
        """
        page = await self._store.read(AgentPage(tenant, after, limit, prefix, busy, with_open_breaker))
        records = {record.agent: record for record in page}
        names = () if busy or with_open_breaker else await self._definitions.names(tenant)
        plain = [AgentRef(tenant, AgentId(name)) for name in names if name > after and name.startswith(prefix)]
        agents = sorted({*plain, *records}, key=lambda agent: agent.agent_id)
        return await self._views(agents[:limit], records)

    async def definition_names(self, tenant: TenantId) -> Sequence[str]:
        """Return the names of the definitions that a tenant's agents may have."""
        return await self._definitions.names(tenant)

    async def agents_called(self, tenant: TenantId, agent_ids: Sequence[AgentId]) -> Sequence[AgentView]:
        """Return these agents, in their order, whether or not they have a definition any more."""
        found = await self._store.read(AgentsByIds(tenant, tuple(agent_ids))) if agent_ids else ()
        return await self._views([AgentRef(tenant, each) for each in agent_ids], {each.agent: each for each in found})

    async def _views(self, agents: Sequence[AgentRef], records: Mapping[AgentRef, AgentRecord]) -> Sequence[AgentView]:
        views, looked = list[AgentView](), dict[str, AgentDefinition | DefinitionError | UnknownAgentError]()
        for agent in agents:
            name = agent.qualified_definition
            if name not in looked:
                looked[name] = await self._definition(name)
            views.append(_view_of(agent, records.get(agent), looked[name]))
        return views

    async def agent(self, agent: AgentRef) -> AgentView:
        """Return one agent; raises UnknownAgentError."""
        await self._require_known(agent)
        return await self._view(agent, await self._store.read(AgentByRef(agent)))

    async def definition(self, agent: AgentRef) -> AgentDefinition:
        """Return the agent's definition as runs that begin now use it; raises UnknownAgentError, DefinitionError."""
        await self._require_known(agent)
        return await self._definitions.get(agent.qualified_definition)

    async def budgets(self, agent: AgentRef) -> Sequence[BudgetStanding]:
        """Return the budgets of the agent's definition, each with what is gone of it now; raises UnknownAgentError, DefinitionError."""
        now, found = self._clock.now(), (await self.definition(agent)).governance.budgets
        windows = [(each, each.window(now)) for each in found]
        accounts = [budget.account(agent.tenant, agent.agent_id, window) for budget, window in windows]
        uses = await self._store.read(BudgetUses(tuple(accounts))) if accounts else ()
        known = {each.account: each for each in uses}

        def standing(budget: Budget, window: BudgetWindow, account: str) -> BudgetStanding:
            if budget.scope is BudgetScope.RUN:
                return BudgetStanding(budget, window, None)
            use = known.get(account, BudgetUse(account, 0, 0))
            return BudgetStanding(budget, window, use.used, use.reserved)

        return [standing(*each, account) for each, account in zip(windows, accounts, strict=True)]

    async def skills(self, agent: AgentRef) -> Sequence[Skill]:
        """Return the skills of the agent's definition, by name; raises UnknownAgentError, DefinitionError."""
        return (await self.definition(agent)).skills

    async def reload(self, agent: AgentRef) -> AgentView:
        """Read all files of the agent's definition again; every run that begins after this returns uses them.

        Raises UnknownAgentError, DefinitionError (runs fail with it until the files are corrected), RuntimeUnavailableError.
        """
        await self._require_known(agent)
        await self._definitions.reload(agent.qualified_definition)
        return await self._view(agent, await self._store.read(AgentByRef(agent)))

    async def artifacts(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """Return the agent's stored large outputs, newest first; raises UnknownAgentError."""
        await self._require_known(agent)
        return await asyncio.to_thread(self._artifacts.listing, agent, limit)

    async def artifact(self, agent: AgentRef, artifact_id: ArtifactId) -> ArtifactReader:
        """Return what reads a large output of one of the agent's tool calls; raises UnknownAgentError, NotFoundError."""
        await self._require_known(agent)
        return await asyncio.to_thread(self._artifacts.open, agent, artifact_id)

    async def approvals(self, where: ApprovalFilter) -> Sequence[Approval]:
        """Return the approvals that match, newest first."""
        return await self._store.read(where)

    async def pending_approvals(self, tenant: TenantId, limit: int) -> Mapping[AgentRef, int]:
        """Return how many of the tenant's approvals are pending for each agent that has any, of the `limit` that were asked for first."""
        return await self._store.read(PendingApprovalCounts(tenant, limit))

    async def approval(self, tenant: TenantId, approval_id: ApprovalId) -> Approval:
        """Return the approval; raises NotFoundError."""
        approval = await self._store.read(ApprovalById(tenant, approval_id))
        if approval is None:
            raise NotFoundError("approval", approval_id)
        return approval

    async def decide(self, tenant: TenantId, approval_id: ApprovalId, decision: ApprovalDecision) -> Approval:
        """Settle a pending approval and wake its agent; repeating a decision changes nothing. When this returns, it is durable.

        An approval that other principals must allow, too, is pending still.

        Raises NotFoundError, AlreadyDecidedError, AccessDeniedError if the principal may not allow the call because it asked for
        the run, ToolArgumentsError if other arguments come with it that do not fit the tool's
        schema, StoreUnavailableError.
        """
        request = (await self.approval(tenant, approval_id)).request
        request.require_other(decision)
        if decision.arguments is not None:
            try:
                async with deadline(self._clock, _CHECK_SECONDS):
                    problems = await asyncio.to_thread(argument_problems, request.input_schema, decision.arguments)
            except TimeoutError:
                problems = [f"arguments: they could not be checked within {_CHECK_SECONDS:g} s"]
            if problems:
                raise ToolArgumentsError(request.tool, problems)
        now = self._clock.now()
        match (await self._store.apply([DecideApproval(tenant, approval_id, decision, now)]))[0]:
            case ApprovalSettled(approval, resumes):
                if resumes:
                    self._behind(self._dispatcher.wake([approval.request.agent]))
                return approval
            case AllowanceStored(approval):
                return approval
            case ApprovalClosed(approval):
                if approval.status is ApprovalStatus.EXPIRED:
                    self._behind(self._dispatcher.wake([approval.request.agent]))
                raise AlreadyDecidedError(approval_id, approval.status.value)
            case NoSuchApproval():
                raise NotFoundError("approval", approval_id)
            case other:
                raise StoreUnavailableError(f"the decision was not stored: {other}")

    async def ledger(self, where: LedgerFilter) -> Sequence[ChainedRecord]:
        """Return the ledger records that match, oldest first."""
        return await ledger_records(self._store, where)

    async def ledger_chains(self, tenant: TenantId) -> Sequence[LedgerChain]:
        """Return the recorded ends of the tenant's chains, by writer."""
        return await self._store.read(LedgerChains(tenant))

    async def verify_ledger(self, tenant: TenantId, since: Sequence[NotedHead] = ()) -> LedgerVerification:
        """Verify all chains of the tenant, record by record, against the heads that the runtime recorded, and `since`.

        Raises VerificationBusyError while this process verifies them already.
        """
        if tenant in self._verified:
            raise VerificationBusyError(tenant)
        self._verified.add(tenant)
        try:
            noted = await asyncio.to_thread(self._noted_heads)
            return await verified_ledger(self._store, tenant, NotedHeads((*noted.heads, *since), noted.problems))
        finally:
            self._verified.discard(tenant)

    async def ring(self, tenant: TenantId, schedule_id: ScheduleId) -> Alarm:
        """Fire the tenant's schedule if it is due, as Bell.ring does; return when to ring for it again: never, if the tenant has none.

        Raises StoreUnavailableError, RuntimeUnavailableError.
        """
        if await self._store.read(ScheduleById(tenant, schedule_id)) is None:
            return Alarm(schedule_id, None)
        (alarm,) = await self._ring([schedule_id])
        return alarm

    async def mcp_servers(self) -> Sequence[McpServerView]:
        """Return the MCP servers of the node that answers, by name; raises RuntimeUnavailableError."""
        return () if self._mcp is None else await self._mcp.servers()

    async def nodes(self) -> ClusterView:
        """Return the nodes of the cluster, none without Ray. Those that do not answer are told as such."""
        return await self._cluster_of()

    async def drain(self, node: str, by: str = "") -> ClusterView:
        """Have a node run no agents any more, or `all` of them, and return these nodes as they are now. See nodes_called for `node`.

        Durable when it returns; the ledger of the default tenant is told before that the principal `by` asks for it. Agents leave behind
        the caller, each at the next step of its run. Raises NotFoundError, UserError if `node` means several, or the store has one node
        only, RuntimeUnavailableError, StoreUnavailableError.
        """
        return await self._marked(node, NodeCondition.DRAINING, by)

    async def undrain(self, node: str, by: str = "") -> ClusterView:
        """Let a node, or `all`, run agents again; see `drain`."""
        return await self._marked(node, NodeCondition.ACTIVE, by)

    async def _marked(self, node: str, state: NodeCondition, by: str) -> ClusterView:
        ids = [each.node_id for each in nodes_called(await self.nodes(), node)]
        if by:
            what = "nodes_drained" if state is NodeCondition.DRAINING else "nodes_undrained"
            await self.tell(DEFAULT_TENANT, what, {"nodes": ids, "by": by})
        await self._mark_nodes(ids, state)
        view = await self.nodes()
        return ClusterView(tuple(each for each in view.nodes if each.node_id in ids), view.lease)

    async def callback_secrets(self, by: Principal) -> Sequence[str]:
        """Return what receivers check the callbacks of the principal's tenant by, the present secret first, when its ledger knows who is
        shown them. Raises NotFoundError without callbacks, StoreUnavailableError.
        """
        secrets = self.outbox.secrets(by.tenant)
        await self.tell(by.tenant, "callback_secrets_shown", {"by": str(by)})
        return secrets

    async def export(self, tenant: TenantId, by: Principal) -> AsyncIterator[bytes]:
        """Return as TenantExport.begin, when the tenant's ledger knows who exports, or the default one's if it is sealed."""
        lines = await self.tenant_export.begin(tenant)
        is_sealed = tenant != DEFAULT_TENANT and (await self.tenants.tenant(tenant)).status.closed
        whose = DEFAULT_TENANT if is_sealed else tenant
        await self.tell(whose, "tenant_exported", {"tenant": tenant, "by": str(by)})
        return lines

    async def tell(
        self, tenant: TenantId, what: str, data: JsonObject, *, agent_id: str = "", run_id: str = ""
    ) -> None:
        """Have the tenant's ledger know who did something that changes no row of the store; raises StoreUnavailableError."""
        at = self._clock.now()
        record = access_record(self._ids.make("rec"), tenant, what, at, data, agent_id=agent_id, run_id=run_id)
        (outcome,) = await self._store.apply([AppendLedger((record,))])
        if isinstance(outcome, CommandFailed):
            raise StoreUnavailableError(f"the ledger was not told: {outcome}")

    async def metrics(self) -> Sequence[MetricFamily]:
        """Return the present numbers of all parts; never raises."""
        return await self._metrics.families()

    async def health(self) -> Health:
        """Return the state of all parts; never raises."""
        return await self._health_of()

    async def _require_known(self, agent: AgentRef) -> None:
        names = await self._definitions.names(agent.tenant)
        if agent.definition not in names:
            raise UnknownAgentError(agent.agent_id, names)

    async def _timezone_of(self, agent: AgentRef) -> str:
        """Return the agent's zone; UTC while its definition cannot be read, for its memories can."""
        try:
            return (await self._definitions.get(agent.qualified_definition)).timezone
        except DefinitionError:
            return "UTC"

    async def _view(self, agent: AgentRef, record: AgentRecord | None) -> AgentView:
        return _view_of(agent, record, await self._definition(agent.qualified_definition))

    async def _definition(self, name: str) -> AgentDefinition | DefinitionError | UnknownAgentError:
        try:
            return await self._definitions.get(name)
        except (DefinitionError, UnknownAgentError) as error:
            return error


def _view_of(
    agent: AgentRef, record: AgentRecord | None, definition: AgentDefinition | DefinitionError | UnknownAgentError
) -> AgentView:
    if not isinstance(definition, AgentDefinition):
        return AgentView(agent, record, model="", scripted=False, isolation="", warnings=(), problem=str(definition))
    return AgentView(
        agent,
        record,
        model=definition.model.chain[0],
        scripted=is_scripted(definition),
        isolation=definition.isolation.value,
        warnings=definition.warnings,
    )
