"""The HTTP API over a runtime, as one ASGI application."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.settings import BODY_TIMEOUT_SECONDS
from serve.access_gate import AccessGate
from serve.agents import AgentRoutes
from serve.approvals import ApprovalRoutes
from serve.body_limit import BODIES_AT_ONCE, BodyLimit
from serve.body_schemas import SCHEMAS, name_enums
from serve.callbacks import CallbackRoutes
from serve.client_address import ForwardedHeaders, PublicScheme
from serve.error_boundary import LastResort
from serve.examples import EXAMPLES
from serve.health import HealthProbes
from serve.keys import KeyRoutes
from serve.ledger import LedgerRoutes
from serve.mcp import McpRoutes
from serve.memories import MemoryRoutes
from serve.nodes import NodeRoutes
from serve.origin_check import OriginCheck
from serve.parameters import PRINCIPAL
from serve.problems import problem_of
from serve.read_on_demand import Demand
from serve.resource import SECURITY_SCHEME
from serve.route_check import PathOperations, RouteCheck
from serve.runs import RunRoutes
from serve.schedules import ScheduleRoutes
from serve.secrets import SecretRoutes
from serve.security_headers import DOCS, SecurityHeaders
from serve.server_facts import NO_FACTS, ServerFacts
from serve.streams import STREAMS, OpenRequestLimit
from serve.surfaces import SurfaceFactory, Surroundings
from serve.tenants import TenantRoutes
from serve.trigger_path import TriggerPath
from serve.triggers import TriggerRoutes
from serve.usage import UsageRoutes
from serve.webhooks import WebhookRoutes

KEEP_ALIVE_SECONDS = 50.0
"""Most proxies close a connection that was silent for 60 seconds. A comment costs as much as an event."""
CLIENT_CLOSED_REQUEST = 499
DESCRIPTION = """Trigger agents, follow their runs, see what they remember, plan and did.

Errors are `application/problem+json` (RFC 9457). A request that calls the server by a name that is not its own is answered 421, one of
another origin's web page 403. This page loads its scripts from a CDN, and is there only while the server listens on loopback; read
`/openapi.json` otherwise."""
_CORS_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_CORS_HEADERS = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "If-Match")
_CORS_EXPOSED = ("ETag", "Location", "Retry-After", "RateLimit", "RateLimit-Policy")


_ERRORS = (OwlClawError, HTTPException, RequestValidationError, ClientDisconnect)
"""What handlers raise that `_on_error` answers."""
_SECURITY: JsonObject = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "owl_…",
    "description": "A key of `owlclaw keys create` or POST /v1/keys; each operation names the scope that it needs. Without any key and "
    "tenant, requests of the server's own machine need none.",
}


class Api(FastAPI):
    """FastAPI, with our problems and examples in its document."""

    def openapi(self) -> JsonObject:
        """Return the OpenAPI document, made once."""
        if self.openapi_schema is None:
            components = super().openapi()["components"]
            schema = TypeAdapter(wire.Problem).json_schema(ref_template="#/components/schemas/{model}")
            components["schemas"] |= schema.pop("$defs") | {"Problem": schema} | SCHEMAS
            components["examples"] = EXAMPLES
            for unused in ("HTTPValidationError", "ValidationError"):
                components["schemas"].pop(unused, None)
            components["securitySchemes"] = {SECURITY_SCHEME: _SECURITY}
            name_enums(super().openapi())
        return super().openapi()


def build_api(
    runtime: Runtime,
    *,
    clock: Clock,
    body_limit_bytes: int,
    body_timeout_seconds: float = BODY_TIMEOUT_SECONDS,
    bodies_limit_bytes: int = BODIES_AT_ONCE,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    proxies: Collection[str] | None = None,
    is_local: bool = True,
    streams: int = STREAMS,
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    surfaces: Sequence[SurfaceFactory] = (),
    facts: ServerFacts = NO_FACTS,
) -> FastAPI:
    """Return the API.

    `clock` bounds `?wait=`. At most so many `streams` (event streams, and triggers with `?wait=`) are open at once; event streams send a
    comment every `keep_alive_seconds`. `hosts`: names that requests may call the server by, besides those of the loopback interface.
    `origins`: whose pages may use it, with a key. `proxies`: see ForwardedHeaders. `is_local`: only this machine reaches
    it, and may see its page of documentation. `surfaces`: what is served beside it, and may show the `facts`.
    """
    api = Api(
        title="OwlClaw",
        version=version("owlclaw-ray"),
        description=DESCRIPTION,
        docs_url=DOCS if is_local else None,
        swagger_ui_oauth2_redirect_url=None,
        redoc_url=None,
        # Traces and metrics are ours: FastAPI would ask at each request whether it has any to make.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    places = OpenRequestLimit(streams)
    triggers = TriggerRoutes(runtime, clock, places)
    api.router.routes.insert(0, triggers.first_route())
    paths = PathOperations()
    paths.add(api.router.routes)
    shown = [build(Surroundings(runtime, clock, places, keep_alive_seconds, facts)) for build in surfaces]
    resources = (
        triggers,
        WebhookRoutes(runtime),
        CallbackRoutes(runtime),
        RunRoutes(runtime, places, keep_alive_seconds),
        UsageRoutes(runtime, clock),
        AgentRoutes(runtime),
        MemoryRoutes(runtime),
        ScheduleRoutes(runtime),
        ApprovalRoutes(runtime),
        LedgerRoutes(runtime, clock),
        SecretRoutes(runtime),
        McpRoutes(runtime),
        NodeRoutes(runtime),
        KeyRoutes(runtime),
        TenantRoutes(runtime),
        HealthProbes(runtime),
    )
    for router in (*(each.router() for each in shown), *(each.router() for each in resources)):
        paths.add(router.routes)
        api.include_router(router)
    paths.require_scopes({api.openapi_url, api.docs_url})
    for kind in _ERRORS:
        api.add_exception_handler(kind, _on_error)
    api.add_middleware(TriggerPath, handler=triggers.trigger_agent, errors=_ERRORS, on_error=_on_error)
    api.add_middleware(BodyLimit, limit=body_limit_bytes, seconds=body_timeout_seconds, at_once=bodies_limit_bytes)
    api.add_middleware(RouteCheck)
    api.add_middleware(AccessGate, paths=paths, authenticator=runtime.authenticator, surfaces=shown)
    if origins:
        api.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=_CORS_METHODS,
            allow_headers=_CORS_HEADERS,
            expose_headers=_CORS_EXPOSED,
        )
    pages = [each.prefix for each in shown]
    api.add_middleware(OriginCheck, hosts=hosts, origins=origins, addresses=not is_local, pages=pages)
    api.add_middleware(LastResort)
    for each in shown:
        api.add_middleware(each.around)
    api.add_middleware(SecurityHeaders)
    api.add_middleware(PublicScheme, url_of=lambda: runtime.sign_ins.public_url)
    api.add_middleware(ForwardedHeaders, proxies=proxies)
    api.add_middleware(Demand)
    return api


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    path = request.url.path
    return problem_of(error, path, request.scope.get(PRINCIPAL)).response(path)
