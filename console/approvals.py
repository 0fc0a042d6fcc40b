"""The inbox of calls that wait for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct, convert
from starlette.requests import Request
from starlette.responses import Response

from console.jinja import query
from console.pages import FRAGMENT, NOT_OF_THE_FORM, PREFIX, Pages, back, own_path, page
from console.text import pretty
from console.visits import SentForm, read_form
from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Approval, ApprovalDecision, ApprovalStatus
from owlclaw_ray.errors import NotFoundError, OwlClawError, Problem, ToolArgumentsError
from owlclaw_ray.ids import ApprovalId
from owlclaw_ray.store.queries import ApprovalFilter, Place
from serve.errors import InvalidRequestError
from serve.parameters import (
    actor_of,
    check_owner,
    only_agent_of,
    principal_id_of,
    principal_of,
    tenant_of,
)
from serve.problems import problem_of
from serve.request_bodies import checked

PAGE = 100
_ANY = "any"
_PENDING = ApprovalStatus.PENDING.value


class RefusedDecision(Struct, frozen=True):
    """What somebody wrote in a form that was refused, so that nobody has to write it again."""

    arguments: str
    reason: str
    problems: tuple[str, ...]
    back: str
    """Where the form was."""


class ApprovalPages(Pages):
    """`/console/approvals`."""

    place: ClassVar[str] = "approvals"

    @page(
        "GET /console/approvals",
        "approvals:read",
        "status",
        "agent",
        "after",
        "did",
        FRAGMENT,
        live={"live": 2.0},
        personal=True,
    )
    async def console_approvals(self, request: Request) -> Response:
        """Show the calls that wait, those that expire first before the others; or those in another state, newest first."""
        asked = request.query_params
        status, agent = asked.get("status") or _PENDING, asked.get("agent", "").strip()
        narrowed = bool(principal_of(request).patterns) and not agent
        after = asked.get("after", "")
        found = () if narrowed else await self._found(request, agent, status, after)
        did = asked.get("did", "") if FRAGMENT not in asked else ""
        return await self.shown(
            request,
            "approvals.html",
            "live",
            approvals=found[:PAGE],
            following=found[PAGE - 1].request.approval_id if len(found) > PAGE else None,
            after=after,
            did=await self._decided(request, did) if did else None,
            here=f"{PREFIX}/approvals{query(status='' if status == _PENDING else status, agent=agent, after=after)}",
            decider=principal_id_of(request),
            narrowed=narrowed,
            waiting=await self._badge.by_agent(principal_of(request)) if narrowed else {},
            status=status,
            agent=agent,
            statuses=[*(each.value for each in ApprovalStatus), _ANY],
        )

    async def _decided(self, request: Request, approval_id: str) -> Approval | None:
        """Return the approval that was just decided; None if it is gone with its run."""
        try:
            return await self._named(request, approval_id)
        except NotFoundError:
            return None

    async def _found(self, request: Request, agent: str, status: str, after: str) -> Sequence[Approval]:
        """Return a page, and one more if there is one."""
        try:
            wanted = None if status == _ANY else ApprovalStatus(status)
        except ValueError:
            right = ", ".join([*(each.value for each in ApprovalStatus), _ANY])
            raise InvalidRequestError([Problem("query status", f"is {status!r}", f"one of {right}")]) from None
        ref = only_agent_of(request, agent or None)
        expiring, place = status == _PENDING, None
        if after:
            last = (await self._named(request, after)).request
            place = Place(last.expires_at if expiring else last.requested_at, last.approval_id)
        where = ApprovalFilter(tenant_of(request), ref, None, wanted, PAGE + 1, expiring, place)
        return await self._runtime.approvals(where)

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
        except OwlClawError as error:
            problem = problem_of(error, request.scope["path"])
            if problem.status >= NOT_OF_THE_FORM:
                raise
            wrong: tuple[str, ...] = (problem.detail,)
            if isinstance(error, InvalidRequestError):
                wrong = tuple(map(str, error.problems))
            elif isinstance(error, ToolArgumentsError):
                wrong = error.details
            refused = RefusedDecision(
                form.text("arguments"), form.text("reason"), wrong, own_path(form.text("back"), "")
            )
            response = await self._shown(request, await self._approval(request), refused)
            response.status_code = problem.status
            response.headers.update(problem.headers)
            return response
        self._badge.changed(tenant_of(request))
        asked_by = approval.request.agent.agent_id if principal_of(request).patterns else ""
        return back(form.text("back"), f"/approvals{query(agent=asked_by)}", did=approval.request.approval_id)

    async def _decide(self, request: Request, form: SentForm, approval: Approval) -> None:
        asked: dict[str, Any] = {"decision": form.text("decision"), "reason": form.text("reason").strip()}
        if asked["decision"] != "deny" and (arguments := _other_arguments(form, approval)) is not None:
            asked["arguments"] = arguments
        decided = checked(asked, wire.DecisionRequest)
        who = {"by": actor_of(request, ""), "principal": principal_id_of(request)}
        decision = convert({**decided, **who}, ApprovalDecision)
        await self._runtime.decide(tenant_of(request), approval.request.approval_id, decision)

    async def _shown(self, request: Request, approval: Approval, refused: RefusedDecision | None = None) -> Response:
        who = principal_id_of(request)
        here = refused.back if refused else ""
        return await self.shown(request, "approval.html", approval=approval, decider=who, refused=refused, here=here)

    async def _approval(self, request: Request) -> Approval:
        return await self._named(request, request.path_params["approval_id"])

    async def _named(self, request: Request, approval_id: str) -> Approval:
        """Return an approval of the tenant that the principal may have to do with; raises NotFoundError, AccessDeniedError."""
        if "\0" in approval_id:
            raise NotFoundError("approval", approval_id)
        approval = await self._runtime.approval(tenant_of(request), ApprovalId(approval_id))

        async def owner() -> AgentRef:
            return approval.request.agent

        await check_owner(request, owner)
        return approval


def _other_arguments(form: SentForm, approval: Approval) -> Any:
    """Return the arguments that somebody wrote in the place of those that were shown, None if they were left as they are, or the form has
    none to write; raises InvalidRequestError for what is none, nothing at all among it.
    """
    text, fix = form.text("arguments").strip(), "write a JSON object"
    if not form.all("arguments") or text == pretty(approval.request.arguments).strip():
        return None
    arguments = form.json("arguments", fix) if text else None
    if arguments is None:
        raise InvalidRequestError([Problem("arguments", "are null" if text else "are empty", fix)])
    return arguments
