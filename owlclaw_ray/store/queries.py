"""Queries: what can be read of the store. Each is a value that says what is wanted; its type says what the answer is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from msgspec import Struct

from owlclaw_ray.domain.access_key import AccessKey
from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.approval import Approval, ApprovalStatus
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.callback import Callback, CallbackStatus
from owlclaw_ray.domain.concurrency_limit import NotedLimit
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord, LedgerKind, NotedHead
from owlclaw_ray.domain.memory import StoredDocument
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.schedule import Schedule, ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.domain.task import Task
from owlclaw_ray.domain.tenant import Tenant, TenantStatus
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.ids import (
    ActivationId,
    AgentId,
    ApprovalId,
    CallbackId,
    DeliveryId,
    KeyId,
    RunId,
    ScheduleId,
    TaskId,
    TenantId,
)
from owlclaw_ray.ledger.chain import ChainHead
from owlclaw_ray.store.commands import ClusterNode, RunEnded

T_co = TypeVar("T_co", covariant=True)
STRETCH = 250
"""Records that one query about a whole ledger reads, so that others have their turn between two of them."""


class Query(Struct, Generic[T_co], frozen=True):
    """A question to the store whose answer is a T_co."""


class AgentRecord(Struct, frozen=True):
    """An agent as the store knows it."""

    agent: AgentRef
    epoch: int
    activation_id: ActivationId | None
    """None while no activation owns it."""
    state: AgentState
    created_at: datetime
    queued_runs: int
    running_run: RunId | None
    """The run that it has begun, be it that this waits for an approval."""
    running_status: RunStatus | None = None
    """Whether that run is running or waiting."""


class JournalPosition(Struct, frozen=True):
    """How far somebody has read the journal of a run."""

    tenant: TenantId
    run_id: RunId
    after: int = 0
    """The seq of the last entry that was read."""


class RunProgress(Struct, frozen=True):
    """What has become of a run since a position."""

    entries: tuple[JournalEntry, ...]
    status: RunStatus
    more: bool = False
    """There are entries behind these: they did not fit into one answer."""

    @property
    def over(self) -> bool:
        """Whether the run is final and these entries are its last ones."""
        return self.status.final and not self.more


class LedgerPlace(Struct, frozen=True, order=True):
    """A record's place in the order in which the ledger is read: by time, then by chain."""

    at: datetime
    writer: str
    position: int

    @classmethod
    def of(cls, record: ChainedRecord) -> LedgerPlace:
        """Return the record's place."""
        return cls(record.record.at, record.writer, record.position)


class LedgerChain(Struct, frozen=True):
    """A chain's recorded end: how many records it has had, and the hash of the last."""

    writer: str
    position: int
    hash: str


class RunById(Query["Run | None"], frozen=True):
    """The run, or None if the tenant has none of that id."""

    tenant: TenantId
    run_id: RunId


class RunFilter(Query[Sequence[Run]], frozen=True):
    """The runs that match, newest first. Absent fields do not filter."""

    tenant: TenantId
    agent: AgentRef | None = None
    status: RunStatus | None = None
    before_seq: int | None = None
    limit: int = 50
    payloads: bool = True
    """Whether to read what the runs were triggered with; without it their payloads are None."""


class JournalOfRun(Query[Sequence[JournalEntry]], frozen=True):
    """The run's entries with a seq over `after`, in order."""

    tenant: TenantId
    run_id: RunId
    after: int = 0


class JournalTail(Query[Sequence[JournalEntry]], frozen=True):
    """The last entries of the run's journal, at most `limit` of them, in order; of those with a seq under `before`, if that is said."""

    tenant: TenantId
    run_id: RunId
    before: int | None = None
    limit: int = 200


class EntriesOfKinds(Query[Sequence[JournalEntry]], frozen=True):
    """The run's entries of these kinds with a seq over `after`, the first `limit` of them in order."""

    tenant: TenantId
    run_id: RunId
    kinds: tuple[EntryKind, ...]
    after: int = 0
    limit: int = 1_000


