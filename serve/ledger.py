"""/v1/ledger and /v1/agents/{agent}/ledger: the audit records."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.ids import RunId
from owlclaw_ray.ports.runtime import Runtime
from owlclaw_ray.ports.store import LedgerFilter
from serve import openapi
from serve.agents import AgentPath
from serve.representations import json_response, record_body
from serve.tenancy import agent_of, tenant_of

RunQuery = Annotated[str | None, Query(description="Only this run's.")]
KindQuery = Annotated[LedgerKind | None, Query(description="Only records of this kind.")]
LimitQuery = Annotated[int, Query(ge=1, le=10_000, description="At most so many.")]


class Ledger:
    """The resource of ledger records."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1", tags=["ledger"], default_response_class=Response)
        found = openapi.answer("Ledger records", wire.Ledger)
        router.add_api_route(
            "/ledger",
            self.all,
            summary="Audit records, oldest first",
            response_model=None,
            responses={200: found, **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/agents/{agent}/ledger",
            self.of_agent,
            summary="An agent's audit records, oldest first",
            response_model=None,
            responses={200: found, **openapi.problems(404, 422, 500, 503)},
        )
        return router

    async def all(
        self, request: Request, run: RunQuery = None, kind: KindQuery = None, limit: LimitQuery = 1_000
    ) -> Response:
        """Return the records of all agents."""
        return await self._records(LedgerFilter(tenant_of(request), None, _run_id(run), kind, limit))

    async def of_agent(
        self,
        request: Request,
        agent: AgentPath,
        run: RunQuery = None,
        kind: KindQuery = None,
        limit: LimitQuery = 1_000,
    ) -> Response:
        """Return the records of one agent."""
        ref = agent_of(request, agent)
        await self._runtime.agent(ref)
        return await self._records(LedgerFilter(ref.tenant, ref, _run_id(run), kind, limit))

    async def _records(self, where: LedgerFilter) -> Response:
        records = await self._runtime.ledger(where)
        return json_response({"records": [record_body(record) for record in records]})


def _run_id(run: str | None) -> RunId | None:
    return None if run is None else RunId(run)
