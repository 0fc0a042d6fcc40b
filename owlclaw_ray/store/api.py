"""The store: commands that change it, outcomes that they have, queries that read it.

Every command is a value, so that many callers' commands can travel in one message and commit in one transaction.
Every command is idempotent: applying it again (because the answer to the first time was lost) changes nothing and has the
same outcome. (What was refused left nothing behind, so it is decided anew.) Commands of an activation carry its epoch and
are refused with StaleEpoch when another activation owns the agent: that check, inside the transaction, is what makes a
single writer certain (fencing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalRequest, ApprovalStatus
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.callback import Callback, CallbackStatus
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord, LedgerKind, LedgerRecord, NotedHead
from owlclaw_ray.domain.run import Run, RunResult, RunStatus
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleFilter, ScheduleStatus, Tick
from owlclaw_ray.domain.task import Task
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.ids import (
    ActivationId,
    ApprovalId,
    CallbackId,
    DeliveryId,
    ReservationId,
    RunId,
    ScheduleId,
    TaskId,
    TenantId,
)


class IdempotencyClaim(Struct, frozen=True):
    """A client's Idempotency-Key and the hash of the body that came with it."""

    key: str
    body_hash: str
    expires_at: datetime


class SubmitRun(Struct, frozen=True):
    """Queue a run, as its `busy` policy says. Outcome: RunAccepted, IdempotencyConflict, AgentBusy or QueueFull.

    - REJECT: AgentBusy while the agent has a running or queued run.
    - COALESCE: a queued run of the agent whose trigger came with this policy and has the same kind and focus, if there is
      one, takes this trigger as its own: the new payload, the higher priority, the later deadline, `merged` grown; a
      trigger_merged entry keeps the old payload. Outcome: RunAccepted of that run, `merged`.
    - INTERRUPT: the running run, if any, gets cancel_requested and interrupted_by.

    A trigger with a lineage binds its agent: every run of the agent that is claimed from then on, whatever triggered it, has that
    lineage, or that of a later trigger, or its own.

    Otherwise the run is queued, unless `queue_limit` runs of the agent are queued already: then QueueFull, and nothing was
    interrupted. The queue's order: interrupts first, then the higher priority, then the order of acceptance. What an
    Idempotency-Key stands for goes before the policy.
    """

    run_id: RunId
    agent: AgentRef
    trigger: Trigger
    at: datetime
    idempotency: IdempotencyClaim | None = None
    busy: BusyPolicy = BusyPolicy.ENQUEUE
    priority: int = 0
    deadline: datetime | None = None
    queue_limit: int | None = None
    callback_urls: tuple[str, ...] = ()
    """Who is told of the end of the run that the trigger becomes, or joins."""


class ActivateAgent(Struct, frozen=True):
    """Take ownership of an agent: its epoch grows by one, whoever had it before is stale. Outcome: AgentActivated.

    Registers the agent when it is new. With the same activation_id twice the epoch grows once. With `claim` the agent's next
    run is taken too, as ClaimRun does.
    """

    agent: AgentRef
    activation_id: ActivationId
    at: datetime
    claim: bool = False


class ClaimRun(Struct, frozen=True):
    """Take the agent's next run: the one that its last owner left (status running), else the first of the queue.

    The run becomes `running` and its journal gets run_started or run_resumed (run_continued, if it has just ceased to wait for
    approvals). Claiming again with the same epoch, while that epoch's run is not finished, returns that run and adds no
    entry. A run that waits blocks its agent's queue. Outcome: RunClaimed, NothingQueued or StaleEpoch.
    """

    agent: AgentRef
    epoch: int
    at: datetime


class AppendJournal(Struct, frozen=True):
    """Append facts to a running run. Outcome: Appended or StaleEpoch.

    `entries` start at the run's next seq; entries whose seq is there already are the same facts, sent again.
    """

    run_id: RunId
    agent: AgentRef
    epoch: int
    entries: tuple[JournalEntry, ...]
    ledger: tuple[LedgerRecord, ...] = ()
    blobs: Mapping[str, str] = field(default_factory=dict)
    """Texts by the hash of their content; known ones are ignored."""