class PromptTexts(Query[Mapping[str, str]], frozen=True):
    """The texts that the run's prompt_built entry names by their hashes: its system message, and the schemas of its tools."""

    tenant: TenantId
    run_id: RunId


class ProgressOfRuns(Query["Sequence[RunProgress | None]"], frozen=True):
    """What each position has not read, None where the tenant has no such run: all of one moment of the store.

    Of what does not fit into an answer of a few MB the earliest entries come, with `more`.
    """

    positions: Sequence[JournalPosition]


class ChangedRuns(Query[Sequence[RunId]], frozen=True):
    """Those runs that are final or have an entry behind the position. It costs little where there are none."""

    positions: Sequence[JournalPosition]


class AgentQueue(Struct, frozen=True):
    """The queue of an agent."""

    oldest: Run
    """Of the queued runs the one that was accepted first, without its payload."""
    length: int


class LongestQueues(Query[Sequence[AgentQueue]], frozen=True):
    """The longest queues of the tenant's agents, the longest first. What is read grows with the runs that are queued."""

    tenant: TenantId
    limit: int


class ActiveRunCounts(Query[Mapping[RunStatus, int]], frozen=True):
    """How many runs, of all tenants, are in each status that is not final."""


class ReleasedRuns(Query[Sequence[RunEnded]], frozen=True):
    """The commands that release runs, of all tenants, that wait for others which are over, and of which the store was not told."""

    limit: int = 1_000


class Upkeep(StrEnum):
    """Work that nobody asks for, of all tenants together."""

    RELEASED_RUNS = "released_runs"
    """Runs may wait for others that are over, see ReleasedRuns."""
    EXPIRED_APPROVALS = "expired_approvals"
    """See ExpiredApprovals."""
    TENANT_DELETIONS = "tenant_deletions"
    """Tenants are being deleted."""


class DueUpkeep(Query[frozenset[Upkeep]], frozen=True):
    """What upkeep there is to do: one question instead of one for each kind, which nearly always finds nothing."""

    now: datetime


class ClusterNodes(Query[Sequence[ClusterNode]], frozen=True):
    """The nodes of all clusters that use the store, by id."""


class ConcurrencyLimits(Query[Sequence[NotedLimit]], frozen=True):
    """What gateways noted of what is asked at `since` or later, by their nodes' ids."""

    asked: str
    since: datetime


class KeyById(Query["AccessKey | None"], frozen=True):
    """The access key of that id: of any tenant, which is for who checks keys, or of that one."""

    key_id: KeyId
    tenant: TenantId | None = None


class KeysOfTenant(Query[Sequence[AccessKey]], frozen=True):
    """The tenant's access keys whose ids come after that one, by id, revoked and expired ones too."""

    tenant: TenantId
    after: str = ""
    limit: int = 1_000


class TenantById(Query["Tenant | None"], frozen=True):
    """What is stored of a tenant; None for the default one as long as nothing was said of it."""

    tenant: TenantId


class BudgetUses(Query[Sequence[BudgetUse]], frozen=True):
    """What is used of these accounts; those of which nothing ever was are left out."""

    accounts: tuple[str, ...]


class TenantPage(Query[Sequence[Tenant]], frozen=True):
    """The tenants that are stored, by id, from after that one on; with a status those that have it."""

    after: str = ""
    limit: int = 1_000
    status: TenantStatus | None = None


class IsAccessControlled(Query[bool], frozen=True):
    """Whether there is, or was, any access key or tenant: then nobody is let in without a key."""


class AgentByRef(Query["AgentRecord | None"], frozen=True):
    """What is known of the agent, or None if it never had a trigger."""

    agent: AgentRef


