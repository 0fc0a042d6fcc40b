"""/v1/ledger and /v1/agents/{agent}/ledger: the audit records, and whether they are whole."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import LedgerVerification, Runtime
from owlclaw_ray.store.queries import LedgerFilter
from serve.disconnects import while_connected
from serve.parameters import AgentPath, AgentQuery, Id, Moment, agent_of, only_agent_of, principal_of, tenant_of
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
from serve.resource import Resource, answer, operation

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
    tenant: Id | None = Field(
        None,
        description="Of this tenant, for who may read tenants (`tenants:read`); else of the caller's.",
        examples=["acme"],
    )


class LedgerRoutes(Resource):
    """The resource of ledger records. `clock` says at what time the heads are read."""

    tag = "ledger"

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        super().__init__(runtime)
        self._clock = clock

    @operation(
        "GET /v1/ledger", "ledger:read", "Audit records, oldest first", {200: answer("Ledger records", wire.Ledger)}
    )
    async def list_ledger_records(self, request: Request, query: Annotated[TenantLedgerQuery, Query()]) -> Response:
        """Return the records of all agents, or of one, known or not."""
        ref = only_agent_of(request, query.agent)
        return await self._records(request, query.of(tenant_of(request), ref))

    @operation(
        "GET /v1/agents/{agent}/ledger",
        "ledger:read",
        "An agent's audit records, oldest first",
        {200: answer("Ledger records", wire.Ledger)},
        404,
    )
    async def list_agent_ledger_records(
        self, request: Request, agent: AgentPath, query: Annotated[LedgerQuery, Query()]
    ) -> Response:
        """Return the records of one agent."""
        ref = agent_of(request, agent)
        await self._runtime.agent(ref)
        return await self._records(request, query.of(ref.tenant, ref))

    @operation(
        "GET /v1/ledger/heads",
        "ledger:read",
        "The heads of the ledger's hash chains",
        {200: answer("The heads", wire.LedgerHeads)},
    )
    async def list_ledger_heads(self, request: Request) -> Response:
        """Return the last record of each chain."""
        principal_of(request).require_all_agents()
        tenant = tenant_of(request)
        return json_response(heads_body(tenant, await self._runtime.ledger_chains(tenant), self._clock.now()))

    @operation(
        "GET /v1/ledger/verification",
        "ledger:read",
        "Verify the ledger's hash chains",
        {200: answer("What was found in all chains", wire.LedgerVerification)},
        404,
        429,
    )
    async def verify_ledger(self, request: Request, query: Annotated[SinceQuery, Query()]) -> Response:
        """Verify all chains, record by record: those of the caller's tenant, or of another one, a deleted one too, for operators.

        429 while a server process does so for somebody else of the tenant.
        """
        _, found = await verified(self._runtime, request, query)
        return json_response(verification_body(found))

    async def _records(self, request: Request, where: LedgerFilter) -> Response:
        found = await while_connected(request, self._runtime.ledger(where))
        return json_response(ledger_body(found, where.limit))


async def verified(runtime: Runtime, request: Request, query: SinceQuery) -> tuple[TenantId, LedgerVerification]:
    """Verify all chains of the principal's tenant, or of the one that is asked for; return whose they are, and what was found.

    Raises AccessDeniedError, NotFoundError, VerificationBusyError, and ClientDisconnect when the client does not wait for the end.
    """
    principal = principal_of(request)
    principal.require_all_agents()
    tenant = principal.tenant
    if query.tenant is not None and query.tenant != tenant:
        principal.require("tenants:read")
        tenant = (await runtime.tenants.tenant(TenantId(query.tenant))).tenant
    since = [head_of(tenant, each) for each in query.since]
    return tenant, await while_connected(request, runtime.verify_ledger(tenant, since))
