"""The JSON of approvals, in journal, ledger and store: made here, read here."""

from __future__ import annotations

from datetime import datetime

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalRequest, Decision
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.ids import ApprovalId, RunId, ToolCallId


def request_data(request: ApprovalRequest) -> JsonObject:
    """Return the data of an approval_requested entry: everything but whose it is."""
    return {
        "approval_id": request.approval_id,
        "call_id": request.call_id,
        "tool": request.tool,
        "description": request.description,
        "permission": request.permission,
        "tags": list(request.tags),
        "reason": request.reason,
        "arguments": request.arguments,
        "written": request.written,
        "input_schema": request.input_schema,
        "target": request.target,
        "cwd": request.cwd,
        "hooks": list(request.hooks),
        "trigger": request.trigger,
        "source": request.source,
        "parent": request.parent,
        "started_as": request.started_as,
        "expires_at": request.expires_at.isoformat(),
    }


def request_of(
    data: JsonObject, *, agent: AgentRef, run_id: RunId, requested_at: datetime, expires_at: datetime
) -> ApprovalRequest:
    """Return the request that `request_data` made into JSON."""
    return ApprovalRequest(
        approval_id=ApprovalId(data["approval_id"]),
        agent=agent,
        run_id=run_id,
        call_id=ToolCallId(data["call_id"]),
        tool=data["tool"],
        description=data["description"],
        permission=data["permission"],
        tags=tuple(data["tags"]),
        reason=data["reason"],
        arguments=data["arguments"],
        written=data["written"],
        input_schema=data["input_schema"],
        target=data["target"],
        requested_at=requested_at,
        expires_at=expires_at,
        cwd=data["cwd"],
        hooks=tuple(data["hooks"]),
        trigger=data["trigger"],
        source=data["source"],
        parent=data["parent"],
        started_as=data["started_as"],
    )


def requested_record(request: ApprovalRequest) -> JsonObject:
    """Return the data of the ledger record of a request."""
    schema = "input_schema"
    return {"what": "requested", **{key: value for key, value in request_data(request).items() if key != schema}}


def granted_record(approval_id: ApprovalId, call_id: ToolCallId, tool: str, target: str) -> JsonObject:
    """Return the data of the ledger record of a call that an earlier approval allowed for the session."""
    return {"what": "granted", "approval_id": approval_id, "call_id": call_id, "tool": tool, "target": target}


def decision_data(decision: ApprovalDecision) -> JsonObject:
    """Return the JSON of a decision."""
    data: JsonObject = {"decision": decision.decision.value, "reason": decision.reason, "by": decision.by}
    if decision.arguments is not None:
        data["arguments"] = decision.arguments
    return data


def decision_of(data: JsonObject) -> ApprovalDecision:
    """Return the decision that `decision_data` made into JSON, be it among other data."""
    return ApprovalDecision(Decision(data["decision"]), data["reason"], data["by"], data.get("arguments"))


def approval_decided(approval: Approval) -> JsonObject:
    """Return the data of the approval_decided entry of an approval that somebody decided."""
    assert approval.decision is not None
    request = approval.request
    place = {"approval_id": request.approval_id, "call_id": request.call_id, "tool": request.tool}
    return {**place, "status": approval.status.value, **decision_data(approval.decision)}


def decided_record(approval: Approval) -> JsonObject:
    """Return the data of the ledger record of an approval's end, withdrawal included."""
    if approval.decision is not None:
        return {"what": "decided", **approval_decided(approval)}
    request = approval.request
    place = {"approval_id": request.approval_id, "call_id": request.call_id, "tool": request.tool}
    return {"what": "decided", **place, "status": approval.status.value}
