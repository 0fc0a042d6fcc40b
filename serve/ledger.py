"""/v1/ledger and /v1/agents/{agent}/ledger: the audit records, and whether they are whole."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.queries import LedgerFilter
from serve import openapi
from serve.parameters import AgentPath, AgentQuery, Id, Moment
from serve.representations import (
    HEAD_PATTERN,
    PLACE_PATTERN,
    head_of,
    heads_body,
    json_response,
    ledger_body,
    place_of,
    verification_body,
)
from serve.tenancy import agent_of, tenant_of

_MAX_HEADS = 100


class LedgerQuery(BaseModel):
    """Which records."""

    run: Id | None = Field(None, description="Only this run's.")
    kind: LedgerKind | None = Field(None, description="Only records of this kind.")
    tool: Id | None = Field(None, min_length=1, description="Only records of this tool.")
    since: Moment | None = Field(None, description="Only from this time on, with its zone.")
    until: Moment | None = Field(None, description="Only before this time, with its zone.")
    after: Id | None = Field(None, pattern=PLACE_PATTERN, description="Only records after this place: `next_after`.")
    limit: int = Field(1_000, ge=1, le=10_000, description="At most so many.")

    def of(self, tenant: TenantId, agent: AgentRef | None = None) -> LedgerFilter:
        """Return the filter for the store."""
        return LedgerFilter(
            tenant,
            agent,
            None if self.run is None else RunId(self.run),
            self.kind,
            self.limit,
            self.tool,
            self.since,
            self.until,
            None if self.after is None else place_of(self.after),
        )


class TenantLedgerQuery(LedgerQuery):
    """Which records, of which agent."""

    agent: AgentQuery = None


class SinceQuery(BaseModel):
    """What the chains were."""

    since: list[Annotated[str, StringConstraints(max_length=500, pattern=HEAD_PATTERN)]] = Field(
        [],
        max_length=_MAX_HEADS,
        description="Heads that the chains had earlier, and must still have: microseconds, position, hash and writer of each, "
        "separated by full stops.",
    )


class LedgerRoutes:
    """The resource of ledger records. `clock` says when the heads are what they are."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime, self._clock = runtime, clock

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1", tags=["ledger"], default_response_class=Response)
        found = openapi.answer("Ledger records", wire.Ledger)
        router.add_api_route(
            "/ledger",
            self.all,
            operation_id="list_ledger_records",
            summary="Audit records, oldest first",
            response_model=None,
            responses={200: found, **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/ledger/verification",
            self.verification,
            operation_id="verify_ledger",
            summary="Whether the ledger's hash chains hold",
            response_model=None,
            responses={
                200: openapi.answer("What came of following all chains", wire.LedgerVerification),
                **openapi.problems(422, 500, 503),
            },
        )
        router.add_api_route(
            "/ledger/heads",
            self.heads,
            operation_id="list_ledger_heads",
            summary="The ends of the ledger's chains",
            response_model=None,
            responses={200: openapi.answer("The ends", wire.LedgerHeads), **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/agents/{agent}/ledger",
            self.of_agent,
            operation_id="list_agent_ledger_records",
            summary="An agent's audit records, oldest first",
            response_model=None,
            responses={200: found, **openapi.problems(404, 422, 500, 503)},
        )
        return router

    async def all(self, request: Request, query: Annotated[TenantLedgerQuery, Query()]) -> Response:
        """Return the records of all agents, or of one, be it known or not."""
        ref = None if query.agent is None else agent_of(request, query.agent)
        return await self._records(query.of(tenant_of(request), ref))

    async def of_agent(self, request: Request, agent: AgentPath, query: Annotated[LedgerQuery, Query()]) -> Response:
        """Return the records of one agent."""
        ref = agent_of(request, agent)
        await self._runtime.agent(ref)
        return await self._records(query.of(ref.tenant, ref))

    async def heads(self, request: Request) -> Response:
        """Return the ends of all chains."""
        tenant = tenant_of(request)
        return json_response(heads_body(tenant, await self._runtime.ledger_chains(tenant), self._clock.now()))

    async def verification(self, request: Request, query: Annotated[SinceQuery, Query()]) -> Response:
        """Follow all chains, record by record."""
        tenant = tenant_of(request)
        since = [head_of(tenant, each) for each in query.since]
        return json_response(verification_body(await self._runtime.verify_ledger(tenant, since)))

    async def _records(self, where: LedgerFilter) -> Response:
        return json_response(ledger_body(await self._runtime.ledger(where), where.limit))