class AgentPage(Query[Sequence[AgentRecord]], frozen=True):
    """The tenant's agents whose ids come after that one, in the order of their ids' code points.

    What is read grows with the page, or with the runs of the tenant that are not over if only busy agents are wanted, or with the agents
    that have what is asked for.
    """

    tenant: TenantId
    after: str = ""
    limit: int = 1_000
    prefix: str = ""
    """Only agents whose ids begin like this."""
    busy: bool = False
    """Only agents with a run that is queued, running or waiting."""
    with_open_breaker: bool = False
    """Only agents in whose saved state a breaker is not closed."""


class AgentsByIds(Query[Sequence[AgentRecord]], frozen=True):
    """What is known of these agents of the tenant, in any order; nothing of those that never had a trigger."""

    tenant: TenantId
    agent_ids: tuple[AgentId, ...]


class AgentsWithWork(Query[Sequence[AgentRef]], frozen=True):
    """Agents that have a run to execute, of each tenant in turn the one waiting longest: many agents of one hide nobody else's.

    An agent whose run waits has none, whatever is queued behind it; nor has one whose tenant is suspended, or executes as many runs as
    its quota `running_runs` allows, or whose run counts for a key of which as many are executed, or which a cluster that is leaving still
    holds (see ReleaseLease). The first `skip` of them are left out: with more than `limit` who skips further each time, and then begins
    again, has seen each that goes on having work.
    """

    limit: int = 10_000
    skip: int = 0


class AgentsByKeyPrefix(Query[Sequence[AgentRecord]], frozen=True):
    """The agents of a definition whose keys begin like this, by name."""

    tenant: TenantId
    definition: str
    key_prefix: str
    limit: int = 1_000


class AgentsOfDefinition(Query[Sequence[AgentRef]], frozen=True):
    """The agents of a definition that no other agent ever asked for a run, of all tenants, by name."""

    definition: str
    limit: int = 1_000


class DueSchedules(Query[Sequence[Schedule]], frozen=True):
    """Active schedules, of all tenants, whose next_fire_at is not after `now`, the earliest first.

    The cost does not grow with the schedules that are not due.
    """

    now: datetime
    limit: int = 500


class NextDueTime(Query["datetime | None"], frozen=True):
    """The earliest next_fire_at of all active schedules."""


class UpcomingSchedules(Query[Mapping[ScheduleId, datetime]], frozen=True):
    """The next_fire_at of active schedules of all tenants, but those of heartbeats: of the earliest ones."""

    limit: int


class ScheduleById(Query["Schedule | None"], frozen=True):
    """The schedule, or None if the tenant has none of that id."""

    tenant: TenantId
    schedule_id: ScheduleId


class ScheduleFilter(Query[Sequence[Schedule]], frozen=True):
    """The schedules that match, in a stable order: by agent, those of one agent the oldest first. Absent fields do not filter."""

    tenant: TenantId
    agent: AgentRef | None = None
    status: ScheduleStatus | None = None
    after: ScheduleId | None = None
    """Where to go on: the last one of the page before. None is found after one that the tenant, or the agent, does not have."""
    limit: int = 1_000


class ComingSchedules(Query[Sequence[Schedule]], frozen=True):
    """A tenant's active schedules, or an agent's, whose next_fire_at is before `until`, the earliest first."""

    tenant: TenantId
    until: datetime
    agent: AgentRef | None = None
    heartbeats: bool | None = None
    """Whether only heartbeats are meant, or only the others; None: both."""
    limit: int = 1_000


class SchedulesByIds(Query[Sequence[Schedule]], frozen=True):
    """Those of these schedules, of all tenants, that there are, in any order."""

    schedule_ids: Sequence[ScheduleId]


class TicksOfSchedule(Query[Sequence[Tick]], frozen=True):
    """The schedule's ticks, newest first: those whose due_at is before that time, if one is given; none of a schedule that is not that
    tenant's, if one is named.
    """

    schedule_id: ScheduleId
    before: datetime | None = None
    limit: int = 1_000
    tenant: TenantId | None = None


class TickSum(Struct, frozen=True):
    """How many due times of one span had that outcome; missed ones of one tick, whose `last_due_at` may be behind the span, have a
    sum of their own.
    """

    span: int
    """Which of the spans, from 0; -1: it begins before the first one, and goes on in it."""
    outcome: TickOutcome
    count: int
    due_at: datetime
    """The first of them."""
    last_due_at: datetime


