"""/v1/tenants: who shares the runtime. For operators, who are principals of the default tenant."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from msgspec import convert
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from owlclaw_ray import wire
from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.retention import Retention
from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import TenantId
from serve.errors import InvalidRequestError
from serve.parameters import Id, LimitQuery, principal_of
from serve.representations import json_response, quota_use_body, tenant_body
from serve.request_bodies import read_body
from serve.resource import JSON_BODY, Resource, answer, body, operation

TenantPath = Annotated[Id, Path(description="A tenant's id.", examples=["acme"])]
AfterQuery = Annotated[Id, Query(description="Go on after this tenant: the `next_after` of the page before.")]
JSON_LINES = "application/x-ndjson"
_EXPORT: JsonObject = {
    "description": "The export, a line for each thing",
    "content": {
        JSON_LINES: {"schema": {"type": "string"}, "example": '{"type":"end","counts":{"ledger":3},"lines":5}\n'}
    },
}


class TenantRoutes(Resource):
    """The resource of tenants."""

    tag = "access"

    @operation("GET /v1/tenants", "tenants:read", "Tenants, by id", {200: answer("Tenants", wire.Tenants)})
    async def list_tenants(self, after: AfterQuery = "", limit: LimitQuery = 100) -> Response:
        """Return the tenants that were made."""
        found = await self._runtime.tenants.tenants(after, limit + 1)
        following = found[limit - 1].tenant if len(found) > limit else None
        return json_response({"tenants": [tenant_body(each) for each in found[:limit]], "next_after": following})

    @operation(
        "GET /v1/tenants/{tenant}", "tenants:read", "A tenant", {200: answer("The tenant", wire.TenantDetails)}, 404
    )
    async def get_tenant(self, tenant: TenantPath) -> Response:
        """Return the tenant, and what it uses of its quotas at the moment."""
        found = await self._runtime.tenants.tenant(TenantId(tenant))
        use = quota_use_body(await self._runtime.tenants.use(found))
        return json_response({**tenant_body(found), "use": use})

    @operation(
        "POST /v1/tenants",
        "tenants:admin",
        "Make a tenant",
        {201: answer("It is there", wire.Tenant)},
        *JSON_BODY,
        409,
        extra=body(wire.TenantRequest),
    )
    async def create_tenant(self, request: Request) -> Response:
        """Make a tenant. It has no keys yet: make one with its id as `tenant` at POST /v1/keys."""
        asked = read_body(await request.body(), wire.TenantRequest)
        made = await self._runtime.tenants.create(
            principal_of(request),
            asked["tenant"],
            asked.get("name", ""),
            asked.get("weight", 1),
            Quotas(**asked.get("quotas", {})),
            retention=Retention(**asked.get("retention", {})),
            callback_networks=asked.get("callback_networks"),
        )
        return json_response(tenant_body(made), 201, {"Location": f"/v1/tenants/{made.tenant}"})

    @operation(
        "PATCH /v1/tenants/{tenant}",
        "tenants:admin",
        "Change a tenant",
        {200: answer("The tenant as it is now", wire.Tenant)},
        *JSON_BODY,
        404,
        409,
        extra=body(wire.TenantChange),
    )
    async def update_tenant(self, request: Request, tenant: TenantPath) -> Response:
        """Change the tenant's name, weight, status, quotas, retention or callback_networks; what is left out stays.

        Keys of a suspended tenant are refused within 5 seconds.
        """
        asked = read_body(await request.body(), wire.TenantChange)
        if not asked:
            raise InvalidRequestError(
                [
                    Problem(
                        "body",
                        "changes nothing",
                        "give name, weight, status, quotas, retention, callback_networks, or several",
                    )
                ]
            )
        change = convert(asked, TenantChange)
        return json_response(
            tenant_body(await self._runtime.tenants.change(principal_of(request), TenantId(tenant), change))
        )

    @operation(
        "DELETE /v1/tenants/{tenant}",
        "tenants:admin",
        "Delete a suspended tenant, and everything of it",
        {202: answer("It is being deleted, or was", wire.Tenant)},
        404,
        409,
    )
    async def delete_tenant(self, request: Request, tenant: TenantPath) -> Response:
        """Have everything of the tenant removed for good. Its status is `deleting` until nothing is left, then `deleted`; its ledger stays.

        There is no way back, and its id cannot be used again. Export it first.
        """
        found = await self._runtime.tenants.delete(principal_of(request), TenantId(tenant))
        return json_response(tenant_body(found), 202)

    @operation(
        "GET /v1/tenants/{tenant}/export", "tenants:admin", "Everything that a tenant has", {200: _EXPORT}, 404, 409
    )
    async def export_tenant(self, request: Request, tenant: TenantPath) -> Response:
        """Return lines of JSON: the first says what it is, the last has `type` `end`. Without that one the export broke off.

        Of a deleted tenant there is its ledger. Values of secrets and hashes of keys are left out.
        """
        lines = await self._runtime.export(TenantId(tenant), principal_of(request))
        headers = {
            "Content-Disposition": f'attachment; filename="{tenant}.jsonl"',
            "X-Content-Type-Options": "nosniff",
        }
        return StreamingResponse(lines, headers=headers, media_type=JSON_LINES)
