"""/v1/mcp: the MCP servers, and their tools."""

from __future__ import annotations

from starlette.responses import Response

from owlclaw_ray import wire
from serve.representations import json_response, mcp_server_body
from serve.resource import Resource, answer, operation


class McpRoutes(Resource):
    """The resource of MCP servers."""

    tag = "tools"

    @operation(
        "GET /v1/mcp",
        "system:read",
        "The MCP servers of the node that answers, and their tools",
        {200: answer("MCP servers", wire.McpServers)},
    )
    async def list_mcp_servers(self) -> Response:
        """Return every server of the configuration, including those that are down."""
        return json_response({"servers": [mcp_server_body(view) for view in await self._runtime.mcp_servers()]})