class TickSums(Query[Sequence[TickSum]], frozen=True):
    """What became of due times of that tenant's schedule, in each of the spans between `bounds`, of which each begins one span and ends
    the one before.
    """

    tenant: TenantId
    schedule_id: ScheduleId
    bounds: Sequence[datetime]


class PausedHeartbeats(Query[Sequence[Schedule]], frozen=True):
    """Paused schedules of the kind heartbeat, of all tenants, of agents for whose heartbeats deliveries wait."""

    limit: int = 1_000


class DocumentText(Struct, frozen=True):
    """What a document of a memory says: all of it, or what was appended since the version that was asked after."""

    text: bytes
    whole: bool


class AgentMemory(Struct, frozen=True):
    """An agent's memory at one version; 0: there is nothing yet."""

    version: int
    documents: Mapping[str, StoredDocument]
    texts: Mapping[str, DocumentText]
    """Of the documents that were asked for and exist."""


class MemoryOfAgent(Query[AgentMemory], frozen=True):
    """The agent's memory at one moment, with the texts of some documents, each from after a version of the memory on; 0: all of it."""

    agent: AgentRef
    after: Mapping[str, int]


class TaskById(Query["Task | None"], frozen=True):
    """The task, or None if the tenant has none of that id."""

    tenant: TenantId
    task_id: TaskId


class TasksOfAgent(Query[Sequence[Task]], frozen=True):
    """The agent's own tasks, newest first."""

    owner: AgentRef
    limit: int = 100


class ApprovalById(Query["Approval | None"], frozen=True):
    """The approval, or None if the tenant has none of that id."""

    tenant: TenantId
    approval_id: ApprovalId


class Place(Struct, frozen=True):
    """The place of something in an order of times; what has the same time is in the order of ids."""

    at: datetime
    id: str


class ApprovalFilter(Query[Sequence[Approval]], frozen=True):
    """The approvals that match: pending ones with `expiring` in the order in which they expire, all others newest first. Absent fields do
    not filter.
    """

    tenant: TenantId
    agent: AgentRef | None = None
    run_id: RunId | None = None
    status: ApprovalStatus | None = None
    limit: int = 100
    expiring: bool = False
    """Only pending ones, those that expire first before the others."""
    after: Place | None = None
    """Where to go on, in the order that is asked for."""


class PendingApprovalCounts(Query[Mapping[AgentRef, int]], frozen=True):
    """How many of the tenant's approvals are pending for each agent that has any, of the `limit` that were asked for first."""

    tenant: TenantId
    limit: int


class ExpiredApprovals(Query[Sequence[Approval]], frozen=True):
    """Pending approvals, of all tenants, whose time is over, the earliest first."""

    now: datetime
    limit: int = 500


class DeliveryById(Query["Delivery | None"], frozen=True):
    """The delivery, or None if the tenant has none of that id."""

    tenant: TenantId
    delivery_id: DeliveryId


class DeliveryFilter(Query[Sequence[Delivery]], frozen=True):
    """The deliveries that match, newest first, without their bodies. Absent fields do not filter."""

    tenant: TenantId
    source: str | None = None
    status: DeliveryStatus | None = None
    limit: int = 100
    before: Place | None = None
    """Only those that came before."""


class WaitingDeliveries(Query[Sequence[Delivery]], frozen=True):
    """Deliveries that wait for a heartbeat of the agent, the oldest first, with their events, without their bodies."""

    agent: AgentRef
    limit: int = 100


class OldDeliveries(Query[Sequence[DeliveryId]], frozen=True):
    """Deliveries of the tenant that came in before then and do not wait for anything, the oldest first. One whose run ended later
    is not among them.
    """

    tenant: TenantId
    before: datetime
    limit: int = 500


