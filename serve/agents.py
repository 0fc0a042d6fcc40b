"""/v1/agents: agents, and what each of them has."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.runtime.api import Runtime
from serve import openapi
from serve.parameters import AgentPath, Id, LimitQuery
from serve.representations import agent_body, artifact_body, json_response, skill_body
from serve.tenancy import agent_of, tenant_of

ArtifactPath = Annotated[
    Id, Path(description="The `artifact_id` of a result.", examples=["art_0123456789abcdef0123456789"])
]

RELOAD_DESCRIPTION = """Read SOUL.md, IDENTITY.md, agent.yaml and the skills, for all agents of the definition.

Every run that begins after the answer uses what they say; one that is under way keeps what it began with. Changed files are
noticed without this, within a second or two; this also looks again for what skills ask of the machine."""


class AgentRoutes:
    """The resource of agents."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1/agents", tags=["agents"], default_response_class=Response)
        router.add_api_route(
            "",
            self.listing,
            operation_id="list_agents",
            summary="List agents, by id",
            response_model=None,
            responses={200: openapi.answer("Agents", wire.Agents), **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/{agent}",
            self.one,
            operation_id="get_agent",
            summary="An agent",
            response_model=None,
            responses={
                200: openapi.answer("The agent", wire.Agent),
                **openapi.problems(404, 422, 500, 503),
            },
        )
        router.add_api_route(
            "/{agent}/skills",
            self.skills,
            operation_id="list_skills",
            summary="The skills of an agent's definition",
            response_model=None,
            responses={200: openapi.answer("Skills", wire.Skills), **openapi.problems(404, 409, 422, 500, 503)},
        )
        router.add_api_route(
            "/{agent}/reload",
            self.reload,
            methods=["POST"],
            operation_id="reload_agent",
            summary="Read the files of an agent's definition anew",
            description=RELOAD_DESCRIPTION,
            response_model=None,
            responses={200: openapi.answer("The agent", wire.Agent), **openapi.problems(404, 409, 422, 500, 503)},
        )
        router.add_api_route(
            "/{agent}/artifacts",
            self.artifacts,
            operation_id="list_artifacts",
            summary="An agent's artifacts, newest first",
            response_model=None,
            responses={
                200: openapi.answer("Artifacts", wire.Artifacts),
                **openapi.problems(404, 422, 500, 503),
            },
        )
        router.add_api_route(
            "/{agent}/artifacts/{artifact_id}",
            self.artifact,
            operation_id="get_artifact",
            summary="A large output of one of an agent's tool calls",
            response_model=None,
            responses={200: openapi.ARTIFACT, **openapi.problems(404, 422, 500, 503)},
        )
        return router

    async def listing(
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
        found = await self._runtime.agents(tenant_of(request), after, limit + 1)
        page = found[:limit]
        following = page[-1].agent.agent_id if len(found) > limit else None
        return json_response({"agents": [agent_body(view) for view in page], "next_after": following})

    async def one(self, request: Request, agent: AgentPath) -> Response:
        """Return the agent, with the problem of its definition if it has one."""
        return json_response(agent_body(await self._runtime.agent(agent_of(request, agent))))

    async def skills(self, request: Request, agent: AgentPath) -> Response:
        """Return the skills, those too that cannot be read on this machine."""
        found = await self._runtime.skills(agent_of(request, agent))
        return json_response({"skills": [skill_body(each) for each in found]})

    async def reload(self, request: Request, agent: AgentPath) -> Response:
        """Read identity, agent.yaml and skills, and return the agent."""
        return json_response(agent_body(await self._runtime.reload(agent_of(request, agent))))

    async def artifacts(
        self,
        request: Request,
        agent: AgentPath,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return what is stored of the agent's large outputs."""
        found = await self._runtime.artifacts(agent_of(request, agent), limit)
        return json_response({"artifacts": [artifact_body(each) for each in found]})

    async def artifact(self, request: Request, agent: AgentPath, artifact_id: ArtifactPath) -> Response:
        """Return the output as it was, to be saved, never to be shown as a page."""
        found = await self._runtime.artifact(agent_of(request, agent), ArtifactId(artifact_id))
        headers = {
            "Content-Disposition": f'attachment; filename="{found.artifact_id}"',
            "X-Content-Type-Options": "nosniff",
        }
        return Response(found.content, headers=headers, media_type=found.media_type)