class IdleHeartbeat(Struct, frozen=True):
    """What is left of a heartbeat that found nothing to do: its run, in the place of the one before, and a time more in the tick of
    that one, if no other time lies between them. Its journal is given up.
    """

    replaces: RunId | None
    """The agent's last idle heartbeat."""
    every_seconds: int


class FinishRun(Struct, frozen=True):
    """Append the last facts, set the result, save the agent's state, give back what the run reserved of budgets, all in one;
    then claim the next run if asked. What is to be told of the run's end is to be sent from then on.

    Outcome: RunFinished or StaleEpoch.
    """

    run_id: RunId
    agent: AgentRef
    epoch: int
    entries: tuple[JournalEntry, ...]
    result: RunResult
    state: AgentState
    at: datetime
    ledger: tuple[LedgerRecord, ...] = ()
    blobs: Mapping[str, str] = field(default_factory=dict)
    claim_next: bool = True
    callback_url: str = ""
    """Whom the definition wants told of the end, besides those whom triggers named."""
    deliveries: tuple[DeliveryId, ...] = ()
    """Deliveries that waited for a heartbeat of the agent, and that the run saw. Those that still wait are handled if it completed;
    else the failure counts, and after MAX_FAILURES they are refused.
    """
    idle: IdleHeartbeat | None = None


class AwaitApprovals(Struct, frozen=True):
    """Append the last facts of a running run, store what it asks, and have it wait, all in one. Its activation has it no more.

    Outcome: RunWaiting; Appended if the run was asked to end: then nothing is asked, and it is still the activation's; StaleEpoch.
    """

    run_id: RunId
    agent: AgentRef
    epoch: int
    entries: tuple[JournalEntry, ...]
    requests: tuple[ApprovalRequest, ...]
    ledger: tuple[LedgerRecord, ...] = ()
    blobs: Mapping[str, str] = field(default_factory=dict)


class AwaitRuns(Struct, frozen=True):
    """Append the last facts of a running run, at least one, and have it wait for the ends of other runs, all in one.

    Whether these runs are over already is not looked at: whoever has a run wait tells the store of them (RunEnded).
    Outcome: RunWaiting; Appended if the run was asked to end: then it does not wait, and is still the activation's; StaleEpoch.
    """

    run_id: RunId
    agent: AgentRef
    epoch: int
    entries: tuple[JournalEntry, ...]
    runs: tuple[RunId, ...]
    ledger: tuple[LedgerRecord, ...] = ()
    blobs: Mapping[str, str] = field(default_factory=dict)


class RunEnded(Struct, frozen=True):
    """Have a run wait for these others no more, because they are over. With the last one it is `running` again, for whoever claims it.

    Changes nothing if it waits for none of them. Outcome: RunReleased.
    """

    agent: AgentRef
    run_id: RunId
    """The run that waits, and its agent."""
    ended: tuple[RunId, ...]


class PutTask(Struct, frozen=True):
    """Store a task, if the version that is stored is the `expected` one (0: none is). Outcome: TaskStored or TaskChanged."""

    task: Task
    expected: int
    at: datetime


class DecideApproval(Struct, frozen=True):
    """Settle a pending approval. With the last one of its run the run is `running` again, for whoever claims it first.

    The run's journal and the ledger get the decision in the same commit. Outcome: ApprovalSettled, for the same decision again
    too, even if the run went on since; ApprovalClosed if it was settled otherwise or its time is over; NoSuchApproval.
    """

    tenant: TenantId
    approval_id: ApprovalId
    decision: ApprovalDecision
    at: datetime


class ExpireApproval(Struct, frozen=True):
    """Deny a pending approval whose time is over, as DecideApproval does. Outcome: ApprovalSettled, ApprovalClosed or NoSuchApproval."""

    tenant: TenantId
    approval_id: ApprovalId
    at: datetime


class ReleaseAgent(Struct, frozen=True):
    """End an activation on purpose: the agent has no owner until the next one. Outcome: Released or StaleEpoch."""

    agent: AgentRef
    epoch: int
    state: AgentState
    at: datetime


