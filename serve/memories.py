"""/v1/agents/{agent}/memories: what an agent remembers, for people to read and correct."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.memory import MemoryTextVersion
from owlclaw_ray.errors import MemoryTextChangedError, Problem
from owlclaw_ray.ids import MemoryId
from serve.errors import InvalidRequestError
from serve.parameters import AgentPath, Id, LimitQuery, actor_of, agent_of
from serve.representations import found_body, json_response, memories_body, memory_body, memory_stats_body
from serve.request_bodies import read_body
from serve.resource import IDEMPOTENCY_KEY, JSON_BODY, Resource, answer, body, operation
from serve.trigger_request import parse_idempotency_key

MemoryPath = Annotated[Id, Path(description="A memory's id.", examples=["mem_0123456789abcdef0123456789"])]
ArchivedQuery = Annotated[bool, Query(description="The archive instead of what is active.")]
AfterQuery = Annotated[Id | None, Query(description="Go on after this memory: the `next_after` of the page before.")]
TagsQuery = Annotated[
    list[Id] | None, Query(alias="tag", description="Only those with this tag; all of them, if repeated.")
]
ByQuery = Annotated[Id, Query(description="Who requests it, for the ledger.", examples=["ana"])]


_MARKDOWN: JsonObject = {
    "text/markdown": {
        "schema": {"type": "string", "minLength": 1},
        "example": "## mem_4f1c · 2026-11-03T09:30:01+00:00\n\nThe machine is busiest at nine.\n\n---\n",
    }
}
_ETAG: JsonObject = {"ETag": {"schema": {"type": "string"}, "description": "Names what MEMORY.md says now"}}
_IF_MATCH: JsonObject = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The ETag of the MEMORY.md that the body was made from.",
}
_VERSION = re.compile(r'"(\d{1,12})-([0-9a-f]{32})"')


def _version_of(match: str) -> MemoryTextVersion:
    """Return the version that an If-Match names; raises MemoryTextChangedError for one that is none of ours."""
    found = _VERSION.fullmatch(match.strip())
    if found is None:
        raise MemoryTextChangedError
    return MemoryTextVersion(int(found[1]), found[2])


def _marked(response: Response, text: bytes) -> Response:
    version = MemoryTextVersion.of(text)
    response.headers["ETag"] = f'"{version.size}-{version.digest}"'
    return response


class MemoryRoutes(Resource):
    """The resource of memories."""

    tag = "memories"

    @operation(
        "GET /v1/agents/{agent}/memories",
        "memories:read",
        "An agent's memories, oldest first",
        {200: answer("Memories", wire.Memories)},
        404,
    )
    async def list_memories(
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

    @operation(
        "GET /v1/agents/{agent}/memories/search",
        "memories:read",
        "The memories that an agent would recall for a query, best first",
        {200: answer("Memories", wire.FoundMemories)},
        404,
    )
    async def search_memories(
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

    @operation(
        "GET /v1/agents/{agent}/memories/stats",
        "memories:read",
        "How much an agent remembers, and what is wrong with its files",
        {200: answer("Figures", wire.MemoryStats)},
        404,
    )
    async def get_memory_stats(self, request: Request, agent: AgentPath) -> Response:
        """Return the figures of the agent's memory."""
        return json_response(memory_stats_body(await self._runtime.memory.stats(agent_of(request, agent))))

    @operation(
        "GET /v1/agents/{agent}/memory.md",
        "memories:read",
        "MEMORY.md, as people read and edit it",
        {
            200: {
                "description": "The text; empty if the agent remembers nothing",
                "headers": _ETAG,
                "content": _MARKDOWN,
            }
        },
        404,
    )
    async def get_memory_text(self, request: Request, agent: AgentPath) -> Response:
        """Return MEMORY.md. Its ETag names what it says, for a `PUT` of what somebody makes of it."""
        text = await self._runtime.memory.text(agent_of(request, agent))
        return _marked(Response(text, media_type="text/markdown"), text)

    @operation(
        "PUT /v1/agents/{agent}/memory.md",
        "memories:write",
        "Put an edited MEMORY.md in its place",
        {200: {**answer("It is in its place", wire.MemoryImported), "headers": _ETAG}},
        404,
        408,
        412,
        413,
        429,
        extra={"requestBody": {"required": True, "content": _MARKDOWN}, "parameters": [_IF_MATCH]},
    )
    async def put_memory_text(self, request: Request, agent: AgentPath, by: ByQuery = "") -> Response:
        """Make the body MEMORY.md.

        With `If-Match`, the ETag of what it was made from, what the agent remembered since then stays at its end; 412 if anything else
        was changed, and nothing is done. Without it, the body counts as a copy that an editor saved: what it lacks of the last day for
        being an older one is put back.
        """
        ref, text, match = agent_of(request, agent), await request.body(), request.headers.get("if-match")
        if not text:
            what = "is empty, which may be a mistake"
            raise InvalidRequestError([Problem("body", what, "send MEMORY.md; one line feed is one without memories")])
        back = await self._runtime.memory.put_text(
            ref, text, None if match is None else _version_of(match), by=actor_of(request, by)
        )
        now = await self._runtime.memory.text(ref)
        return _marked(json_response({"put_back": [each.memory_id for each in back]}), now)

    @operation(
        "GET /v1/agents/{agent}/memory.archive.md",
        "memories:read",
        "An agent's archive as people read it",
        {200: {"description": "The archive; empty if nothing was archived", "content": _MARKDOWN}},
        404,
    )
    async def get_archive_text(self, request: Request, agent: AgentPath) -> Response:
        """Return the archive."""
        return Response(await self._runtime.memory.archive_text(agent_of(request, agent)), media_type="text/markdown")

    @operation(
        "PUT /v1/agents/{agent}/memory.archive.md",
        "memories:write",
        "Have in the archive what another archive of the agent has",
        {200: answer("It is there", wire.ArchiveImported)},
        404,
        408,
        413,
        429,
        extra={"requestBody": {"required": True, "content": _MARKDOWN}},
    )
    async def put_archive_text(self, request: Request, agent: AgentPath, by: ByQuery = "") -> Response:
        """Put what the archive lacks of the body, an archive, at its end; nothing in it is changed or removed.

        What is archived or active already stays as it is. An archive that has nothing yet becomes the body as it is.
        """
        ref, text = agent_of(request, agent), await request.body()
        if not text:
            raise InvalidRequestError([Problem("body", "is empty", "send a MEMORY.archive.md")])
        return json_response(
            {"added": list(await self._runtime.memory.put_archive_text(ref, text, by=actor_of(request, by)))}
        )

    @operation(
        "GET /v1/agents/{agent}/memories/{memory_id}",
        "memories:read",
        "A memory, active or archived",
        {200: answer("The memory", wire.Memory)},
        404,
    )
    async def get_memory(self, request: Request, agent: AgentPath, memory_id: MemoryPath) -> Response:
        """Return the memory."""
        return json_response(
            memory_body(await self._runtime.memory.memory(agent_of(request, agent), MemoryId(memory_id)))
        )

    @operation(
        "POST /v1/agents/{agent}/memories",
        "memories:write",
        "Store a memory",
        {201: answer("It is stored", wire.Memory)},
        *JSON_BODY,
        404,
        429,
        extra=body(wire.MemoryRequest) | {"parameters": [IDEMPOTENCY_KEY]},
    )
    async def create_memory(self, request: Request, agent: AgentPath, by: ByQuery = "") -> Response:
        """Store a memory, as the agent's own tool `remember` does. One that differs from an active memory only in form is merged into it.

        It is on the disk before the answer, and the agent's next recall finds it. With an `Idempotency-Key`, the same request again
        stores nothing and gets the same answer.
        """
        new, key = read_body(await request.body(), wire.MemoryRequest), parse_idempotency_key(request)
        ref, tags = agent_of(request, agent), tuple(dict.fromkeys(new.get("tags", ())))
        stored = await self._runtime.memory.remember(
            ref, new["content"], tags, by=actor_of(request, by), idempotency_key=key
        )
        return json_response(memory_body(stored), 201)

    @operation(
        "POST /v1/agents/{agent}/memories/archive",
        "memories:write",
        "Move memories to the archive, where they are not recalled",
        {200: answer("Those that were moved", wire.ArchivedMemories)},
        *JSON_BODY,
        404,
        429,
        extra=body(wire.ArchiveRequest),
    )
    async def archive_memories(self, request: Request, agent: AgentPath, by: ByQuery = "") -> Response:
        """Archive the memories, and return those that were active."""
        chosen = read_body(await request.body(), wire.ArchiveRequest)["memory_ids"]
        moved = await self._runtime.memory.archive(
            agent_of(request, agent), tuple(map(MemoryId, chosen)), by=actor_of(request, by)
        )
        return json_response({"memories": [memory_body(memory) for memory in moved]})

    @operation(
        "POST /v1/agents/{agent}/memories/reindex",
        "memories:write",
        "Rebuild the index from MEMORY.md",
        {200: answer("It is rebuilt", wire.Reindexed)},
        404,
    )
    async def reindex_memories(self, request: Request, agent: AgentPath, by: ByQuery = "") -> Response:
        """Rebuild the index."""
        return json_response(
            {"indexed": await self._runtime.memory.reindex(agent_of(request, agent), by=actor_of(request, by))}
        )

    @operation(
        "PATCH /v1/agents/{agent}/memories/{memory_id}",
        "memories:write",
        "Change the text of an active memory, its tags, or both",
        {200: answer("It is changed", wire.Memory)},
        *JSON_BODY,
        404,
        409,
        429,
        extra=body(wire.MemoryChange),
    )
    async def update_memory(
        self, request: Request, agent: AgentPath, memory_id: MemoryPath, by: ByQuery = ""
    ) -> Response:
        """Change the memory; what is left out stays.

        With `old_content` or `old_tags`, what was read, nothing is changed if the memory has others by now: 409.
        """
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
            by=actor_of(request, by),
        )
        return json_response(memory_body(edited))

    @operation(
        "DELETE /v1/agents/{agent}/memories/{memory_id}",
        "memories:write",
        "Delete a memory, active or archived",
        {200: answer("The memory that was deleted", wire.Memory)},
        404,
    )
    async def delete_memory(
        self, request: Request, agent: AgentPath, memory_id: MemoryPath, by: ByQuery = ""
    ) -> Response:
        """Delete the memory, and return it."""
        return json_response(
            memory_body(
                await self._runtime.memory.delete(
                    agent_of(request, agent), MemoryId(memory_id), by=actor_of(request, by)
                )
            )
        )
