"""/v1/approvals: tool calls that wait for a person."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from msgspec import convert
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.approval import ApprovalDecision, ApprovalStatus
from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import ApprovalId, RunId
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.queries import ApprovalFilter
from serve import openapi
from serve.errors import InvalidRequestError
from serve.parameters import AgentQuery, Id, LimitQuery, RunQuery
from serve.representations import approval_body, json_response
from serve.request_bodies import read_body
from serve.tenancy import agent_of, tenant_of

ApprovalIdPath = Annotated[Id, Path(description="An approval's id.", examples=["apr_19c0"])]

DECISION_DESCRIPTION = """Allow the call, for this once or for its target as long as the agent stays in memory, or deny it.

With `arguments` the call runs with these instead; they must fit the tool's schema (422). When the last open approval of the
run is decided, the run goes on. The same decision again answers the same; another one than the first, or one after expiry,
gets 409."""


class ApprovalRoutes:
    """The resource of approvals."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1/approvals", tags=["approvals"], default_response_class=Response)
        router.add_api_route(
            "",
            self.listing,
            operation_id="list_approvals",
            summary="Calls that wait for a person, newest first",
            response_model=None,
            responses={200: openapi.answer("Approvals", wire.Approvals), **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/{approval_id}",
            self.one,
            operation_id="get_approval",
            summary="A call that waits, or waited, for a person",
            response_model=None,
            responses={200: openapi.answer("The approval", wire.Approval), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/{approval_id}/decision",
            self.decide,
            methods=["POST"],
            operation_id="decide_approval",
            summary="Allow or deny a call",
            description=DECISION_DESCRIPTION,
            response_model=None,
            openapi_extra=openapi.DECISION_OPERATION,
            responses={
                200: openapi.answer("The decision stands", wire.Approval),
                **openapi.problems(400, 404, 409, 408, 413, 422, 500, 503),
            },
        )
        return router

    async def listing(
        self,
        request: Request,
        agent: AgentQuery = None,
        run: RunQuery = None,
        status: Annotated[ApprovalStatus | None, Query(description="Only those that stand like this.")] = None,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return approvals, decided ones too unless a status is asked for."""
        ref = None if agent is None else agent_of(request, agent)
        run_id = None if run is None else RunId(run)
        found = await self._runtime.approvals(ApprovalFilter(tenant_of(request), ref, run_id, status, limit))
        return json_response({"approvals": [approval_body(each) for each in found]})

    async def one(self, request: Request, approval_id: ApprovalIdPath) -> Response:
        """Return the approval."""
        approval = await self._runtime.approval(tenant_of(request), ApprovalId(approval_id))
        return json_response(approval_body(approval))

    async def decide(self, request: Request, approval_id: ApprovalIdPath) -> Response:
        """Settle the approval. Doing it again changes nothing."""
        asked = read_body(await request.body(), wire.DecisionRequest)
        if asked["decision"] == "deny" and "arguments" in asked:
            problem = Problem("body.arguments", "come with a denial", "leave them out, or allow the call")
            raise InvalidRequestError([problem])
        decision = convert(asked, ApprovalDecision)
        settled = await self._runtime.decide(tenant_of(request), ApprovalId(approval_id), decision)
        return json_response(approval_body(settled))