class CancelRun(Struct, frozen=True):
    """Ask for the end of a run. A queued run is cancelled at once; a running one gets `cancel_requested`. Outcome: CancelOutcome.

    One that waits for approvals gets it too, they are withdrawn, and it is running again for its agent to end it.
    """

    tenant: TenantId
    run_id: RunId
    at: datetime


class ReceiveDelivery(Struct, frozen=True):
    """Store what came in, and with it the run that it triggers. Outcome: DeliveryStored.

    One that waits for a heartbeat registers its agent when that is new.

    One that would wait for a heartbeat of an agent that was started by another is stored as unmapped: it has none.

    A delivery of the same id that is settled stays as it is. One that is not is replaced. If the run is refused, because
    its agent's queue is full or its policy says so, the delivery is stored as refused, with the reason.
    """

    delivery: Delivery
    run: SubmitRun | None = None


class ChangeCallback(Struct, frozen=True):
    """Put this in the place of a callback, if the version that is stored is the one before. Outcome: CallbackStored or CallbackChanged.

    Callbacks are made with the run that they tell of (SubmitRun), or with its end (FinishRun).
    """

    callback: Callback


class ForgetWebhooks(Struct, frozen=True):
    """Remove these deliveries, unless they wait, and these callbacks, if they are delivered or dead. Outcome: WebhooksForgotten."""

    deliveries: tuple[DeliveryId, ...]
    callbacks: tuple[CallbackId, ...]


class CreateSchedule(Struct, frozen=True):
    """Store a schedule. Outcome: ScheduleCreated (the first one, if the id is there already) or TooManySchedules.

    Paused schedules count to the limit as active ones do.
    """

    schedule: Schedule
    limit: int


class CancelSchedule(Struct, frozen=True):
    """Cancel an agent's own schedule, and ask the runs of its firings that are not over to end, but for `caller_run`.

    Outcome: ScheduleCancelled.
    """

    agent: AgentRef
    schedule_id: ScheduleId
    at: datetime
    caller_run: RunId | None = None
    becomes: ScheduleStatus = ScheduleStatus.CANCELLED
    """DONE, if nobody called it off and it has nothing more to do."""


class PauseSchedule(Struct, frozen=True):
    """Keep an agent's own schedule from firing. Outcome: ScheduleChanged, ScheduleClosed or NoSuchSchedule."""

    agent: AgentRef
    schedule_id: ScheduleId
    at: datetime


class ResumeSchedule(Struct, frozen=True):
    """Have a paused schedule go on; one that is not paused stays as it is. Outcome as of PauseSchedule.

    Its next_fire_at stays, so that whoever fires schedules accounts for the due times that passed.
    """

    agent: AgentRef
    schedule_id: ScheduleId
    at: datetime


class FireSchedule(Struct, frozen=True):
    """Account for due times of a schedule and move it on: all of it, or, if a tick's firing_id is there already, nothing.

    Applies only while the schedule is active and its next_fire_at is `expected_due`. Outcome: ScheduleFired or AlreadyFired.
    If the run is refused, because its agent's queue is full, its policy says so, or `overlap` does, its tick is stored as
    skipped, with the reason.
    """

    schedule_id: ScheduleId
    expected_due: datetime
    ticks: tuple[Tick, ...]
    next_fire_at: datetime | None
    run: SubmitRun | None
    overlap: OverlapPolicy = OverlapPolicy.ENQUEUE


class BackfillTick(Struct, frozen=True):
    """Queue a run for a past due time of an agent's own schedule, which stays where it is, and store the tick.

    Changes nothing if the run's id, or the tick's, is there already. Outcome: ScheduleFired, AlreadyFired, QueueFull, ScheduleClosed if the
    schedule is cancelled, NoSuchSchedule.
    """

    agent: AgentRef
    tick: Tick
    run: SubmitRun


class AppendLedger(Struct, frozen=True):
    """Append records that belong to no journal entry. Outcome: LedgerAppended. Records whose id is there already are ignored."""

    records: tuple[LedgerRecord, ...]


