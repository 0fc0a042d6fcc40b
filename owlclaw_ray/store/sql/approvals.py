"""Approvals on the working set: a run that waits, and what ends its waiting."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from msgspec.structs import replace

from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalStatus, Decision
from owlclaw_ray.domain.entries import allowed_record, approval_decided, decided_record
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.ids import ApprovalId, RecordId, TenantId, derived_id
from owlclaw_ray.store.commands import (
    AllowanceStored,
    Appended,
    ApprovalClosed,
    ApprovalSettled,
    AwaitApprovals,
    DecideApproval,
    ExpireApproval,
    NoSuchApproval,
    RunWaiting,
    StaleEpoch,
)
from owlclaw_ray.store.sql.codec import from_micros, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.quotas import stop
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.run_lifecycle import appended, check_claimed, need_wait, owned, run_of, store_facts
from owlclaw_ray.store.sql.working_set import EPOCH_AFTER_WAIT, RunRow, WorkingSet

Settled: TypeAlias = ApprovalSettled | AllowanceStored | ApprovalClosed | NoSuchApproval

_EXPIRED = ApprovalDecision(Decision.DENY, "expired")


def _need_requests(needs: RowNeeds, command: AwaitApprovals) -> None:
    need_wait(needs, command)
    needs.approvals.update(each.approval_id for each in command.requests)


@applies(AwaitApprovals, needs=_need_requests)
def await_approvals(store: WorkingSet, command: AwaitApprovals) -> RunWaiting | Appended | StaleEpoch:
    """Have the run wait, unless it does or did, or is to end."""
    agent = owned(store, command.agent, command.epoch)
    if isinstance(agent, StaleEpoch):
        return agent
    if any(each.approval_id in store.approvals for each in command.requests):
        return RunWaiting()
    run = run_of(store, command)
    check_claimed(run, command.epoch)
    store_facts(store, run, command)
    if run.cancel_requested:
        return appended(run)
    for request in command.requests:
        store.put_approval(Approval(request))
    stop(store, run)
    run.status = RunStatus.WAITING
    store.changed_run(run)
    return RunWaiting()


def _need_approval(needs: RowNeeds, command: DecideApproval | ExpireApproval) -> None:
    needs.approvals.add(command.approval_id)
    needs.settled.add(command.approval_id)


@applies(DecideApproval, needs=_need_approval)
def decide(store: WorkingSet, command: DecideApproval) -> Settled:
    """Take the decision, if the approval is pending and its time not over."""
    approval = _approval(store, command.tenant, command.approval_id)
    if approval is None:
        return NoSuchApproval()
    if approval.status is not ApprovalStatus.PENDING:
        if not approval.says_already(command.decision):
            return ApprovalClosed(approval)
        run = store.runs[approval.request.run_id]
        return ApprovalSettled(approval, run.status is RunStatus.RUNNING and run.claimed_epoch == EPOCH_AFTER_WAIT)
    if command.at >= approval.request.expires_at:
        return ApprovalClosed(_settle(store, approval, ApprovalStatus.EXPIRED, _EXPIRED, command.at).approval)
    if not command.decision.allows:
        return _settle(store, approval, ApprovalStatus.DENIED, command.decision, command.at)
    if approval.request.needed_for(command.decision) == 1:
        return _settle(store, approval, ApprovalStatus.ALLOWED, command.decision, command.at)
    if approval.says_already(command.decision):
        return AllowanceStored(approval)
    micros = to_micros(command.at)
    allowed = approval.allowed(command.decision, from_micros(micros))
    _record(store, allowed, f"allowed {micros} {command.decision}", micros, allowed_record(allowed, command.decision))
    if allowed.decision is None:
        store.put_approval(allowed)
        return AllowanceStored(allowed)
    return _settle(store, allowed, ApprovalStatus.ALLOWED, allowed.decision, command.at)


@applies(ExpireApproval, needs=_need_approval)
def expire(store: WorkingSet, command: ExpireApproval) -> Settled:
    """Deny the approval, if it is pending and its time over."""
    approval = _approval(store, command.tenant, command.approval_id)
    if approval is None:
        return NoSuchApproval()
    if approval.status is not ApprovalStatus.PENDING:
        return ApprovalClosed(approval)
    if command.at < approval.request.expires_at:
        return ApprovalClosed(approval)
    return _settle(store, approval, ApprovalStatus.EXPIRED, _EXPIRED, command.at)


def withdraw(store: WorkingSet, run: RunRow, at: int) -> None:
    """Have a run wait no more, with nothing decided: it is to end."""
    for approval in store.pending_approvals_of(run):
        _change(store, replace(approval, status=ApprovalStatus.WITHDRAWN, decided_at=from_micros(at)), at)
    go_on(store, run)


def _settle(
    store: WorkingSet, approval: Approval, status: ApprovalStatus, decision: ApprovalDecision, at: datetime
) -> ApprovalSettled:
    micros = to_micros(at)
    settled = replace(approval, status=status, decision=decision, decided_at=from_micros(micros))
    run = store.runs[approval.request.run_id]
    store.note(run, EntryKind.APPROVAL_DECIDED, micros, approval_decided(settled))
    _change(store, settled, micros)
    resumes = not store.pending_approvals_of(run)
    if resumes:
        go_on(store, run)
    return ApprovalSettled(settled, resumes)


def go_on(store: WorkingSet, run: RunRow) -> None:
    """Have a run wait no more: whoever claims it first goes on with it."""
    run.status, run.claimed_epoch, run.awaits = RunStatus.RUNNING, EPOCH_AFTER_WAIT, None
    store.changed_run(run)


def _change(store: WorkingSet, approval: Approval, at: int) -> None:
    store.put_approval(approval)
    _record(store, approval, "decided", at, decided_record(approval))


def _record(store: WorkingSet, approval: Approval, key: str, at: int, data: JsonObject) -> None:
    request, agent = approval.request, approval.request.agent
    record_id = RecordId(derived_id("rec", request.run_id, "approval", request.approval_id, key))
    kind, moment = LedgerKind.APPROVAL, from_micros(at)
    store.record((LedgerRecord(record_id, agent.tenant, agent.agent_id, request.run_id, kind, moment, data),))


def _approval(store: WorkingSet, tenant: TenantId, approval_id: ApprovalId) -> Approval | None:
    approval = store.approvals.get(approval_id)
    return approval if approval is not None and approval.request.agent.tenant == tenant else None