class CallbackById(Query["Callback | None"], frozen=True):
    """The callback, or None if the tenant has none of that id."""

    tenant: TenantId
    callback_id: CallbackId


class CallbackFilter(Query[Sequence[Callback]], frozen=True):
    """The callbacks that match, newest first. Absent fields do not filter."""

    tenant: TenantId
    agent: AgentRef | None = None
    run_id: RunId | None = None
    status: CallbackStatus | None = None
    limit: int = 100
    before: Place | None = None
    """Only those that were made before."""


class DueCallbacks(Query[Sequence[Callback]], frozen=True):
    """Pending callbacks whose next_try_at is not after `now`: of each tenant's hosts the earliest ones, at most `per_host`.

    The first of each tenant come before the second of any, and those of one tenant likewise by host, the earliest first: what one tenant
    has waiting hides nothing of another. The cost grows with the hosts, not with what waits for one of them.
    """

    now: datetime
    per_host: int
    limit: int = 500


class OldCallbacks(Query[Sequence[CallbackId]], frozen=True):
    """Callbacks of the tenant that were made, tried and delivered before then, or are dead, the oldest first."""

    tenant: TenantId
    before: datetime
    limit: int = 500


class PendingCallbackCount(Query[int], frozen=True):
    """How many callbacks, of all tenants, are to be sent."""


class LedgerFilter(Query[Sequence[ChainedRecord]], frozen=True):
    """The ledger records that match, oldest first, or newest first. Absent fields do not filter."""

    tenant: TenantId
    agent: AgentRef | None = None
    run_id: RunId | None = None
    kind: LedgerKind | None = None
    limit: int = 1_000
    tool: str | None = None
    """Records that name this tool."""
    since: datetime | None = None
    until: datetime | None = None
    """Before this time, not at it."""
    after: LedgerPlace | None = None
    """Where to go on, in the order that is asked for."""
    newest_first: bool = False


class LedgerBreaks(Query[Sequence[ChainBreak]], frozen=True):
    """Every place where a chain of the tenant is broken: none, if no record was changed or removed.

    A chain is broken, too, if it does not have the hash of a noted head of it at the head's position. The answer is of one
    moment of the store; every record of the tenant is read, in pages.
    """

    tenant: TenantId
    noted: Sequence[NotedHead] = ()


class LedgerStretch(Struct, frozen=True):
    """What was found in a part of the ledger."""

    records: Sequence[ChainedRecord]
    following: LedgerPlace | None
    """Where to go on; None: there is nothing behind it."""


class NextLedgerStretch(Query[LedgerStretch], frozen=True):
    """Those of the next STRETCH records, of those that match but for their tool, that match in that, too. It is `where.after` that is
    followed, and `where.limit` that is not exceeded.
    """

    where: LedgerFilter

    @property
    def tenant(self) -> TenantId:
        """Whose ledger it is."""
        return self.where.tenant


class LedgerWriters(Query[Sequence[str]], frozen=True):
    """Whose chains of the tenant have a record or a recorded end, in order."""

    tenant: TenantId


class ChainPage(Struct, frozen=True):
    """Some records of a chain, and its recorded end at the same moment."""

    records: Sequence[ChainedRecord]
    head: ChainHead


class NextChainPage(Query[ChainPage], frozen=True):
    """The first STRETCH records of the chain with a position over `after`."""

    tenant: TenantId
    writer: str
    after: int = -1


class MissingLedgerGuards(Query[Sequence[str]], frozen=True):
    """What is missing of that which has the store itself refuse to change records: none, as long as it was not removed."""


class RowSecurityGaps(Query[Sequence[str]], frozen=True):
    """Why the store itself does not refuse what is read for one tenant the rows of others, where it could: none if it does."""


class LedgerChains(Query[Sequence[LedgerChain]], frozen=True):
    """The recorded ends of the tenant's chains, by writer."""

    tenant: TenantId


class HeadsOfWriter(Query[Sequence[ChainHead]], frozen=True):
    """The recorded ends of the chains that this writer writes, of all tenants."""

    writer: str
