"""/v1/mcp: the MCP servers, and what agents can be given of them."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.runtime.api import Runtime
from serve import openapi
from serve.representations import json_response, mcp_server_body


class McpRoutes:
    """The resource of MCP servers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1/mcp", tags=["tools"], default_response_class=Response)
        router.add_api_route(
            "",
            self.listing,
            operation_id="list_mcp_servers",
            summary="The MCP servers of the node that answers, and their tools",
            response_model=None,
            responses={200: openapi.answer("MCP servers", wire.McpServers), **openapi.problems(422, 500, 503)},
        )
        return router

    async def listing(self) -> Response:
        """Return every server of the configuration, those that are down too."""
        return json_response({"servers": [mcp_server_body(view) for view in await self._runtime.mcp_servers()]})
