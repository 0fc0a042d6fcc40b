"""Access keys: who has one, and making, rotating and revoking them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from starlette.requests import Request
from starlette.responses import Response

from console.jinja import query
from console.pages import PREFIX, Pages, back, name_in, page
from console.visits import read_form
from owlclaw_ray import wire
from owlclaw_ray.access.keys import MAX_GRACE_SECONDS, IssuedKey
from owlclaw_ray.domain.access_key import DEFAULT_DAYS, MAX_DAYS, AccessKey
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.principal import ROLES, VERBS
from owlclaw_ray.ids import KeyId
from serve.keys import wanted_key
from serve.parameters import principal_of, tenant_of
from serve.request_bodies import checked

PAGE = 100
_HOUR = 3_600
QUOTAS = {
    "starts_a_minute": ("Runs it may start a minute", "runs a minute"),
    "open_runs": ("Runs of it that may be open", "open runs"),
    "running_runs": ("Runs of it that run at once", "running at once"),
    "model_tokens_a_minute": ("Model tokens a minute", "model tokens a minute"),
}
"""Each with what its field is called, and what its number stands before."""


class KeyPages(Pages):
    """`/console/keys`."""

    place: ClassVar[str] = "keys"

    @page("GET /console/keys", "keys:read", "after", "tenant")
    async def console_keys(self, request: Request) -> Response:
        """Show the tenant's keys, without their secrets."""
        after = request.query_params.get("after", "").replace("\0", "")
        found = await self._runtime.keys.keys(tenant_of(request), after, PAGE + 1)
        now = self._surroundings.clock.now()
        return await self.shown(
            request,
            "keys.html",
            keys=[(each, _standing(each, now)) for each in found[:PAGE]],
            following=found[PAGE - 1].key_id if len(found) > PAGE else None,
            after=after,
            here=f"{PREFIX}/keys{query(after=after)}",
            roles=list(ROLES),
            resources=list(VERBS.items()),
            days=DEFAULT_DAYS,
            most_days=MAX_DAYS,
            most_hours=int(MAX_GRACE_SECONDS / _HOUR),
            quotas=QUOTAS,
            for_tenant=request.query_params.get("tenant", ""),
        )

    @page("POST /console/keys", "keys:admin", form=console_keys)
    async def console_create_key(self, request: Request) -> Response:
        """Make a key that can do no more than who makes it."""
        form = await read_form(request)
        asked: JsonObject = {"name": form.text("name").strip(), "scopes": [*form.all("scopes")]}
        if agents := form.text("agents").replace(",", " ").split():
            asked["agents"] = agents
        if tenant := form.text("tenant").strip():
            asked["tenant"] = tenant
        asked |= {name: number for name in ("days", *QUOTAS) if (number := form.number(name)) is not None}
        wanted = wanted_key(checked(asked, wire.KeyRequest))
        return await self._issued(request, await self._runtime.keys.create(principal_of(request), wanted), "made")

    @page("POST /console/keys/{key_id}/rotate", "keys:admin", form=console_keys)
    async def console_rotate_key(self, request: Request) -> Response:
        """Make another secret; the one before stays valid for so many hours."""
        form = await read_form(request)
        hours = form.number("grace_hours")
        seconds = hours * _HOUR if isinstance(hours, int | float) else hours
        asked = checked({} if seconds is None else {"grace_seconds": seconds}, wire.KeyRotation)
        key_id = KeyId(name_in(request, "key_id", "key"))
        rotated = await self._runtime.keys.rotate(
            principal_of(request), key_id, asked.get("grace_seconds", 0.0), seen_as=form.text("seen")
        )
        return await self._issued(request, rotated, "rotated")

    @page("POST /console/keys/{key_id}/revoke", "keys:admin")
    async def console_revoke_key(self, request: Request) -> Response:
        """Revoke the key for good."""
        form = await read_form(request)
        await self._runtime.keys.revoke(principal_of(request), KeyId(name_in(request, "key_id", "key")))
        return back(form.text("back"), "/keys")

    async def _issued(self, request: Request, issued: IssuedKey, did: str) -> Response:
        """Show the key in the answer to its form, and nowhere else.

        A redirect, which answers all other forms, would need the text in an address, in a cookie or in the store: it must be in none of
        them. Like all pages it is `no-store`, so no browser keeps it. Reloading it sends the form again, of which browsers warn: that makes
        another key, but no other secret of the same key, whose form was of the secret before.
        """
        return await self.shown(request, "key.html", key=issued.key, text=issued.text, did=did)


def _standing(key: AccessKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if now >= key.expires_at else "valid"
