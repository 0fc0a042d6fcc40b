"""The inbox of calls that wait for a person."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct, convert
from starlette.requests import Request
from starlette.responses import Response

from console.pages import FRAGMENT, Pages, page, see
from console.text import pretty
from console.visits import SentForm, read_form
from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalStatus
from owlclaw_ray.errors import NotFoundError, Problem, ToolArgumentsError
from owlclaw_ray.ids import ApprovalId
from owlclaw_ray.store.queries import ApprovalFilter
from serve.errors import InvalidRequestError, MalformedJsonError
from serve.parameters import (
    actor_of,
    check_owner,
    only_agent_of,
    principal_id_of,
    principal_of,
    tenant_of,
)
from serve.request_bodies import checked, read_json

PAGE = 100
_ANY = "any"
_UNPROCESSABLE = 422


class RefusedEdit(Struct, frozen=True):
    """What somebody wrote in a form that was refused, so that nobody has to write it again."""

    arguments: str
    reason: str
    problems: tuple[str, ...]


class ApprovalPages(Pages):
    """`/console/approvals`."""

    place: ClassVar[str] = "approvals"

    @page("GET /console/approvals", "approvals:read", "status", "agent", FRAGMENT, live={"live": 2.0}, personal=True)
    async def console_approvals(self, request: Request) -> Response:
        """Show the calls that wait, or those in another state."""
        asked = request.query_params
        status, agent = asked.get("status") or ApprovalStatus.PENDING.value, asked.get("agent", "").strip()
        narrowed = bool(principal_of(request).patterns) and not agent
        found = () if narrowed else await self._found(request, agent, status)
        return await self.shown(
            request,
            "approvals.html",
            "live",
            approvals=found,
            decider=principal_id_of(request),
            narrowed=narrowed,
            status=status,
            agent=agent,
            statuses=[*(each.value for each in ApprovalStatus), _ANY],
            full=len(found) >= PAGE,
        )

    async def _found(self, request: Request, agent: str, status: str) -> Any:
        try:
            wanted = None if status == _ANY else ApprovalStatus(status)
        except ValueError:
            right = ", ".join([*(each.value for each in ApprovalStatus), _ANY])
            raise InvalidRequestError([Problem("query status", f"is {status!r}", f"one of {right}")]) from None
        ref = only_agent_of(request, agent or None)
        return await self._runtime.approvals(ApprovalFilter(tenant_of(request), ref, None, wanted, PAGE))

    @page("GET /console/approvals/{approval_id}", "approvals:read")
    async def console_approval(self, request: Request) -> Response:
        """Show one call."""
        return await self._shown(request, await self._approval(request))

    @page("POST /console/approvals/{approval_id}/decision", "approvals:decide")
    async def console_decide(self, request: Request) -> Response:
        """Allow or deny the call, and lead back to the inbox; what is refused is shown again, with what is wrong."""
        form = await read_form(request)
        approval = await self._approval(request)
        try:
            await self._decide(request, form, approval)
        except (InvalidRequestError, ToolArgumentsError) as error:
            wrong = error.details if isinstance(error, ToolArgumentsError) else tuple(map(str, error.problems))
            refused = RefusedEdit(form.text("arguments"), form.text("reason"), wrong)
            response = await self._shown(request, approval, refused)
            response.status_code = _UNPROCESSABLE
            return response
        self._badge.changed(tenant_of(request))
        return see("/approvals")

    async def _decide(self, request: Request, form: SentForm, approval: Approval) -> None:
        asked: dict[str, Any] = {"decision": form.text("decision"), "reason": form.text("reason").strip()}
        arguments = _other_arguments(form, approval)
        if arguments is not None and asked["decision"] != "deny":
            asked["arguments"] = arguments
        decided = checked(asked, wire.DecisionRequest)
        who = {"by": actor_of(request, ""), "principal": principal_id_of(request)}
        decision = convert({**decided, **who}, ApprovalDecision)
        await self._runtime.decide(tenant_of(request), approval.request.approval_id, decision)

    async def _shown(self, request: Request, approval: Approval, refused: RefusedEdit | None = None) -> Response:
        who = principal_id_of(request)
        return await self.shown(request, "approval.html", approval=approval, decider=who, refused=refused)

    async def _approval(self, request: Request) -> Approval:
        approval_id = request.path_params["approval_id"]
        if "\0" in approval_id:
            raise NotFoundError("approval", approval_id)
        approval = await self._runtime.approval(tenant_of(request), ApprovalId(approval_id))

        async def owner() -> AgentRef:
            return approval.request.agent

        await check_owner(request, owner)
        return approval


def _other_arguments(form: SentForm, approval: Approval) -> Any:
    """Return the arguments that somebody wrote in the place of those that were shown, None if they were left as they are."""
    text = form.text("arguments").strip()
    if not text or text == pretty(approval.request.arguments).strip():
        return None
    try:
        return read_json(text.encode())
    except MalformedJsonError as error:
        raise InvalidRequestError([Problem("arguments", str(error), "write a JSON object")]) from None
