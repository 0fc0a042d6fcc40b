"""Commands that change the store, by subject, and the outcomes that they have.

Every command is a value, so that many callers' commands can travel in one message and commit in one transaction.
Every command is idempotent: applying it again (because the answer to the first time was lost) changes nothing and has the
same outcome. (What was refused left nothing behind, so it is decided anew.) Commands of an activation carry its epoch and
are refused with StaleEpoch when another activation owns the agent: that check, inside the transaction, is what makes a
single writer certain (fencing).
"""

from __future__ import annotations

from typing import TypeAlias

from owlclaw_ray.store.commands.access import (
    KeyChanged,
    KeyStored,
    KeyUseNoted,
    NoteKeyUse,
    PutKey,
    PutTenant,
    TenantChanged,
    TenantStored,
)
from owlclaw_ray.store.commands.approvals import (
    AllowanceStored,
    ApprovalClosed,
    ApprovalSettled,
    AwaitApprovals,
    DecideApproval,
    ExpireApproval,
    NoSuchApproval,
)
from owlclaw_ray.store.commands.artifacts import (
    ArtifactsForgotten,
    ArtifactStored,
    ForgetArtifacts,
    OldArtifact,
    PutArtifact,
    PutArtifactPart,
)
from owlclaw_ray.store.commands.attempts import (
    AttemptBegun,
    AttemptRevoked,
    AttemptsForgotten,
    BeginAttempt,
    ForgetAttempts,
    RevokeAttempt,
)
from owlclaw_ray.store.commands.concurrency_limits import ConcurrencyLimitsNoted, NoteConcurrencyLimits
from owlclaw_ray.store.commands.lease import (
    ClusterLease,
    EndHandover,
    HandoverEnded,
    HoldLease,
    LeaseElsewhere,
    LeaseHeld,
    LeaseReleased,
    ReleaseLease,
    StaleTerm,
)
from owlclaw_ray.store.commands.ledger import (
    AppendLedger,
    BudgetAlert,
    BudgetCharge,
    BudgetClaim,
    BudgetReserved,
    BudgetSettled,
    BudgetSpent,
    LedgerAppended,
    ReserveBudget,
    SettleBudget,
)
from owlclaw_ray.store.commands.leftovers import (
    ForgetSchedules,
    ForgetTexts,
    ForgetTicks,
    NoteSweep,
    OldSchedule,
    OldTick,
    Swept,
)
from owlclaw_ray.store.commands.memories import ChangeMemories, DocumentChange, MemoriesChanged, MemoriesStored
from owlclaw_ray.store.commands.nodes import (
    ClusterNode,
    ForgetNode,
    HoldNode,
    JoinNode,
    MarkNode,
    NodeChanged,
    NodeExcluded,
    NodeForgotten,
    NodeHeld,
    NodeLost,
    NodeMarked,
    NodeState,
)
from owlclaw_ray.store.commands.old_runs import ForgetEntries, ForgetRuns, OldRun, RunsForgotten
from owlclaw_ray.store.commands.queue_lengths import NoteQueueLengths, QueueLengthsNoted
from owlclaw_ray.store.commands.runs import (
    ActivateAgent,
    AgentActivated,
    AgentBusy,
    AgentLeaving,
    Appended,
    AppendJournal,
    AwaitRuns,
    CancelOutcome,
    CancelRun,
    ClaimRun,
    CommandBlocked,
    CommandFailed,
    FinishRun,
    IdempotencyClaim,
    IdempotencyConflict,
    IdleHeartbeat,
    NothingQueued,
    OnStandby,
    QueueFull,
    QuotaReached,
    ReleaseAgent,
    Released,
    RunAccepted,
    RunClaimed,
    RunEnded,
    RunFinished,
    RunReleased,
    RunWaiting,
    StaleEpoch,
    SubmitRun,
)
from owlclaw_ray.store.commands.schedules import (
    AlreadyFired,
    BackfillTick,
    CancelSchedule,
    CreateSchedule,
    FireSchedule,
    NoSuchSchedule,
    PauseSchedule,
    ResumeSchedule,
    ScheduleCancelled,
    ScheduleChanged,
    ScheduleClosed,
    ScheduleCreated,
    ScheduleFired,
    TooManySchedules,
)
from owlclaw_ray.store.commands.secrets import DeleteSecret, PutSecret, ReplaceCiphertext, SecretsChanged
from owlclaw_ray.store.commands.tasks import PutTask, TaskChanged, TaskStored
from owlclaw_ray.store.commands.tenants import (
    EndRun,
    RemoveTenantRows,
    RunIsOver,
    SealTenant,
    TenantLeft,
    TenantRowsRemoved,
    TenantSealed,
)
from owlclaw_ray.store.commands.trace_export import ExportNoted, NoteExported
from owlclaw_ray.store.commands.webhooks import (
    CallbackChanged,
    CallbackStored,
    ChangeCallback,
    DeliveryStored,
    ForgetWebhooks,
    ReceiveDelivery,
    WebhooksForgotten,
)

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
    | ForgetRuns
    | ForgetEntries
    | ForgetTicks
    | ForgetSchedules
    | ForgetTexts
    | NoteSweep
    | HoldLease
    | ReleaseLease
    | EndHandover
    | ChangeMemories
    | BeginAttempt
    | RevokeAttempt
    | ForgetAttempts
    | PutArtifactPart
    | PutArtifact
    | ForgetArtifacts
    | JoinNode
    | HoldNode
    | MarkNode
    | ForgetNode
    | NoteExported
    | NoteConcurrencyLimits
    | NoteQueueLengths
    | PutKey
    | NoteKeyUse
    | PutTenant
    | EndRun
    | RemoveTenantRows
    | SealTenant
    | PutSecret
    | ReplaceCiphertext
    | DeleteSecret
)