class BudgetClaim(Struct, frozen=True):
    """What a call asks of one account: the use of one budget in one of its windows."""

    account: str
    limit: int
    amount: int
    """What it will use, as far as is known; 0 asks only how much is used."""
    expires_at: datetime | None = None
    """When nobody claims of this account any more; None: never."""


class ReserveBudget(Struct, frozen=True):
    """Set aside what a call of a running run may use, in all these accounts or in none. Outcome: BudgetReserved, BudgetSpent or
    StaleEpoch.

    Granted if in each account what is used and what is reserved together are below the limit: so of any number of runs at once
    only the last that is granted may go over it, by less than its own amount. A reservation of the same id that stands is
    granted as it is: whoever takes a run over makes use of it. It stands until it is settled or its run is over.

    Without an epoch it is of a call that a tool makes, for its run, or with an empty run_id for nobody's: no run's end gives that
    one back, so whoever reserves under its id again is granted what is left beside it, and takes its place.
    """

    reservation_id: ReservationId
    run_id: RunId
    agent: AgentRef
    epoch: int | None
    claims: tuple[BudgetClaim, ...]
    at: datetime


class BudgetAlert(Struct, frozen=True):
    """What the ledger is told, once, when an account's use reaches an amount."""

    amount: int
    record: LedgerRecord


class BudgetCharge(Struct, frozen=True):
    """What a call used of one account."""

    account: str
    amount: int
    alerts: tuple[BudgetAlert, ...] = ()


class SettleBudget(Struct, frozen=True):
    """Put what a call used in the place of its reservation. Outcome: BudgetSettled or StaleEpoch.

    Settling what is settled, or was never reserved, changes nothing. An account of the reservation without a charge gets all
    back. Nobody's call (an empty run_id) is charged whether its reservation stands or not: two of them may have shared it.
    """

    reservation_id: ReservationId
    run_id: RunId
    agent: AgentRef
    epoch: int | None
    charges: tuple[BudgetCharge, ...] = ()


Command: TypeAlias = (
    SubmitRun
    | ActivateAgent
    | ClaimRun
    | AppendJournal
    | FinishRun
    | AwaitApprovals
    | AwaitRuns
    | RunEnded
    | PutTask
    | DecideApproval
    | ExpireApproval
    | ReleaseAgent
    | CancelRun
    | CreateSchedule
    | CancelSchedule
    | PauseSchedule
    | ResumeSchedule
    | FireSchedule
    | BackfillTick
    | AppendLedger
    | ReserveBudget
    | SettleBudget
    | ReceiveDelivery
    | ChangeCallback
    | ForgetWebhooks
)


class RunAccepted(Struct, frozen=True, tag=True):
    """The trigger is in the store. `duplicate`: the Idempotency-Key named an earlier run, which run_id and status are of."""

    run_id: RunId
    seq: int
    agent: AgentRef
    duplicate: bool = False
    merged: bool = False
    """The trigger joined this run, which was queued before it."""
    interrupted: RunId | None = None
    """The run that this one interrupted, while it has not ended: it should get a cancel signal."""
    follows: bool = False
    """Another run of the agent was queued, be it behind this one: whoever comes for either takes both, and needs no second wake.

    Never of an interrupt, and known only if the trigger came with a queue_limit.
    """
    scripted: bool = False
    """Whether a script and no model answers this agent. The Runtime knows and says it; stores leave it as it is."""


class IdempotencyConflict(Struct, frozen=True):
    """The key was used for another body."""

    key: str


class AgentBusy(Struct, frozen=True, tag=True):
    """The trigger is refused: the agent executes this run, or, while it executes none, will execute it next."""

    run_id: RunId


class QueueFull(Struct, frozen=True, tag=True):
    """The trigger is refused: the agent has `limit` queued runs or more."""

    limit: int


class AgentActivated(Struct, frozen=True):
    """The agent is owned under this epoch."""

    epoch: int
    state: AgentState
    claimed: RunClaimed | None = None
    """The run to execute now, if one was asked for and there is one."""


