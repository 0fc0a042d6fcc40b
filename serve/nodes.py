"""/v1/nodes: the machines of the cluster."""

from __future__ import annotations

from starlette.responses import Response

from owlclaw_ray import wire
from serve.representations import json_response, nodes_body
from serve.resource import Resource, answer, operation


class NodeRoutes(Resource):
    """The resource of nodes."""

    tag = "health"

    @operation("GET /v1/nodes", "The nodes of the cluster", {200: answer("Nodes", wire.Nodes)})
    async def list_nodes(self) -> Response:
        """Ask all nodes at once, and return what each says; those that do not answer, and those that were lost, are there too."""
        return json_response(dict(nodes_body(await self._runtime.nodes())))
