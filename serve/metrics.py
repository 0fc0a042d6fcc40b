"""/metrics, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from owlclaw_ray.runtime.api import Runtime
from serve import openapi


class MetricsRoutes:
    """The numbers of the whole runtime, whichever replica is asked."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(tags=["health"], default_response_class=Response)
        router.add_api_route(
            "/metrics",
            self.metrics,
            operation_id="get_metrics",
            summary="Numbers for Prometheus",
            response_model=None,
            responses={200: openapi.METRICS, **openapi.problems(500)},
        )
        return router

    async def metrics(self) -> Response:
        """Answer with what the parts say now; `owlclaw_up` says which of them did."""
        from owlclaw_ray.telemetry.metrics.exposition import CONTENT_TYPE, text_of

        return Response(text_of(await self._runtime.metrics()), media_type=CONTENT_TYPE)
