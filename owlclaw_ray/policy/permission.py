"""Permission of tool calls (T7): what the policy says, what was granted, and what a person is asked."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias

import orjson
from msgspec import Struct, field

from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalRequest, ApprovalStatus, Decision
from owlclaw_ray.domain.entries import approval_decided, decided_record, request_data, requested_record
from owlclaw_ray.domain.governance import RISK_TAG, Governance, Risk
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.permission import Approver, PermissionPolicy, PermissionRules, Verdict
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.tool import (
    DANGEROUS,
    NETWORK,
    SENSITIVE,
    Permission,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolOrigin,
    ToolResult,
)
from owlclaw_ray.domain.tool_call import CheckedCall, Stage, ToolOutcome
from owlclaw_ray.ids import ApprovalId, ToolCallId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline

DENIED = "denied"
"""The error type of calls that were not permitted."""
_NAMED, _DANGER = 1_000_000, 900_000
"""How specific a whole name is, and that a tool is dangerous: no pattern is as long as that."""
CHANGED = "changed"
"""The verdict of a hook that changed arguments or result."""

Approve: TypeAlias = Callable[[ApprovalRequest], Awaitable[ApprovalDecision | Decision]]
"""Decides about a call. What it raises, and what comes too late, is a denial."""

_ToolIdentity: TypeAlias = tuple[str, str, str, tuple[str, ...], bytes]

logger = logging.getLogger(__name__)


class CallAllowed(Struct, frozen=True):
    """The call may be executed, with these arguments."""

    arguments: str
    stage: Stage = Stage.RUN
    hooks: tuple[JsonObject, ...] = ()
    """What hooks did to the call before it was approved."""
    target: str = ""
    """What was approved for the call to act on, unless a person changed its arguments."""


class CallNeedsCheck(Struct, frozen=True):
    """Whether the call may be executed depends on what it would do exactly: it is to be checked first."""

    reason: str


class CallDenied(Struct, frozen=True):
    """The call must not be executed."""

    message: str
    hooks: tuple[JsonObject, ...] = ()


class Terms(Struct, frozen=True):
    """By whom an approval is: by how many different principals, and by none of the excluded ones."""

    needed: int = 1
    excluded: frozenset[str] = frozenset()


ANYBODY = Terms()


class SessionGrants(Struct):
    """What approvers allowed an agent for as long as it stays in memory: tools as they were then, each for one target."""

    _granted: dict[tuple[_ToolIdentity, str, Terms], ApprovalId] = field(default_factory=dict)

    def add(self, tool: ToolDefinition, target: str, approval_id: ApprovalId, terms: Terms = ANYBODY) -> None:
        """Allow calls of the tool on the target from now on, by that approval on these terms."""
        self._granted.setdefault((_tool_identity(tool), target, terms), approval_id)

    def covering(self, tool: ToolDefinition, target: str, terms: Terms = ANYBODY) -> ApprovalId | None:
        """Return the approval on the same terms that allowed such calls, if one did."""
        return self._granted.get((_tool_identity(tool), target, terms))


def judge(policy: PermissionPolicy, tool: ToolDefinition) -> tuple[Verdict, str]:
    """Return what the policy says of a tool's calls, and why.

    A `deny` of either file holds. Else the rules of agent.yaml go first, then those of owlclaw.yaml, then the default: calls ask
    that are dangerous, and of external tools those that write, reach the network or read what is sensitive. Within a file
    the most specific selector decides, and of equals `ask`. That dangerous tools ask is undone by their name or by `tag:dangerous` in
    `allow`, and by nothing else, in either file.
    """
    for rules in (policy.own, policy.inherited):
        for selector in rules.deny:
            if _closeness(selector, tool):
                return Verdict.DENY, f"permissions.deny has {selector!r}"
    found = _closest(policy.own, tool) or _closest(policy.inherited, tool)
    if found is not None:
        return found
    if DANGEROUS in tool.tags:
        return Verdict.ASK, "dangerous tools ask"
    if tool.origin is not ToolOrigin.EXTERNAL:
        return Verdict.ALLOW, f"{tool.origin.value} tools are granted by being there"
    if tool.permission is Permission.WRITE:
        return Verdict.ASK, "external tools that write ask"
    for tag in (NETWORK, SENSITIVE):
        if tag in tool.tags:
            return Verdict.ASK, f"external {tag} tools ask"
    return Verdict.ALLOW, "readonly tools are allowed"


def _closest(rules: PermissionRules, tool: ToolDefinition) -> tuple[Verdict, str] | None:
    best, found = 0, None
    for verdict, selectors in ((Verdict.ASK, rules.ask), (Verdict.ALLOW, rules.allow)):
        least = _DANGER if verdict is Verdict.ALLOW and DANGEROUS in tool.tags else 1
        for selector in selectors:
            closeness = _closeness(selector, tool)
            if closeness >= least and closeness > best:
                best, found = closeness, (verdict, f"permissions.{verdict.value} has {selector!r}")
    return found


def _closeness(selector: str, tool: ToolDefinition) -> int:
    """Return 0 if the selector does not mean the tool, else the more the more specific it is."""
    kind, colon, value = selector.partition(":")
    if colon and kind == "tag":
        if value not in tool.tags:
            return 0
        return _DANGER if value == DANGEROUS else 2
    if colon and kind == "permission":
        return 1 if value == tool.permission.value else 0
    if selector == tool.name:
        return _NAMED
    return 3 + len(selector) if fnmatchcase(tool.name, selector) else 0


class ApprovalHistory(Protocol):
    """The approvals in a run's journal."""

    @property
    def asked(self) -> Mapping[ToolCallId, JsonObject]:
        """The requests, by call."""
        ...

    @property
    def decided(self) -> Mapping[ToolCallId, ApprovalDecision]:
        """The decisions, by call."""
        ...