class RunClaimed(Struct, frozen=True):
    """The run to execute now, with its journal so far: the entry of this claim included, trigger_merged entries left out."""

    run: Run
    journal: tuple[JournalEntry, ...]
    blobs: Mapping[str, str] = field(default_factory=dict)
    """The texts that a resumed run's prompt_built entry names; empty for a fresh run."""
    payload_left: int = 0
    """The characters of the trigger's payload where that is left out for its size; RunStore.run has it."""


class NothingQueued(Struct, frozen=True):
    """The agent has no run to execute."""


class StaleEpoch(Struct, frozen=True):
    """Another activation owns the agent, under `current`."""

    agent: AgentRef
    current: int


class Appended(Struct, frozen=True):
    """The facts are durable."""

    cancel_requested: bool = False
    interrupted_by: RunId | None = None


class RunFinished(Struct, frozen=True):
    """The end is durable."""

    next: RunClaimed | None = None


class RunWaiting(Struct, frozen=True):
    """The requests are durable, and the run waits: it must not be executed before it is claimed again."""


class RunReleased(Struct, frozen=True):
    """What is known is stored. `resumes`: the run goes on because of it, so its agent should be woken."""

    resumes: bool


class TaskStored(Struct, frozen=True):
    """The task is durable, or was before."""


class TaskChanged(Struct, frozen=True):
    """Somebody else changed it; `task` is what is stored. None: it does not exist."""

    task: Task | None


class ApprovalSettled(Struct, frozen=True):
    """The decision stands. `resumes`: the run goes on because of it, so its agent should be woken."""

    approval: Approval
    resumes: bool


class ApprovalClosed(Struct, frozen=True):
    """The approval is not pending; it was settled like this, and stays so."""

    approval: Approval


class NoSuchApproval(Struct, frozen=True):
    """The tenant has none of that id."""


class Released(Struct, frozen=True):
    """The agent has no owner now. `pending`: it still has queued runs, so it should be activated again."""

    pending: bool = False


class CancelOutcome(Struct, frozen=True):
    """What the cancel found. `run` is None when there is no such run for the tenant; a final run is left as it is."""

    run: Run | None
    waited: bool = False
    """The run waited for approvals until now: its agent should be woken, to end it."""


class ScheduleCreated(Struct, frozen=True):
    """It is stored; `schedule` is what the store has."""

    schedule: Schedule


class TooManySchedules(Struct, frozen=True):
    """The agent has `limit` schedules already that are active or paused."""

    limit: int


class ScheduleCancelled(Struct, frozen=True):
    """`cancelled` is False, with the reason in `message`, when it does not exist for this agent, is done, or was cancelled before."""

    cancelled: bool
    schedule_id: ScheduleId
    message: str
    ending: tuple[RunId, ...] = ()
    """Runs that are asked to end, and have not ended by that: their agent should be woken, and they should get a cancel signal."""
    ended: tuple[RunId, ...] = ()
    """Runs that waited in the queue, and are over by that."""


class ScheduleChanged(Struct, frozen=True):
    """The schedule stands like this."""

    schedule: Schedule


class ScheduleClosed(Struct, frozen=True):
    """The schedule never fires again, and stays so."""

    schedule: Schedule


class NoSuchSchedule(Struct, frozen=True):
    """The agent has none of that id."""


class ScheduleFired(Struct, frozen=True):
    """The due times are accounted for; `run` is what was queued, if anything."""

    run: RunAccepted | None
    ending: tuple[RunId, ...] = ()
    """Runs of earlier firings that are asked to end, as in ScheduleCancelled."""
    ended: tuple[RunId, ...] = ()
    """Those of earlier firings that are over by that."""


class AlreadyFired(Struct, frozen=True):
    """Somebody else accounted for this due time, or the schedule is no longer active."""


class LedgerAppended(Struct, frozen=True):
    """The records are durable."""


class BudgetReserved(Struct, frozen=True):
    """The amounts are set aside. `uses`: each account after that, in the order of the claims."""

    uses: tuple[BudgetUse, ...]