Outcome: TypeAlias = (
    RunAccepted
    | IdempotencyConflict
    | AgentBusy
    | QueueFull
    | QuotaReached
    | AgentActivated
    | OnStandby
    | AgentLeaving
    | LeaseHeld
    | LeaseElsewhere
    | LeaseReleased
    | StaleTerm
    | HandoverEnded
    | NodeHeld
    | NodeExcluded
    | NodeLost
    | NodeMarked
    | NodeChanged
    | NodeForgotten
    | KeyStored
    | KeyChanged
    | KeyUseNoted
    | TenantStored
    | TenantChanged
    | RunIsOver
    | TenantRowsRemoved
    | TenantSealed
    | TenantLeft
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
    | AllowanceStored
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
    | RunsForgotten
    | Swept
    | MemoriesStored
    | MemoriesChanged
    | AttemptBegun
    | AttemptRevoked
    | AttemptsForgotten
    | ArtifactStored
    | ArtifactsForgotten
    | ExportNoted
    | ConcurrencyLimitsNoted
    | QueueLengthsNoted
    | SecretsChanged
    | CommandBlocked
    | CommandFailed
)

__all__ = [
    "ActivateAgent",
    "AgentActivated",
    "AgentBusy",
    "AgentLeaving",
    "AllowanceStored",
    "AlreadyFired",
    "AppendJournal",
    "AppendLedger",
    "Appended",
    "ApprovalClosed",
    "ApprovalSettled",
    "ArtifactStored",
    "ArtifactsForgotten",
    "AttemptBegun",
    "AttemptRevoked",
    "AttemptsForgotten",
    "AwaitApprovals",
    "AwaitRuns",
    "BackfillTick",
    "BeginAttempt",
    "BudgetAlert",
    "BudgetCharge",
    "BudgetClaim",
    "BudgetReserved",
    "BudgetSettled",
    "BudgetSpent",
    "CallbackChanged",
    "CallbackStored",
    "CancelOutcome",
    "CancelRun",
    "CancelSchedule",
    "ChangeCallback",
    "ChangeMemories",
    "ClaimRun",
    "ClusterLease",
    "ClusterNode",
    "Command",
    "CommandBlocked",
    "CommandFailed",
    "ConcurrencyLimitsNoted",
    "CreateSchedule",
    "DecideApproval",
    "DeleteSecret",
    "DeliveryStored",
    "DocumentChange",
    "EndHandover",
    "EndRun",
    "ExpireApproval",
    "ExportNoted",
    "FinishRun",
    "FireSchedule",
    "ForgetArtifacts",
    "ForgetAttempts",
    "ForgetEntries",
    "ForgetNode",
    "ForgetRuns",
    "ForgetSchedules",
    "ForgetTexts",
    "ForgetTicks",
    "ForgetWebhooks",
    "HandoverEnded",
    "HoldLease",
    "HoldNode",
    "IdempotencyClaim",
    "IdempotencyConflict",
    "IdleHeartbeat",
    "JoinNode",
    "KeyChanged",
    "KeyStored",
    "KeyUseNoted",
    "LeaseElsewhere",
    "LeaseHeld",
    "LeaseReleased",
    "LedgerAppended",
    "MarkNode",
    "MemoriesChanged",
    "MemoriesStored",
    "NoSuchApproval",
    "NoSuchSchedule",
    "NodeChanged",
    "NodeExcluded",
    "NodeForgotten",
    "NodeHeld",
    "NodeLost",
    "NodeMarked",
    "NodeState",
    "NoteConcurrencyLimits",
    "NoteExported",
    "NoteKeyUse",
    "NoteQueueLengths",
    "NoteSweep",
    "NothingQueued",
    "OldArtifact",
    "OldRun",
    "OldSchedule",
    "OldTick",
    "OnStandby",
    "Outcome",
    "PauseSchedule",
    "PutArtifact",
    "PutArtifactPart",
    "PutKey",
    "PutSecret",
    "PutTask",
    "PutTenant",
    "QueueFull",
    "QueueLengthsNoted",
    "QuotaReached",
    "ReceiveDelivery",
    "ReleaseAgent",
    "ReleaseLease",
    "Released",
    "RemoveTenantRows",
    "ReplaceCiphertext",
    "ReserveBudget",
    "ResumeSchedule",
    "RevokeAttempt",
    "RunAccepted",
    "RunClaimed",
    "RunEnded",
    "RunFinished",
    "RunIsOver",
    "RunReleased",
    "RunWaiting",
    "RunsForgotten",
    "ScheduleCancelled",
    "ScheduleChanged",
    "ScheduleClosed",
    "ScheduleCreated",
    "ScheduleFired",
    "SealTenant",
    "SecretsChanged",
    "SettleBudget",
    "StaleEpoch",
    "StaleTerm",
    "SubmitRun",
    "Swept",
    "TaskChanged",
    "TaskStored",
    "TenantChanged",
    "TenantLeft",
    "TenantRowsRemoved",
    "TenantSealed",
    "TenantStored",
    "TooManySchedules",
    "WebhooksForgotten",
]
