"""/healthz and /readyz."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.runtime.api import Runtime
from serve import openapi
from serve.problems import RETRY_AFTER
from serve.representations import json_response


class HealthProbes:
    """The two probes of an orchestrator."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(tags=["health"], default_response_class=Response)
        router.add_api_route(
            "/healthz",
            self.alive,
            operation_id="get_liveness",
            summary="Whether this process answers",
            response_model=None,
            responses={200: openapi.answer("It does", wire.Liveness)},
        )
        router.add_api_route(
            "/readyz",
            self.ready,
            operation_id="get_readiness",
            summary="Whether triggers are accepted",
            response_model=None,
            responses={
                200: openapi.answer("Ready", wire.Health),
                503: openapi.answer("Not ready; `parts` says why", wire.Health, example="NotReady"),
            },
        )
        return router

    async def alive(self) -> Response:
        """Answer without asking anything else of the system."""
        return json_response({"status": "ok"})

    async def ready(self) -> Response:
        """Answer for all parts; 503 takes this server out of a load balancer."""
        health = await self._runtime.health()
        body = {"ready": health.ready, "parts": health.parts}
        return json_response(body) if health.ready else json_response(body, 503, RETRY_AFTER)
