"""Approvals: a tool call that waits for a person, and what the person says (T7)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import AccessDeniedError
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
    needed: int = 1
    """How many different principals must allow it."""
    excluded: tuple[str, ...] = ()
    """The principals that may not allow it, because they asked for the run. They may deny it."""
    ends_run: bool = False
    """Whether the run's own deadline is over when this expires: it ends then, and is not told of a denial."""

    @property
    def role(self) -> str:
        """What kind of agent asks: the name of its definition."""
        return self.agent.definition

    def needed_for(self, decision: ApprovalDecision) -> int:
        """Return how many different principals must say this to allow the call: another one than who puts arguments of their own into a
        call that whoever asked for the run may not allow, for nobody else has seen these.
        """
        changed = decision.arguments is not None and decision.arguments != self.arguments
        return max(2, self.needed) if changed and self.excluded else self.needed

    def require_other(self, decision: ApprovalDecision) -> None:
        """Raise AccessDeniedError if the decision allows the call, and is by one of those who may not."""
        if decision.allows and decision.principal in self.excluded:
            raise AccessDeniedError(
                f"{decision.principal} asked for run {self.run_id}, and another person must allow its call of {self.tool} "
                "(permissions.not_by_submitter); who asked may deny it"
            )


class ApprovalDecision(Struct, frozen=True):
    """What was decided."""

    decision: Decision
    reason: str = ""
    by: str = ""
    """Who decided, as far as it is known."""
    arguments: JsonObject | None = None
    """Other arguments for the call, if the approver changed them."""
    principal: str = ""
    """The kind and id of who decided: by this, and not by what is said, people are told apart. Empty: somebody on the machine itself
    while nobody needs a key, which is one person.
    """

    @property
    def allows(self) -> bool:
        """Whether the call may run."""
        return self.decision is not Decision.DENY


class Allowance(Struct, frozen=True):
    """What one of several principals that must allow a call said to it."""

    decision: ApprovalDecision
    at: datetime


class Approval(Struct, frozen=True):
    """An approval as the store knows it."""

    request: ApprovalRequest
    status: ApprovalStatus = ApprovalStatus.PENDING
    decision: ApprovalDecision | None = None
    """None while it is pending, and if it was withdrawn."""
    decided_at: datetime | None = None
    allowed_by: tuple[Allowance, ...] = ()
    """Who allowed a call that several must allow, each with what they said last, in this order."""

    @property
    def still_needed(self) -> int:
        """How many principals more must allow it, if they say the same as the last; 0 if it is not pending."""
        if self.status is not ApprovalStatus.PENDING:
            return 0
        if not self.allowed_by:
            return self.request.needed
        last = self.allowed_by[-1].decision
        return self.request.needed_for(last) - len(_agreeing(self.allowed_by, last))

    def allowed(self, decision: ApprovalDecision, at: datetime) -> Approval:
        """Return the pending approval when this was said, too: allowed if enough principals say the same, else pending still.

        The same means: with the same arguments. For the session it is allowed if all of them say so.
        """
        others = tuple(each for each in self.allowed_by if each.decision.principal != decision.principal)
        now = replace(self, allowed_by=(*others, Allowance(decision, at)))
        agreeing = _agreeing(now.allowed_by, decision)
        if len(agreeing) < self.request.needed_for(decision):
            return now
        if any(each.decision is Decision.ALLOW_ONCE for each in agreeing):
            decision = replace(decision, decision=Decision.ALLOW_ONCE)
        decision = replace(decision, by=" and ".join(each.by for each in agreeing if each.by))
        return replace(now, status=ApprovalStatus.ALLOWED, decision=decision, decided_at=at)

    def says_already(self, decision: ApprovalDecision) -> bool:
        """Return whether this very decision is among those that it stands by."""
        if decision == self.decision:
            return True
        if self.status is ApprovalStatus.ALLOWED and self.decision is not None:
            return decision in _agreeing(self.allowed_by, self.decision)
        return self.status is ApprovalStatus.PENDING and any(decision == each.decision for each in self.allowed_by)


def _agreeing(allowed_by: Iterable[Allowance], decision: ApprovalDecision) -> tuple[ApprovalDecision, ...]:
    """Return the allowances that are for the same arguments."""
    return tuple(each.decision for each in allowed_by if each.decision.arguments == decision.arguments)
