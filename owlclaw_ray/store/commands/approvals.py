"""Commands about approvals, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalRequest
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.ids import ApprovalId, RunId, TenantId


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


class DecideApproval(Struct, frozen=True):
    """Settle a pending approval. With the last one of its run the run is `running` again, for whoever claims it first.

    The run's journal and the ledger get the decision in the same commit. Where several principals must allow the call, an allowance
    settles it if it is the last that is needed, a denial at once. Outcome: ApprovalSettled, for the same decision again
    too, even if the run went on since; AllowanceStored; ApprovalClosed if it was settled otherwise or its time is over;
    NoSuchApproval.
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


class ApprovalSettled(Struct, frozen=True):
    """The decision stands. `resumes`: the run goes on because of it, so its agent should be woken."""

    approval: Approval
    resumes: bool


class AllowanceStored(Struct, frozen=True):
    """The allowance is stored and in the ledger, and the approval pending still: others must allow the call, too."""

    approval: Approval


class ApprovalClosed(Struct, frozen=True):
    """The approval is not pending; it was settled like this, and stays so."""

    approval: Approval


class NoSuchApproval(Struct, frozen=True):
    """The tenant has none of that id."""
