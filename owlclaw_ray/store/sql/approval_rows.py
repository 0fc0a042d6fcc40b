"""Approvals, to rows and from them."""

from __future__ import annotations

from typing import Any

from owlclaw_ray.domain.approval import Approval, ApprovalStatus
from owlclaw_ray.domain.approval_entries import decision_data, decision_of, request_data, request_of
from owlclaw_ray.store.sql.codec import (
    agent_key,
    agent_of,
    dump,
    from_micros,
    load,
    optional_micros,
    optional_time,
    to_micros,
)
from owlclaw_ray.store.sql.schema import approvals

APPROVAL_COLUMNS = tuple(approvals.c)


def approval_row(approval: Approval) -> tuple[Any, ...]:
    """Return the values of APPROVAL_COLUMNS."""
    request = approval.request
    return (
        request.approval_id,
        request.agent.tenant,
        agent_key(request.agent),
        request.run_id,
        approval.status.value,
        to_micros(request.requested_at),
        to_micros(request.expires_at),
        dump(request_data(request)),
        _decision(approval),
        optional_micros(approval.decided_at),
    )


def settled_row(approval: Approval) -> tuple[Any, ...]:
    """Return what changes when an approval is settled, then its id."""
    decided_at = optional_micros(approval.decided_at)
    return (approval.status.value, _decision(approval), decided_at, approval.request.approval_id)


def approval_of(row: Any) -> Approval:
    """Return the approval of a row that has APPROVAL_COLUMNS."""
    request = request_of(
        load(row.request),
        agent=agent_of(row.agent),
        run_id=row.run_id,
        requested_at=from_micros(row.requested_at),
        expires_at=from_micros(row.expires_at),
    )
    decision = None if row.decision is None else decision_of(load(row.decision))
    return Approval(request, ApprovalStatus(row.status), decision, optional_time(row.decided_at))


def _decision(approval: Approval) -> str | None:
    return None if approval.decision is None else dump(decision_data(approval.decision))