class BudgetSpent(Struct, frozen=True):
    """Nothing is set aside: this account has nothing left."""

    use: BudgetUse


class BudgetSettled(Struct, frozen=True):
    """The use is written down. `alerts`: what the ledger was told."""

    alerts: tuple[LedgerRecord, ...] = ()


class DeliveryStored(Struct, frozen=True):
    """The delivery is durable, like this. `duplicate`: it came before, and changed nothing now."""

    delivery: Delivery
    duplicate: bool = False
    submitted: RunAccepted | AgentBusy | QueueFull | None = None
    """What became of the run that came with it, unless it is a duplicate."""


class CallbackStored(Struct, frozen=True):
    """The callback is durable, or was before."""


class CallbackChanged(Struct, frozen=True):
    """Somebody else changed it; `callback` is what is stored. None: it does not exist."""

    callback: Callback | None


class WebhooksForgotten(Struct, frozen=True):
    """What could be removed is not there any more."""


class CommandFailed(Struct, frozen=True):
    """The command could not be applied though the others of its transaction were. `message` says why."""

    message: str


Outcome: TypeAlias = (
    RunAccepted
    | IdempotencyConflict
    | AgentBusy
    | QueueFull
    | AgentActivated
    | RunClaimed
    | NothingQueued
    | StaleEpoch
    | Appended
    | RunFinished
    | RunWaiting
    | RunReleased
    | TaskStored
    | TaskChanged
    | ApprovalSettled
    | ApprovalClosed
    | NoSuchApproval
    | Released
    | CancelOutcome
    | ScheduleCreated
    | TooManySchedules
    | ScheduleCancelled
    | ScheduleChanged
    | ScheduleClosed
    | NoSuchSchedule
    | ScheduleFired
    | AlreadyFired
    | LedgerAppended
    | BudgetReserved
    | BudgetSpent
    | BudgetSettled
    | DeliveryStored
    | CallbackStored
    | CallbackChanged
    | WebhooksForgotten
    | CommandFailed
)


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


class RunFilter(Struct, frozen=True):
    """Which runs; newest first. Absent fields do not filter."""

    tenant: TenantId
    agent: AgentRef | None = None
    status: RunStatus | None = None
    before_seq: int | None = None
    limit: int = 50
    payloads: bool = True
    """Whether to read what the runs were triggered with; without it their payloads are None."""


class LedgerPlace(Struct, frozen=True, order=True):
    """A record's place in the order in which the ledger is read: by time, then by chain."""

    at: datetime
    writer: str
    position: int

    @classmethod
    def of(cls, record: ChainedRecord) -> LedgerPlace:
        """Return the record's place."""
        return cls(record.record.at, record.writer, record.position)


class ApprovalFilter(Struct, frozen=True):
    """Which approvals; newest first. Absent fields do not filter."""

    tenant: TenantId
    agent: AgentRef | None = None
    run_id: RunId | None = None
    status: ApprovalStatus | None = None
    limit: int = 100


class DeliveryFilter(Struct, frozen=True):
    """Which deliveries; newest first, without their bodies. Absent fields do not filter."""

    tenant: TenantId
    source: str | None = None
    status: DeliveryStatus | None = None
    limit: int = 100


class CallbackFilter(Struct, frozen=True):
    """Which callbacks; newest first. Absent fields do not filter."""

    tenant: TenantId
    agent: AgentRef | None = None
    run_id: RunId | None = None
    status: CallbackStatus | None = None
    limit: int = 100


class LedgerFilter(Struct, frozen=True):
    """Which ledger records; oldest first. Absent fields do not filter."""

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
    """Where to go on."""


class LedgerChain(Struct, frozen=True):
    """A chain's recorded end: how many records it has had, and the hash of the last."""

    writer: str
    position: int
    hash: str


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


