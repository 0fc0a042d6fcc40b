"""/v1/secrets: what a tenant's tools need and nobody reads here."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.secret import SECRET_NAME
from serve.parameters import Id, actor_of, tenant_of
from serve.representations import json_response, secret_body
from serve.request_bodies import read_body
from serve.resource import JSON_BODY, Resource, answer, body, operation

SecretPath = Annotated[
    Id,
    Path(
        description="A secret's name.",
        examples=["CRM_TOKEN"],
        json_schema_extra={"pattern": f"^{SECRET_NAME.pattern}$"},
    ),
]


class SecretRoutes(Resource):
    """The resource of secrets. No route returns a value."""

    tag = "secrets"

    @operation(
        "GET /v1/secrets", "secrets:read", "Secrets, without their values", {200: answer("Secrets", wire.Secrets)}
    )
    async def list_secrets(self, request: Request) -> Response:
        """Return what may be known of the tenant's secrets, by name."""
        found = await self._runtime.secrets.secrets(tenant_of(request))
        return json_response({"secrets": [secret_body(each) for each in found]})

    @operation(
        "PUT /v1/secrets/{name}",
        "secrets:write",
        "Set a secret",
        {200: answer("It is set", wire.Secret)},
        *JSON_BODY,
        409,
        extra=body(wire.SecretRequest),
    )
    async def set_secret(self, request: Request, name: SecretPath) -> Response:
        """Encrypt the value and store it, in the place of a former one. Without a master key: 409.

        A name begins with a letter or `_` and has up to 100 letters, digits, `_` and `-`.
        """
        asked = read_body(await request.body(), wire.SecretRequest)
        by = actor_of(request, asked.get("by", ""))
        made = await self._runtime.secrets.set_secret(tenant_of(request), name, asked["value"], by)
        return json_response(secret_body(made))

    @operation(
        "DELETE /v1/secrets/{name}",
        "secrets:write",
        "Delete a secret",
        {200: answer("The secret that was deleted", wire.Secret)},
        404,
    )
    async def delete_secret(self, request: Request, name: SecretPath) -> Response:
        """Remove the secret. Calls that have read it go on with its value."""
        deleted = await self._runtime.secrets.delete_secret(tenant_of(request), name, actor_of(request, ""))
        return json_response(secret_body(deleted))

    @operation(
        "POST /v1/secrets:rotate",
        "secrets:write",
        "Encrypt all secrets with the newest master key",
        {200: answer("All are encrypted with it", wire.SecretRotation)},
        409,
    )
    async def rotate_secrets(self, request: Request) -> Response:
        """Encrypt with the newest master key what another one has encrypted. Values stay what they are. If a key is missing: 409."""
        rotated = await self._runtime.secrets.rotate_secrets(tenant_of(request), actor_of(request, ""))
        return json_response({"rotated": rotated})

    @operation(
        "POST /v1/secrets:rotate-all",
        "tenants:admin",
        "Encrypt the secrets of all tenants with the newest master key",
        {200: answer("All of all tenants are encrypted with it", wire.SecretRotation)},
        409,
    )
    async def rotate_all_secrets(self, request: Request) -> Response:
        """Encrypt with the newest master key what another one has encrypted, of every tenant: then the former ones are needed no more.

        If a key is missing: 409, with the tenants that still need it; the secrets of all others are done.
        """
        rotated = await self._runtime.secrets.rotate_all_secrets(actor_of(request, ""))
        return json_response({"rotated": rotated})
