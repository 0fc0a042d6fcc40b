"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.json import JsonObject
from serve.parameters import principal_of
from serve.problems import RETRY_AFTER
from serve.representations import json_response
from serve.resource import PUBLIC, Resource, answer, operation

_METRICS: JsonObject = {
    "description": "The text format of Prometheus",
    "content": {
        "text/plain": {
            "schema": {"type": "string"},
            "example": '# TYPE owlclaw_runs gauge\nowlclaw_runs{status="queued"} 3.0\n',
        }
    },
}


class HealthProbes(Resource):
    """The probes of an orchestrator, and the metrics of the whole runtime, whichever replica is asked."""

    tag = "health"

    @operation("GET /healthz", PUBLIC, "Whether this process answers", {200: answer("It does", wire.Liveness)})
    async def get_liveness(self) -> Response:
        """Answer without asking anything else of the system."""
        return json_response({"status": "ok"})

    @operation(
        "GET /readyz",
        "system:read",
        "Whether triggers are accepted",
        {200: answer("Ready", wire.Health), 503: answer("Not ready; `parts` says why", wire.Health, "NotReady")},
        optional=True,
    )
    async def get_readiness(self, request: Request) -> Response:
        """Answer for all parts; 503 takes this server out of a load balancer. A cluster that stands by is ready: it takes triggers.

        Who lacks the scope, or shows no key where there are any, is told the `status` alone.
        """
        health = await self._runtime.health()
        body: JsonObject = {"status": "ready" if health.ready else "not_ready"}
        if principal_of(request).may("system:read"):
            parts: JsonObject = {**health.parts}
            body |= {"ready": health.ready, "parts": parts, "standby": bool(health.holder), "holder": health.holder}
        return json_response(body) if health.ready else json_response(body, 503, RETRY_AFTER)

    @operation("GET /metrics", "system:read", "Metrics for Prometheus", {200: _METRICS}, 500)
    async def get_metrics(self) -> Response:
        """Return the metrics of all parts; `owlclaw_up` says which of them answered."""
        from owlclaw_ray.telemetry.metrics.exposition import CONTENT_TYPE, text_of

        return Response(text_of(await self._runtime.metrics()), media_type=CONTENT_TYPE)
