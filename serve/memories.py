"""/v1/agents/{agent}/memories: what an agent remembers, for people to see and to put right."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.runtime.api import Runtime
from serve import openapi
from serve.errors import InvalidRequestError
from serve.parameters import AgentPath, Id, LimitQuery
from serve.representations import found_body, json_response, memories_body, memory_body, memory_stats_body
from serve.request_bodies import read_body
from serve.tenancy import agent_of
from serve.trigger_request import parse_idempotency_key

MemoryPath = Annotated[Id, Path(description="A memory's id.", examples=["mem_0123456789abcdef0123456789"])]
ArchivedQuery = Annotated[bool, Query(description="The archive instead of what is active.")]
AfterQuery = Annotated[Id | None, Query(description="Go on after this memory: the `next_after` of the page before.")]
TagsQuery = Annotated[
    list[Id] | None, Query(alias="tag", description="Only those with this tag; all of them, if repeated.")
]
ByQuery = Annotated[Id, Query(description="Who has it done, for the ledger.", examples=["ana"])]

REMEMBER_DESCRIPTION = """Store a memory, as the agent's own tool `remember` does. What is equal to an active one but for its form is merged
into it.

It is on the disk before the answer, and the agent's next recall finds it. With an `Idempotency-Key`, the same request again stores
nothing and gets the same answer."""
EDIT_DESCRIPTION = """What is left out stays. With `old_content` or `old_tags`, what was read, nothing is changed if the memory has
others by now: 409."""


class MemoryRoutes:
    """The resource of memories."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1/agents/{agent}/memories", tags=["memories"], default_response_class=Response)
        self._reading(router)
        self._writing(router)
        return router

    def _reading(self, router: APIRouter) -> None:
        router.add_api_route(
            "",
            self.listing,
            operation_id="list_memories",
            summary="What an agent remembers, oldest first",
            response_model=None,
            responses={200: openapi.answer("Memories", wire.Memories), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/search",
            self.search,
            operation_id="search_memories",
            summary="What an agent would recall for a query, best first",
            response_model=None,
            responses={200: openapi.answer("Memories", wire.FoundMemories), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/stats",
            self.stats,
            operation_id="get_memory_stats",
            summary="How much an agent remembers, and what is wrong with its files",
            response_model=None,
            responses={200: openapi.answer("Figures", wire.MemoryStats), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/{memory_id}",
            self.one,
            operation_id="get_memory",
            summary="A memory, active or archived",
            response_model=None,
            responses={200: openapi.answer("The memory", wire.Memory), **openapi.problems(404, 422, 500, 503)},
        )

    def _writing(self, router: APIRouter) -> None:
        router.add_api_route(
            "",
            self.remember,
            methods=["POST"],
            status_code=201,
            operation_id="create_memory",
            summary="Have an agent remember something",
            description=REMEMBER_DESCRIPTION,
            response_model=None,
            openapi_extra=openapi.IDEMPOTENT | openapi.body("MemoryRequest"),
            responses={
                201: openapi.answer("It is stored", wire.Memory),
                **openapi.problems(400, 404, 408, 413, 422, 500, 503),
            },
        )
        router.add_api_route(
            "/archive",
            self.archive,
            methods=["POST"],
            operation_id="archive_memories",
            summary="Move memories to the archive, where they are not recalled",
            response_model=None,
            openapi_extra=openapi.body("ArchiveRequest"),
            responses={
                200: openapi.answer("Those that were moved", wire.ArchivedMemories),
                **openapi.problems(400, 404, 408, 413, 422, 500, 503),
            },
        )
        router.add_api_route(
            "/reindex",
            self.reindex,
            methods=["POST"],
            operation_id="reindex_memories",
            summary="Make the index anew from MEMORY.md",
            response_model=None,
            responses={200: openapi.answer("It is made", wire.Reindexed), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/{memory_id}",
            self.edit,
            methods=["PATCH"],
            operation_id="update_memory",
            summary="Change the text of an active memory, its tags, or both",
            description=EDIT_DESCRIPTION,
            response_model=None,
            openapi_extra=openapi.body("MemoryChange"),
            responses={
                200: openapi.answer("It is changed", wire.Memory),
                **openapi.problems(400, 404, 409, 408, 413, 422, 500, 503),
            },
        )
        router.add_api_route(
            "/{memory_id}",
            self.delete,
            methods=["DELETE"],
            operation_id="delete_memory",
            summary="Remove a memory for good, active or archived",
            response_model=None,
            responses={200: openapi.answer("It was this", wire.Memory), **openapi.problems(404, 422, 500, 503)},
        )

    async def listing(
        self,
        request: Request,
        agent: AgentPath,
        after: AfterQuery = None,
        limit: LimitQuery = 100,
        *,
        archived: ArchivedQuery = False,
    ) -> Response:
        """Return a page of the agent's active memories, or of the archived ones; `next_after` leads to the next page."""
        found = await self._runtime.memory.memories(agent_of(request, agent), archived=archived)
        return json_response(memories_body(found, after, limit))

    async def search(
        self,
        request: Request,
        agent: AgentPath,
        query: Annotated[
            str, Query(min_length=1, max_length=1_000, pattern=wire.NO_NUL, description="What to look for.")
        ],
        limit: Annotated[int, Query(ge=1, le=20, description="At most so many.")] = 5,
        tags: TagsQuery = None,
        *,
        archived: ArchivedQuery = False,
        explain: Annotated[bool, Query(description="Also the parts of each score.")] = False,
    ) -> Response:
        """Return what is found, best first, and whether the index was out of use."""
        found = await self._runtime.memory.search(
            agent_of(request, agent), query, limit, tuple(tags or ()), archived=archived
        )
        return json_response(found_body(found, explained=explain))

    async def stats(self, request: Request, agent: AgentPath) -> Response:
        """Return the figures of the agent's memory."""
        return json_response(memory_stats_body(await self._runtime.memory.stats(agent_of(request, agent))))

    async def one(self, request: Request, agent: AgentPath, memory_id: MemoryPath) -> Response:
        """Return the memory."""
        return json_response(
            memory_body(await self._runtime.memory.memory(agent_of(request, agent), MemoryId(memory_id)))
        )

    async def remember(self, request: Request, agent: AgentPath, by: ByQuery = "") -> Response:
        """Store a memory."""
        new, key = read_body(await request.body(), wire.MemoryRequest), parse_idempotency_key(request)
        ref, tags = agent_of(request, agent), tuple(dict.fromkeys(new.get("tags", ())))
        stored = await self._runtime.memory.remember(ref, new["content"], tags, by=by, idempotency_key=key)
        return json_response(memory_body(stored), 201)

    async def archive(self, request: Request, agent: AgentPath, by: ByQuery = "") -> Response:
        """Move memories to the archive."""
        chosen = read_body(await request.body(), wire.ArchiveRequest)["memory_ids"]
        moved = await self._runtime.memory.archive(agent_of(request, agent), tuple(map(MemoryId, chosen)), by=by)
        return json_response({"memories": [memory_body(memory) for memory in moved]})

    async def reindex(self, request: Request, agent: AgentPath, by: ByQuery = "") -> Response:
        """Make the index anew."""
        return json_response({"indexed": await self._runtime.memory.reindex(agent_of(request, agent), by=by)})

    async def edit(self, request: Request, agent: AgentPath, memory_id: MemoryPath, by: ByQuery = "") -> Response:
        """Change a memory."""
        change = read_body(await request.body(), wire.MemoryChange)
        if change.keys().isdisjoint({"content", "tags"}):
            raise InvalidRequestError([Problem("body", "changes nothing", "give content, tags, or both")])
        tags, old_tags = change.get("tags"), change.get("old_tags")
        edited = await self._runtime.memory.edit(
            agent_of(request, agent),
            MemoryId(memory_id),
            change.get("content"),
            None if tags is None else tuple(dict.fromkeys(tags)),
            old_content=change.get("old_content"),
            old_tags=None if old_tags is None else tuple(old_tags),
            by=by,
        )
        return json_response(memory_body(edited))

    async def delete(self, request: Request, agent: AgentPath, memory_id: MemoryPath, by: ByQuery = "") -> Response:
        """Remove a memory."""
        return json_response(
            memory_body(await self._runtime.memory.delete(agent_of(request, agent), MemoryId(memory_id), by=by))
        )
