"""The runtime, as HTTP, the CLI and tests use it: over Ray or in one process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Approval, ApprovalDecision
from owlclaw_ray.domain.artifact import Artifact, StoredArtifact
from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord, NotedHead
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.score import Judgement, Score
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.trigger import ENQUEUED, Admission, Trigger
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ids import ApprovalId, ArtifactId, RunId, ScheduleId, TenantId
from owlclaw_ray.memory.runtime_memory import AgentMemories
from owlclaw_ray.schedules.api import Alarm, Timetable
from owlclaw_ray.store.commands import RunAccepted
from owlclaw_ray.store.queries import AgentRecord, ApprovalFilter, LedgerChain, LedgerFilter, RunFilter, RunProgress
from owlclaw_ray.telemetry.metrics.api import MetricFamily
from owlclaw_ray.tools.mcp.api import McpServerView
from owlclaw_ray.webhooks.api import Inbox, Outbox


class Follower(Protocol):
    """Somebody who reads a run's journal as it grows."""

    async def next(self, seconds: float | None = None) -> RunProgress:
        """Return the committed entries that were not returned yet: at once if there are any or if the run is over, else when the
        next one is committed. Without news it returns none: after `seconds`, and when it is nudged.

        Raises NotFoundError, StoreUnavailableError.
        """
        ...

    def nudge(self) -> None:
        """Have `next` return."""
        ...


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


class LedgerVerification(Struct, frozen=True):
    """What came of following all chains of a ledger."""

    chains: tuple[LedgerChain, ...]
    """As they were recorded when the following began."""
    breaks: tuple[ChainBreak, ...]
    noted: int = 0
    """With how many heads, noted outside the store, the chains were compared."""
    problems: tuple[str, ...] = ()
    """Why these are fewer than they should be."""
    missing_guards: tuple[str, ...] = ()
    """What the store has lost of that which has it refuse to change records."""


class TriggerRequest(Struct, frozen=True):
    """One of several triggers that are submitted together; see Runtime.submit."""

    agent: AgentRef
    trigger: Trigger
    admission: Admission = ENQUEUED
    idempotency_key: str | None = None
    body_hash: str = ""


class Runtime(Protocol):
    """Everything that an interface can ask of the running system."""

    @property
    def memory(self) -> AgentMemories:
        """What agents remember."""
        ...

    @property
    def inbox(self) -> Inbox:
        """Webhooks that come in."""
        ...

    @property
    def outbox(self) -> Outbox:
        """What is told of runs' ends."""
        ...

    @property
    def timetable(self) -> Timetable:
        """The schedules."""
        ...

    async def ring(self, tenant: TenantId, schedule_id: ScheduleId) -> Alarm:
        """Fire the tenant's schedule if it is due, as Bell.ring does; return when to ring for it again: never, if the tenant has none.

        Raises StoreUnavailableError, RuntimeUnavailableError.
        """
        ...

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
        ...

    async def submit_all(self, requests: Sequence[TriggerRequest]) -> Sequence[RunAccepted | OwlClawError]:
        """Commit triggers in one transaction and wake their agents; return for each what `submit` would return or raise.

        What is refused keeps nothing else back. Raises StoreUnavailableError if nothing was committed, for sure or perhaps.
        """
        ...

    async def run(self, tenant: TenantId, run_id: RunId) -> Run:
        """Return the run; raises NotFoundError."""
        ...

    async def runs(self, where: RunFilter) -> Sequence[Run]:
        """Return the runs that match, newest first."""
        ...

    def follow(self, tenant: TenantId, run_id: RunId, after: int = 0) -> AbstractAsyncContextManager[Follower]:
        """Follow the run, from the entry behind the one with that seq. A follower that waits reads nothing and costs nobody
        anything; many of one run share what is read.
        """
        ...

    async def watch(self, tenant: TenantId, run_id: RunId, after: int, seconds: float) -> RunProgress:
        """Return the run's committed entries with a seq over `after`: at once if there are any, else when the next one is
        committed, or none after `seconds` or when the run is final. Raises NotFoundError.
        """
        ...

    async def cancel(self, tenant: TenantId, run_id: RunId) -> Run:
        """Ask for the end of a run and return it as it stands; a final run stays as it is. Raises NotFoundError."""
        ...

    async def score(self, tenant: TenantId, run_id: RunId, judgement: Judgement) -> Score:
        """Have the judgement kept beside the run's trace, in the place of an earlier one of its name, and return it.

        Raises NotFoundError, ScoreRefusedError, ReceiverError.
        """
        ...

    async def agents(self, tenant: TenantId, after: str = "", limit: int = 1_000) -> Sequence[AgentView]:
        """Return every definition's agent and every agent with a key that ever had a trigger: those whose ids come after that
        one, in the order of their ids' code points. An agent that appears meanwhile shifts no other to another page.
        """
        ...

    async def agent(self, agent: AgentRef) -> AgentView:
        """Return one agent; raises UnknownAgentError."""
        ...

    async def skills(self, agent: AgentRef) -> Sequence[Skill]:
        """Return the skills of the agent's definition, by name; raises UnknownAgentError, DefinitionError."""
        ...

    async def reload(self, agent: AgentRef) -> AgentView:
        """Read all files of the agent's definition anew; every run that begins after this returned uses what they say.

        Raises UnknownAgentError, DefinitionError (runs fail with it until the files are mended), RuntimeUnavailableError.
        """
        ...

    async def artifacts(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """Return what is stored of the agent's large outputs, the newest first; raises UnknownAgentError."""
        ...

    async def artifact(self, agent: AgentRef, artifact_id: ArtifactId) -> Artifact:
        """Return a large output of one of the agent's tool calls; raises UnknownAgentError, NotFoundError."""
        ...

    async def approvals(self, where: ApprovalFilter) -> Sequence[Approval]:
        """Return the approvals that match, newest first."""
        ...

    async def approval(self, tenant: TenantId, approval_id: ApprovalId) -> Approval:
        """Return the approval; raises NotFoundError."""
        ...

    async def decide(self, tenant: TenantId, approval_id: ApprovalId, decision: ApprovalDecision) -> Approval:
        """Settle a pending approval and wake its agent; deciding the same again changes nothing. When this returns, it is durable.

        Raises NotFoundError, AlreadyDecidedError, ToolArgumentsError if other arguments come with it that do not fit the tool's
        schema, StoreUnavailableError.
        """
        ...

    async def ledger(self, where: LedgerFilter) -> Sequence[ChainedRecord]:
        """Return the ledger records that match, oldest first."""
        ...

    async def ledger_chains(self, tenant: TenantId) -> Sequence[LedgerChain]:
        """Return the recorded ends of the tenant's chains, by writer."""
        ...

    async def verify_ledger(self, tenant: TenantId, since: Sequence[NotedHead] = ()) -> LedgerVerification:
        """Follow all chains of the tenant, record by record, and compare them with the heads that the runtime noted, and `since`."""
        ...

    async def mcp_servers(self) -> Sequence[McpServerView]:
        """Return the MCP servers of the node that answers, by name; raises RuntimeUnavailableError."""
        ...

    async def metrics(self) -> Sequence[MetricFamily]:
        """Return the present numbers of all parts; never raises."""
        ...

    async def health(self) -> Health:
        """Return the state of all parts; never raises."""
        ...
