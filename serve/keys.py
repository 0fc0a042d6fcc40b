"""/v1/keys: who may ask for what."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.access.keys import IssuedKey, KeyRequest
from owlclaw_ray.domain.access_key import DEFAULT_DAYS
from owlclaw_ray.ids import KeyId, TenantId
from serve.parameters import Id, LimitQuery, principal_of, tenant_of
from serve.representations import issued_key_body, json_response, key_body, key_quota_use_body
from serve.request_bodies import read_body
from serve.resource import JSON_BODY, Resource, answer, body, operation

KeyIdPath = Annotated[
    Id, Path(description="A key's id: its characters between `owl_` and the secret.", examples=["4fT0aQ1z"])
]
AfterQuery = Annotated[Id, Query(description="Go on after this key: the `next_after` of the page before.")]
_ISSUED = answer("The key: it is told this once", wire.IssuedKey)


class KeyRoutes(Resource):
    """The resource of access keys."""

    tag = "access"

    @operation("GET /v1/keys", "keys:read", "Access keys, by id", {200: answer("Keys", wire.AccessKeys)})
    async def list_keys(self, request: Request, after: AfterQuery = "", limit: LimitQuery = 100) -> Response:
        """Return the tenant's keys without their secrets, revoked and expired ones too."""
        found = await self._runtime.keys.keys(tenant_of(request), after, limit + 1)
        following = found[limit - 1].key_id if len(found) > limit else None
        return json_response({"keys": [key_body(each) for each in found[:limit]], "next_after": following})

    @operation("GET /v1/keys/{key_id}", "keys:read", "An access key", {200: answer("The key", wire.KeyDetails)}, 404)
    async def get_key(self, request: Request, key_id: KeyIdPath) -> Response:
        """Return the key without its secret, and what it uses of its quotas at the moment."""
        found = await self._runtime.keys.key(tenant_of(request), KeyId(key_id))
        return json_response({**key_body(found), "use": key_quota_use_body(await self._runtime.keys.use(found))})

    @operation(
        "POST /v1/keys",
        "keys:admin",
        "Make an access key",
        {201: _ISSUED},
        *JSON_BODY,
        404,
        extra=body(wire.KeyRequest),
    )
    async def create_key(self, request: Request) -> Response:
        """Make a key that can do no more than the one of this request. Its text is in this answer alone: nobody can read it again."""
        wanted = wanted_key(read_body(await request.body(), wire.KeyRequest))
        return _issued(await self._runtime.keys.create(principal_of(request), wanted), 201)

    @operation(
        "POST /v1/keys/{key_id}/rotate",
        "keys:admin",
        "Give an access key another secret",
        {200: _ISSUED},
        *JSON_BODY,
        404,
        409,
        extra=body(wire.KeyRotation, required=False),
    )
    async def rotate_key(self, request: Request, key_id: KeyIdPath) -> Response:
        """Make another secret; the one before stays valid for `grace_seconds`, so that who has the key can change over."""
        asked = read_body(await request.body(), wire.KeyRotation)
        grace = asked.get("grace_seconds", 0.0)
        return _issued(await self._runtime.keys.rotate(principal_of(request), KeyId(key_id), grace), 200)

    @operation(
        "POST /v1/keys/{key_id}/revoke",
        "keys:admin",
        "Revoke an access key",
        {200: answer("It is revoked", wire.AccessKey)},
        404,
    )
    async def revoke_key(self, request: Request, key_id: KeyIdPath) -> Response:
        """Revoke the key for good. Within 5 seconds it is refused everywhere, and event streams that it opened end.

        Repeating it changes nothing.
        """
        return json_response(key_body(await self._runtime.keys.revoke(principal_of(request), KeyId(key_id))))


def wanted_key(asked: wire.KeyRequest) -> KeyRequest:
    """Return what a new key is to be."""
    tenant = asked.get("tenant")
    return KeyRequest(
        asked["name"],
        tuple(asked["scopes"]),
        tuple(asked.get("agents", ())),
        asked.get("days", DEFAULT_DAYS),
        None if tenant is None else TenantId(tenant),
        asked.get("starts_a_minute"),
        asked.get("open_runs"),
        asked.get("running_runs"),
        asked.get("model_tokens_a_minute"),
    )


def _issued(issued: IssuedKey, status: int) -> Response:
    return json_response(issued_key_body(issued), status, {"Cache-Control": "no-store"})
