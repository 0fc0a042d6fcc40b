"""/v1/agents: agents, and what each of them has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from owlclaw_ray import wire
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.tools.artifact_home import ArtifactReader
from serve.parameters import AgentPath, Id, LimitQuery, agent_of, principal_of
from serve.representations import agent_body, artifact_body, json_response, skill_body
from serve.resource import Resource, answer, operation
from serve.visible_agents import visible_agents

ArtifactPath = Annotated[
    Id, Path(description="The `artifact_id` of a result.", examples=["art_0123456789abcdef0123456789"])
]
_PART_BYTES = 1024 * 1024
_ARTIFACT: JsonObject = {
    "description": "The output, whole up to 10 MiB, or up to 256 MiB with `artifacts.url`",
    "content": {
        "text/plain": {"schema": {"type": "string"}, "example": "line 1\nline 2\n"},
        "application/json": {"schema": {}, "example": {"rows": [1, 2, 3]}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "…"},
    },
}


class AgentRoutes(Resource):
    """The resource of agents."""

    tag = "agents"

    @operation("GET /v1/agents", "agents:read", "List agents, by id", {200: answer("Agents", wire.Agents)})
    async def list_agents(
        self,
        request: Request,
        after: Annotated[
            str,
            Query(
                description="Only agents whose ids come after this one: `next_after`.",
                examples=["assistant"],
                max_length=250,
                pattern=r"^[^\x00-\x1f]*$",
            ),
        ] = "",
        limit: LimitQuery = 100,
    ) -> Response:
        """Return a page of every definition's agent and every agent with a key that ever had a trigger."""
        page = await visible_agents(self._runtime, principal_of(request), limit, after)
        return json_response({"agents": [agent_body(view) for view in page.agents], "next_after": page.next_after})

    @operation("GET /v1/agents/{agent}", "agents:read", "An agent", {200: answer("The agent", wire.Agent)}, 404)
    async def get_agent(self, request: Request, agent: AgentPath) -> Response:
        """Return the agent, with the problem of its definition if it has one."""
        return json_response(agent_body(await self._runtime.agent(agent_of(request, agent))))

    @operation(
        "GET /v1/agents/{agent}/skills",
        "agents:read",
        "The skills of an agent's definition",
        {200: answer("Skills", wire.Skills)},
        404,
        409,
    )
    async def list_skills(self, request: Request, agent: AgentPath) -> Response:
        """Return the skills, including those that cannot be read on this machine."""
        found = await self._runtime.skills(agent_of(request, agent))
        return json_response({"skills": [skill_body(each) for each in found]})

    @operation(
        "POST /v1/agents/{agent}/reload",
        "agents:write",
        "Reload the files of an agent's definition",
        {200: answer("The agent", wire.Agent)},
        404,
        409,
    )
    async def reload_agent(self, request: Request, agent: AgentPath) -> Response:
        """Read SOUL.md, IDENTITY.md, agent.yaml and the skills, for all agents of the definition.

        Every run that begins after the answer uses what they say; one that is under way keeps what it began with. Changed files are
        noticed without this, within a second or two; this also checks again whether the machine has what skills require.
        """
        principal_of(request).require_operator()
        return json_response(agent_body(await self._runtime.reload(agent_of(request, agent))))

    @operation(
        "GET /v1/agents/{agent}/artifacts",
        "runs:read",
        "An agent's artifacts, newest first",
        {200: answer("Artifacts", wire.Artifacts)},
        404,
    )
    async def list_artifacts(self, request: Request, agent: AgentPath, limit: LimitQuery = 100) -> Response:
        """Return what is stored of the agent's large outputs."""
        found = await self._runtime.artifacts(agent_of(request, agent), limit)
        return json_response({"artifacts": [artifact_body(each) for each in found]})

    @operation(
        "GET /v1/agents/{agent}/artifacts/{artifact_id}",
        "runs:read",
        "A large output of one of an agent's tool calls",
        {200: _ARTIFACT},
        404,
    )
    async def get_artifact(self, request: Request, agent: AgentPath, artifact_id: ArtifactPath) -> Response:
        """Return the output as it was, as a download that browsers do not show as a page."""
        found = await self._runtime.artifact(agent_of(request, agent), ArtifactId(artifact_id))
        return await artifact_response(found)


async def artifact_response(found: ArtifactReader) -> Response:
    """Return an artifact as a download that browsers do not show as a page."""
    headers = {
        "Content-Disposition": f'attachment; filename="{found.artifact_id}"',
        "X-Content-Type-Options": "nosniff",
    }
    first = await asyncio.to_thread(found.read, 0, _PART_BYTES)
    if found.size_bytes <= _PART_BYTES:
        return Response(first, headers=headers, media_type=found.media_type)
    headers["Content-Length"] = str(found.size_bytes)
    return StreamingResponse(_parts(found, first), headers=headers, media_type=found.media_type)


async def _parts(artifact: ArtifactReader, first: bytes) -> AsyncIterator[bytes]:
    """Yield the artifact, of which the first part was read: no more of it is in memory than a part."""
    yield first
    for start in range(_PART_BYTES, artifact.size_bytes, _PART_BYTES):
        yield await asyncio.to_thread(artifact.read, start, start + _PART_BYTES)
