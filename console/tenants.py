"""Tenants: who shares the runtime, what each may have and has, and making, changing, suspending and deleting them. For operators."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, convert
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from console.jinja import segment
from console.pages import Pages, name_in, page, see
from console.visits import SentForm, read_form
from owlclaw_ray import wire
from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.retention import MAX_DAYS, Kept
from owlclaw_ray.domain.tenant import MAX_WEIGHT
from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import TenantId
from serve.errors import InvalidRequestError
from serve.parameters import principal_of
from serve.request_bodies import checked

PAGE = 100
QUOTAS = {
    "open_runs": "Open runs",
    "running_runs": "Running at once",
    "starts_a_minute": "Starts a minute",
    "agents": "Agents",
    "schedules": "Schedules",
    "memories": "Memories",
    "memory_bytes": "Bytes of memory",
    "artifact_bytes": "Bytes of artifacts",
    "model_tokens_a_minute": "Model tokens a minute",
}


RETENTION = {
    Kept.ARTIFACTS.value: "Artifacts",
    Kept.WEBHOOKS.value: "Deliveries and callbacks",
    Kept.MEMORIES.value: "Memories",
    Kept.RUNS.value: "Runs that are over",
}
_PUBLIC = "public"
"""What is typed for networks to say that callbacks go to public addresses alone."""


class ShownQuota(Struct, frozen=True):
    """A quota as the page of its tenant has it."""

    name: str
    title: str
    limit: int | None
    used: int | None
    """None where nothing is counted, because there is no limit."""


class TenantPages(Pages):
    """`/console/tenants`."""

    place: ClassVar[str] = "tenants"

    @page("GET /console/tenants", "tenants:read", "after")
    async def console_tenants(self, request: Request) -> Response:
        """Show the tenants that were made."""
        after = request.query_params.get("after", "").replace("\0", "")
        found = await self._runtime.tenants.tenants(after, PAGE + 1)
        return await self.shown(
            request,
            "tenants.html",
            tenants=found[:PAGE],
            following=found[PAGE - 1].tenant if len(found) > PAGE else None,
            after=after,
            quotas=QUOTAS,
            most_weight=MAX_WEIGHT,
        )

    @page("POST /console/tenants", "tenants:admin", form=console_tenants)
    async def console_create_tenant(self, request: Request) -> Response:
        """Make a tenant, and lead to it. It has no keys yet."""
        form = await read_form(request)
        asked = {"tenant": form.text("tenant").strip(), **_standing(form)}
        asked["quotas"] = {name: limit for name, limit in _limits(form).items() if limit is not None}
        wanted = checked(asked, wire.TenantRequest)
        made = await self._runtime.tenants.create(
            principal_of(request),
            wanted["tenant"],
            wanted.get("name", ""),
            wanted.get("weight", 1),
            Quotas(**wanted.get("quotas", {})),
        )
        return see(f"/tenants/{segment(made.tenant)}")

    @page("GET /console/tenants/{tenant}", "tenants:read", "did")
    async def console_tenant(self, request: Request) -> Response:
        """Show a tenant, and what it uses of its quotas."""
        tenant = await self._runtime.tenants.tenant(_tenant_in(request))
        limits, used = asdict(tenant.quotas), asdict(await self._runtime.tenants.use(tenant))
        return await self.shown(
            request,
            "tenant.html",
            tenant=tenant,
            quotas=[ShownQuota(name, title, limits[name], used[name]) for name, title in QUOTAS.items()],
            retention=RETENTION,
            kept={name: repr(days).removesuffix(".0") for name, days in tenant.retention.given.items()},
            networks=_PUBLIC if tenant.callback_networks == () else "\n".join(tenant.callback_networks or ()),
            most_weight=MAX_WEIGHT,
            most_days=MAX_DAYS,
            saved=request.query_params.get("did") == "saved",
        )

    @page("POST /console/tenants/{tenant}", "tenants:admin", form=console_tenant)
    async def console_change_tenant(self, request: Request) -> Response:
        """Change it. An empty quota is as much as the tenant likes, an empty retention or no networks are what the settings say."""
        form = await read_form(request)
        kept: JsonObject = {name: form.number(name) for name in RETENTION}
        asked = {**_standing(form), "quotas": _limits(form), "retention": kept, "callback_networks": _networks(form)}
        return await self._changed(request, asked, form.text("seen"))

    @page("POST /console/tenants/{tenant}/status", "tenants:admin")
    async def console_suspend_tenant(self, request: Request) -> Response:
        """Suspend the tenant, or let it go on."""
        return await self._changed(request, {"status": (await read_form(request)).text("status")})

    async def _changed(self, request: Request, asked: JsonObject, seen_as: str = "") -> Response:
        tenant = _tenant_in(request)
        change = convert(checked(asked, wire.TenantChange), TenantChange)
        await self._runtime.tenants.change(principal_of(request), tenant, change, seen_as=seen_as)
        return see(f"/tenants/{segment(tenant)}?did=saved")

    @page("POST /console/tenants/{tenant}/deletion", "tenants:admin", form=console_tenant)
    async def console_delete_tenant(self, request: Request) -> Response:
        """Have a suspended tenant removed for good, if its id was typed."""
        form, tenant = await read_form(request), _tenant_in(request)
        if form.text("typed").strip() != tenant:
            what = "is not the id of this tenant: nothing was deleted"
            raise InvalidRequestError([Problem("typed", what, f"type {tenant}")])
        await self._runtime.tenants.delete(principal_of(request), tenant)
        return see(f"/tenants/{segment(tenant)}")


def _tenant_in(request: Request) -> TenantId:
    return TenantId(name_in(request, "tenant", "tenant"))


def _standing(form: SentForm) -> JsonObject:
    """Return name and weight, as far as they are filled in."""
    said = {"name": form.text("name").strip(), "weight": form.number("weight")}
    return {name: value for name, value in said.items() if value not in {None, ""}}


def _limits(form: SentForm) -> JsonObject:
    return {name: form.number(name) for name in QUOTAS}


def _networks(form: SentForm) -> list[JsonValue] | None:
    """Return the networks that are typed, one a line; None where nothing is."""
    typed = form.text("callback_networks").split()
    if not typed:
        return None
    return [] if typed == [_PUBLIC] else [*typed]
