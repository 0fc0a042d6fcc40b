"""Approvals: a tool call that waits for a person, and what the person says (T7)."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.ids import ApprovalId, RunId, ToolCallId


class Decision(Enum):
    """What a person says to a call."""

    ALLOW_ONCE = "allow_once"
    """This call may run."""
    ALLOW_FOR_SESSION = "allow_for_session"
    """This call may run, and so may others of the same tool and target while the agent stays in memory."""
    DENY = "deny"
    """This call must not run. It says nothing of later ones."""


class ApprovalStatus(Enum):
    """Where an approval stands."""

    PENDING = "pending"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    """Nobody decided in time: that is a denial."""
    WITHDRAWN = "withdrawn"
    """The run was cancelled or interrupted first."""


class ApprovalRequest(Struct, frozen=True):
    """All that a person needs to judge a call."""

    approval_id: ApprovalId
    """Derived from run and call: a call asks once, however often the asking is repeated."""
    agent: AgentRef
    run_id: RunId
    call_id: ToolCallId
    tool: str
    """Canonical name."""
    description: str
    permission: str
    tags: tuple[str, ...]
    reason: str
    """Why the call asks: which rule, or which default."""
    arguments: JsonObject
    """What the tool would get: the model's arguments, or those that a hook put in their place."""
    written: str
    """The arguments as the model wrote them."""
    input_schema: JsonObject
    """What arguments must fit, those that an approver puts in their place too."""
    target: str
    """What the call acts on, in its normal form: `allow_for_session` is for this target."""
    requested_at: datetime
    expires_at: datetime
    cwd: str = ""
    """Where the tool would work, if it says."""
    hooks: tuple[JsonObject, ...] = ()
    """What hooks did to the call."""
    trigger: str = ""
    """The kind of the run's trigger."""
    source: str = ""
    """What fired the run: a schedule, or the run of a parent agent."""
    parent: str = ""
    """The agent that started the one that asks, if one did."""
    started_as: str = ""
    """What the agent is to its parent: `sub_agent`, `fork` or `worker`."""

    @property
    def role(self) -> str:
        """What kind of agent asks: the name of its definition."""
        return self.agent.definition


class ApprovalDecision(Struct, frozen=True):
    """What was decided."""

    decision: Decision
    reason: str = ""
    by: str = ""
    """Who decided, as far as it is known."""
    arguments: JsonObject | None = None
    """Other arguments for the call, if the approver changed them."""

    @property
    def allows(self) -> bool:
        """Whether the call may run."""
        return self.decision is not Decision.DENY


class Approval(Struct, frozen=True):
    """An approval as the store knows it."""

    request: ApprovalRequest
    status: ApprovalStatus = ApprovalStatus.PENDING
    decision: ApprovalDecision | None = None
    """None while it is pending, and if it was withdrawn."""
    decided_at: datetime | None = None