class CommandStore(Protocol):
    """What an actor host, an ingress and a scheduler write through."""

    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Commit all commands in one transaction, as if in the order given, and return one outcome each, in order.

        Raises StoreUnavailableError when nothing was committed, for sure or perhaps: apply the same commands again.
        """
        ...


class RunStore(Protocol):
    """Reading runs and agents."""

    async def run(self, tenant: TenantId, run_id: RunId) -> Run | None:
        """Return the run, or None if the tenant has none of that id."""
        ...

    async def runs(self, where: RunFilter) -> Sequence[Run]:
        """Return the runs that match, newest first."""
        ...

    async def journal(self, tenant: TenantId, run_id: RunId, after: int = 0) -> Sequence[JournalEntry]:
        """Return the run's entries with a seq over `after`, in order."""
        ...

    async def watched(self, positions: Sequence[JournalPosition]) -> Sequence[RunProgress | None]:
        """Return what each position has not read, None where the tenant has no such run: all of one moment of the store.

        Of what does not fit into an answer of a few MB the earliest entries come, with `more`.
        """
        ...

    async def moved(self, positions: Sequence[JournalPosition]) -> Sequence[RunId]:
        """Return those runs that are final or have an entry behind the position. It costs little where there are none."""
        ...

    async def active_runs(self) -> Mapping[RunStatus, int]:
        """Return how many runs, of all tenants, are in each status that is not final."""
        ...

    async def agent(self, agent: AgentRef) -> AgentRecord | None:
        """Return what is known of the agent, or None if it never had a trigger."""
        ...

    async def agents(self, tenant: TenantId, after: str = "", limit: int = 1_000) -> Sequence[AgentRecord]:
        """Return the tenant's agents whose ids come after that one, in the order of their ids' code points."""
        ...

    async def agents_with_work(self, limit: int = 10_000) -> Sequence[AgentRef]:
        """Return agents, of all tenants, that have a run to execute, those waiting longest first.

        An agent whose run waits has none, whatever is queued behind it.
        """
        ...

    async def family(
        self, tenant: TenantId, definition: str, key_prefix: str, limit: int = 1_000
    ) -> Sequence[AgentRecord]:
        """Return the agents of a definition whose keys begin like this, by name."""
        ...

    async def agents_of(self, definition: str, limit: int = 1_000) -> Sequence[AgentRef]:
        """Return the agents of a definition that no other agent ever asked for a run, of all tenants, by name."""
        ...

    async def released_runs(self, limit: int = 1_000) -> Sequence[RunEnded]:
        """Return what would be told of runs, of all tenants, that wait for others which are over: nobody told the store."""
        ...