class ApprovalJournal(Protocol):
    """A run's journal, as far as approvals are read from it and written to it."""

    @property
    def conversation(self) -> ApprovalHistory:
        """What was asked and decided before."""
        ...

    def record(self, kind: EntryKind, data: JsonObject) -> None:
        """Add an entry to the journal."""
        ...

    def audit(self, kind: LedgerKind, key: str, data: JsonObject) -> None:
        """Add a record to the ledger; `key` distinguishes it from others of its kind in this run."""
        ...


class PermissionGate(Struct, frozen=True):
    """Decides about the calls of one run."""

    run: Run
    journal: ApprovalJournal
    policy: PermissionPolicy
    grants: SessionGrants
    clock: Clock
    approve: Approve | None = None
    governance: Governance = field(default_factory=Governance)

    def clear(self, call: ToolCall, tool: ToolDefinition) -> CallAllowed | CallDenied | CallNeedsCheck:
        """Return whether the call may be executed, as far as that is known without a check of what it would do."""
        verdict, reason = judge(self.policy, tool)
        decision = self.journal.conversation.decided.get(call.call_id)
        match verdict:
            case Verdict.DENY:
                return CallDenied(f"{tool.name} must not be called: {reason}")
            case _ if decision is not None:
                return self._decided(call, tool, decision)
            case Verdict.ALLOW:
                risk = self.governance.unconfirmed(tool) or self._two_people(tool)
                return CallNeedsCheck(risk) if risk else CallAllowed(call.arguments)
            case Verdict.ASK:
                return CallNeedsCheck(reason)

    async def ask(
        self, call: ToolCall, tool: ToolDefinition, checked: CheckedCall, reason: str, hooks: tuple[JsonObject, ...]
    ) -> CallAllowed | CallDenied | ApprovalRequest:
        """Return the decision about a call that was checked, or the request that has to be decided.

        An approver in this process is asked at once.
        """
        granted_by = self.grants.covering(tool, checked.target, self._terms(tool))
        if granted_by is not None:
            place = {"approval_id": granted_by, "call_id": call.call_id, "tool": tool.name, "target": checked.target}
            record = {"what": "granted", **place}
            self.journal.audit(LedgerKind.APPROVAL, f"{call.call_id} granted", record)
            return CallAllowed(checked.arguments, Stage.APPROVED, hooks, checked.target)
        if self.approve is None:
            if self.policy.approver is Approver.NOBODY:
                return CallDenied(f"{tool.name} needs an approval ({reason}), but no approver is configured", hooks)
            return self._request(call, tool, checked, reason, hooks)
        request = self._request(call, tool, checked, reason, hooks)
        decision = await self._asked(self.approve, request)
        if decision.allows and request.needed_for(decision) > 1:
            decision = ApprovalDecision(
                Decision.DENY, "two people must allow it, and the approver of this process is one"
            )
        status = ApprovalStatus.ALLOWED if decision.allows else ApprovalStatus.DENIED
        settled, journal = Approval(request, status, decision, self.clock.now()), self.journal
        journal.record(EntryKind.APPROVAL_REQUESTED, request_data(request))
        journal.record(EntryKind.APPROVAL_DECIDED, approval_decided(settled))
        journal.audit(LedgerKind.APPROVAL, f"{request.approval_id} requested", requested_record(request))
        journal.audit(LedgerKind.APPROVAL, f"{request.approval_id} decided", decided_record(settled))
        return self._decided(call, tool, decision)

    def _terms(self, tool: ToolDefinition) -> Terms:
        """Return by whom calls of the tool must be allowed."""
        selectors = (*self.policy.own.not_by_submitter, *self.policy.inherited.not_by_submitter)
        excluded = self.run.trigger.all_submitters if self._selected(selectors, tool) else ()
        return Terms(2 if self._two_people(tool) else 1, frozenset(excluded))

    def _two_people(self, tool: ToolDefinition) -> str:
        """Return why two people must allow calls of the tool; the empty text if one may."""
        found = self._selected((*self.policy.own.two_people, *self.policy.inherited.two_people), tool)
        return f"permissions.two_people has {found!r}" if found else ""

    def _selected(self, selectors: Sequence[str], tool: ToolDefinition) -> str:
        """Return the first selector that means the tool, by its risk too; the empty text if none does."""
        if not selectors:
            return ""
        risks = list(Risk)
        risk = risks.index(self.governance.risk_of(tool))
        for selector in selectors:
            level = selector.removeprefix(RISK_TAG)
            if risk >= risks.index(Risk(level)) if level != selector else _closeness(selector, tool):
                return selector
        return ""

    def _request(
        self, call: ToolCall, tool: ToolDefinition, checked: CheckedCall, reason: str, hooks: tuple[JsonObject, ...]
    ) -> ApprovalRequest:
        run, now, lineage = self.run, self.clock.now(), self.run.trigger.lineage
        expires_at, terms = now + timedelta(seconds=self.policy.expires), self._terms(tool)
        return ApprovalRequest(
            approval_id=ApprovalId(derived_id("apr", run.run_id, call.call_id)),
            agent=run.agent,
            run_id=run.run_id,
            call_id=call.call_id,
            tool=tool.name,
            description=tool.description,
            permission=tool.permission.value,
            tags=tuple(sorted(tool.tags)),
            reason=reason,
            arguments=orjson.loads(checked.arguments or "{}"),
            written=call.arguments,
            input_schema=tool.input_schema,
            target=checked.target,
            requested_at=now,
            expires_at=expires_at if run.deadline is None else min(expires_at, run.deadline),
            cwd=checked.cwd,
            hooks=hooks,
            trigger=run.trigger.kind.value,
            source=run.trigger.source,
            parent="" if lineage is None else lineage.parent,
            started_as="" if lineage is None else lineage.role.value,
            needed=terms.needed,
            excluded=tuple(sorted(terms.excluded)),
            ends_run=run.deadline is not None and run.deadline <= expires_at,
        )

    async def _asked(self, approve: Approve, request: ApprovalRequest) -> ApprovalDecision:
        try:
            async with deadline(self.clock, self.policy.expires):
                answer = await approve(request)
        except TimeoutError:
            return ApprovalDecision(Decision.DENY, "the approver did not answer in time")
        except Exception as error:
            logger.exception("the approver failed over %s of run %s", request.tool, request.run_id)
            return ApprovalDecision(Decision.DENY, f"the approver failed: {type(error).__name__}")
        return answer if isinstance(answer, ApprovalDecision) else ApprovalDecision(answer)

    def _decided(self, call: ToolCall, tool: ToolDefinition, decision: ApprovalDecision) -> CallAllowed | CallDenied:
        asked = self.journal.conversation.asked[call.call_id]
        hooks = tuple(asked["hooks"])
        if not decision.allows:
            by = f" by {decision.by}" if decision.by else ""
            return CallDenied(f"{tool.name} was denied{by}: {decision.reason or 'no reason was given'}", hooks)
        schema = orjson.dumps(asked["input_schema"], option=orjson.OPT_SORT_KEYS)
        approved = (asked["tool"], asked["description"], asked["permission"], tuple(asked["tags"]), schema)
        if approved != _tool_identity(tool):
            return CallDenied(
                f"{tool.name} has changed since it was approved; call it again to ask for a new approval", hooks
            )
        if decision.arguments is not None:
            return CallAllowed(orjson.dumps(decision.arguments).decode(), Stage.EDITED, hooks)
        if decision.decision is Decision.ALLOW_FOR_SESSION:
            terms = Terms(asked.get("needed", 1), frozenset(asked.get("excluded", ())))
            self.grants.add(tool, asked["target"], ApprovalId(asked["approval_id"]), terms)
        if any(each["verdict"] == CHANGED for each in hooks):
            return CallAllowed(orjson.dumps(asked["arguments"]).decode(), Stage.APPROVED, hooks, asked["target"])
        return CallAllowed(call.arguments, Stage.APPROVED, hooks, asked["target"])


def _tool_identity(tool: ToolDefinition) -> _ToolIdentity:
    """Return what an approver sees of a tool: another tool of the same name was not approved."""
    schema = orjson.dumps(tool.input_schema, option=orjson.OPT_SORT_KEYS)
    return tool.name, tool.description, tool.permission.value, tuple(sorted(tool.tags)), schema


def refusal(call: ToolCall, refused: CallDenied) -> ToolOutcome:
    """Return the outcome of a call that is not permitted."""
    result = ToolResult(call.call_id, error=ToolError(DENIED, refused.message))
    return ToolOutcome(result, duration_ms=0, hooks=refused.hooks)
