"""/v1/nodes: the machines of the cluster."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from serve.parameters import principal_of
from serve.representations import json_response, nodes_body
from serve.resource import Resource, answer, operation

NodePath: TypeAlias = Annotated[
    str, Path(description="Ray's id of the node, or the beginning of it; its name or its address; or `all`.")
]


class NodeRoutes(Resource):
    """The resource of nodes."""

    tag = "health"

    @operation("GET /v1/nodes", "system:read", "The nodes of the cluster", {200: answer("Nodes", wire.Nodes)})
    async def list_nodes(self) -> Response:
        """Ask all nodes at once, and return what each says; those that do not answer, and those that were lost, are there too."""
        return json_response(dict(nodes_body(await self._runtime.nodes())))

    @operation(
        "POST /v1/nodes/{node}/drain",
        "system:admin",
        "Drain a node",
        {202: answer("It takes up nothing more; these nodes as they are now", wire.Nodes)},
        404,
    )
    async def drain_node(self, request: Request, node: NodePath) -> Response:
        """Have a node run no agents any more: model calls and tool calls under way end, within the grace of a stop, and its runs go on
        elsewhere. It is empty once `report.load.agents` is 0.

        It is durable, and repeating it changes nothing. When all nodes are drained, another cluster may run the agents.
        """
        return json_response(dict(nodes_body(await self._runtime.drain(node, str(principal_of(request))))), 202)

    @operation(
        "POST /v1/nodes/{node}/undrain",
        "system:admin",
        "Take a drained node back",
        {200: answer("It runs agents again; these nodes as they are now", wire.Nodes)},
        404,
    )
    async def undrain_node(self, request: Request, node: NodePath) -> Response:
        """Let a node that was drained run agents again. Repeating it changes nothing."""
        return json_response(dict(nodes_body(await self._runtime.undrain(node, str(principal_of(request))))))