class ScheduleStore(Protocol):
    """Reading schedules."""

    async def due_schedules(self, now: datetime, limit: int = 500) -> Sequence[Schedule]:
        """Return active schedules, of all tenants, whose next_fire_at is not after `now`, the earliest first.

        The cost does not grow with the schedules that are not due.
        """
        ...

    async def next_due(self) -> datetime | None:
        """Return the earliest next_fire_at of all active schedules."""
        ...

    async def upcoming_schedules(self, limit: int) -> Mapping[ScheduleId, datetime]:
        """Return the next_fire_at of active schedules of all tenants, but those of heartbeats: of the earliest ones."""
        ...

    async def schedule(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule | None:
        """Return the schedule, or None if the tenant has none of that id."""
        ...

    async def schedules(self, where: ScheduleFilter) -> Sequence[Schedule]:
        """Return the schedules that match, in a stable order: by agent, then the oldest first."""
        ...

    async def schedules_named(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Schedule]:
        """Return those of these schedules, of all tenants, that there are, in any order."""
        ...

    async def ticks(
        self, schedule_id: ScheduleId, before: datetime | None = None, limit: int = 1_000
    ) -> Sequence[Tick]:
        """Return the schedule's ticks, newest first: those whose due_at is before that time, if one is given."""
        ...


class TaskStore(Protocol):
    """Reading tasks."""

    async def task(self, tenant: TenantId, task_id: TaskId) -> Task | None:
        """Return the task, or None if the tenant has none of that id."""
        ...

    async def tasks(self, owner: AgentRef, limit: int = 100) -> Sequence[Task]:
        """Return the agent's own tasks, newest first."""
        ...


class ApprovalStore(Protocol):
    """Reading approvals."""

    async def approval(self, tenant: TenantId, approval_id: ApprovalId) -> Approval | None:
        """Return the approval, or None if the tenant has none of that id."""
        ...

    async def approvals(self, where: ApprovalFilter) -> Sequence[Approval]:
        """Return the approvals that match, newest first."""
        ...

    async def expired_approvals(self, now: datetime, limit: int = 500) -> Sequence[Approval]:
        """Return pending approvals, of all tenants, whose time is over, the earliest first."""
        ...


class DeliveryStore(Protocol):
    """Reading deliveries."""

    async def delivery(self, tenant: TenantId, delivery_id: DeliveryId) -> Delivery | None:
        """Return the delivery, or None if the tenant has none of that id."""
        ...

    async def deliveries(self, where: DeliveryFilter) -> Sequence[Delivery]:
        """Return the deliveries that match, newest first, without their bodies."""
        ...

    async def waiting_deliveries(self, agent: AgentRef, limit: int = 100) -> Sequence[Delivery]:
        """Return deliveries that wait for a heartbeat of the agent, the oldest first, with their events, without their bodies."""
        ...

    async def paused_heartbeats(self, limit: int = 1_000) -> Sequence[Schedule]:
        """Return paused schedules of the kind heartbeat, of all tenants, of agents for whose heartbeats deliveries wait."""
        ...

    async def old_deliveries(self, before: datetime, limit: int = 500) -> Sequence[DeliveryId]:
        """Return deliveries, of all tenants, that came in before then and do not wait for anything, the oldest first. One whose run
        ended later is not among them.
        """
        ...


class CallbackStore(Protocol):
    """Reading callbacks."""

    async def callback(self, tenant: TenantId, callback_id: CallbackId) -> Callback | None:
        """Return the callback, or None if the tenant has none of that id."""
        ...

    async def callbacks(self, where: CallbackFilter) -> Sequence[Callback]:
        """Return the callbacks that match, newest first."""
        ...

    async def due_callbacks(self, now: datetime, per_host: int, limit: int = 500) -> Sequence[Callback]:
        """Return pending callbacks, of all tenants, whose next_try_at is not after `now`: of each host the earliest ones, at most
        `per_host`; the first of each host before the second of any, the earliest first. The cost grows with the hosts, not with
        what waits for one of them.
        """
        ...

    async def old_callbacks(self, before: datetime, limit: int = 500) -> Sequence[CallbackId]:
        """Return callbacks, of all tenants, that were made, tried and delivered before then, or are dead, the oldest first."""
        ...

    async def pending_callbacks(self) -> int:
        """Return how many callbacks, of all tenants, are to be sent."""
        ...


class LedgerStore(Protocol):
    """Reading the ledger."""

    async def ledger(self, where: LedgerFilter) -> Sequence[ChainedRecord]:
        """Return the records that match, oldest first."""
        ...

    async def verify_ledger(self, tenant: TenantId, noted: Sequence[NotedHead] = ()) -> Sequence[ChainBreak]:
        """Return every place where a chain of the tenant is broken: none, if no record was changed or removed.

        A chain is broken, too, if it does not have the hash of a noted head of it at the head's position.
        """
        ...

    async def missing_guards(self) -> Sequence[str]:
        """Return what is missing of that which has the store itself refuse to change records: none, as long as nobody takes it away."""
        ...

    async def ledger_chains(self, tenant: TenantId) -> Sequence[LedgerChain]:
        """Return the recorded ends of the tenant's chains, by writer."""
        ...


class Store(
    CommandStore,
    RunStore,
    ScheduleStore,
    TaskStore,
    ApprovalStore,
    DeliveryStore,
    CallbackStore,
    LedgerStore,
    Protocol,
):
    """The whole store."""

    async def check_writable(self) -> None:
        """Return if something could be committed within the last second; raises StoreUnavailableError if it cannot."""
        ...

    async def close(self) -> None:
        """Release connections and files."""
        ...
