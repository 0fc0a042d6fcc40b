"""/v1/approvals: tool calls that wait for a person."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Path, Query
from msgspec import convert
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import ApprovalDecision, ApprovalStatus
from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import ApprovalId, RunId
from owlclaw_ray.store.queries import ApprovalFilter
from serve.errors import InvalidRequestError
from serve.parameters import (
    AgentQuery,
    Id,
    LimitQuery,
    RunQuery,
    actor_of,
    check_owner,
    only_agent_of,
    principal_id_of,
    principal_of,
    tenant_of,
)
from serve.representations import approval_body, json_response
from serve.request_bodies import read_body
from serve.resource import JSON_BODY, Resource, answer, body, operation

ApprovalIdPath = Annotated[Id, Path(description="An approval's id.", examples=["apr_19c0"])]


class ApprovalRoutes(Resource):
    """The resource of approvals."""

    tag = "approvals"

    @operation(
        "GET /v1/approvals",
        "approvals:read",
        "Calls that wait for a person, newest first",
        {200: answer("Approvals", wire.Approvals)},
    )
    async def list_approvals(
        self,
        request: Request,
        agent: AgentQuery = None,
        run: RunQuery = None,
        status: Annotated[ApprovalStatus | None, Query(description="Only those in this state.")] = None,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return approvals, including decided ones unless a status is asked for."""
        ref = only_agent_of(request, agent)
        run_id = None if run is None else RunId(run)
        found = await self._runtime.approvals(ApprovalFilter(tenant_of(request), ref, run_id, status, limit))
        return json_response({"approvals": [approval_body(each) for each in found]})

    @operation(
        "GET /v1/approvals/{approval_id}",
        "approvals:read",
        "A call that waits, or waited, for a person",
        {200: answer("The approval", wire.Approval)},
        404,
    )
    async def get_approval(self, request: Request, approval_id: ApprovalIdPath) -> Response:
        """Return the approval."""
        approval = await self._runtime.approval(tenant_of(request), ApprovalId(approval_id))
        principal_of(request).require_agent(approval.request.agent)
        return json_response(approval_body(approval))

    @operation(
        "POST /v1/approvals/{approval_id}/decision",
        "approvals:decide",
        "Allow or deny a call",
        {200: answer("The decision stands", wire.Approval)},
        *JSON_BODY,
        404,
        409,
        extra=body(
            wire.DecisionRequest,
            {
                "allow": {"decision": "allow_once", "by": "ada"},
                "change": {"decision": "allow_once", "arguments": {"to": "ops@example.org"}},
                "deny": {"decision": "deny", "reason": "not on a Friday"},
            },
        ),
    )
    async def decide_approval(self, request: Request, approval_id: ApprovalIdPath) -> Response:
        """Allow the call, once or for its target as long as the agent stays in memory, or deny it.

        With `arguments` the call runs with these instead; they must fit the tool's schema (422). When the last open approval of the
        run is decided, the run continues. Repeating the decision returns the same answer; a different one, or one after expiry,
        gets 409. A call that two people must allow (`needed`) stays pending after the first of them, and needs the same arguments
        of the second; one denial is enough.
        """
        asked = read_body(await request.body(), wire.DecisionRequest)
        if asked["decision"] == "deny" and "arguments" in asked:
            problem = Problem("body.arguments", "come with a denial", "leave them out, or allow the call")
            raise InvalidRequestError([problem])
        await check_owner(request, partial(self._owner, request, approval_id))
        who = {"by": actor_of(request, asked.get("by", "")), "principal": principal_id_of(request)}
        decision = convert({**asked, **who}, ApprovalDecision)
        settled = await self._runtime.decide(tenant_of(request), ApprovalId(approval_id), decision)
        return json_response(approval_body(settled))

    async def _owner(self, request: Request, approval_id: str) -> AgentRef:
        return (await self._runtime.approval(tenant_of(request), ApprovalId(approval_id))).request.agent
