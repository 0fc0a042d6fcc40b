"""What an agent remembers: to look up, to add to, to change and to put away; and what became of each memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from console.jinja import query, segment
from console.pages import PREFIX, Pages, back, page, see
from console.visits import SentForm, read_form
from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.errors import MemoryChangedError, NotFoundError
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.store.queries import LedgerFilter
from serve.parameters import actor_of, agent_of, principal_of
from serve.request_bodies import checked

_MEMORIES = 50
_FOUND = 20
_LONGEST_QUERY = 1_000
_CHANGES = 1_000
"""How many of the last changes of an agent's memories are looked through for those of one."""


class MemoryChange(Struct, frozen=True):
    """What somebody did to a memory."""

    record: LedgerRecord
    what: str
    by: str
    content: str
    """What it said from then on, if the change says so."""
    tags: tuple[str, ...]
    error: str
    """Why it was not made, if it was not."""


class MemoryPages(Pages):
    """`/console/agents/{agent}/memories`."""

    place: ClassVar[str] = "agents"

    @page("GET /console/agents/{agent}/memories", "memories:read", "after", "archived", "q")
    async def console_memories(self, request: Request) -> Response:
        """Show what the agent remembers, newest first, or what a query finds, best first."""
        ref, asked = agent_of(request, request.path_params["agent"]), request.query_params
        archived, wanted = asked.get("archived") == "yes", asked.get("q", "").strip()[:_LONGEST_QUERY].replace("\0", "")
        memories: Sequence[Memory]
        following, degraded = None, ""
        if wanted:
            found = await self._runtime.memory.search(ref, wanted, _FOUND, archived=archived)
            memories, degraded = [each.memory for each in found.memories], found.reason if found.degraded else ""
        else:
            everything = (await self._runtime.memory.memories(ref, archived=archived))[::-1]
            begin = _place_of(everything, asked.get("after", ""))
            memories = everything[begin : begin + _MEMORIES]
            following = memories[-1].memory_id if begin + _MEMORIES < len(everything) else None
        place = {"archived": asked.get("archived"), "q": wanted, "after": asked.get("after")}
        return await self.shown(
            request,
            "memories.html",
            agent=ref.agent_id,
            memories=memories,
            here=f"{PREFIX}/agents/{segment(ref.agent_id)}/memories{query(**place)}",
            archived=archived,
            wanted=wanted,
            degraded=degraded,
            following=following,
            seen=seen,
        )

    @page("POST /console/agents/{agent}/memories", "memories:write", form=console_memories)
    async def console_remember(self, request: Request) -> Response:
        """Have the agent remember something."""
        form, ref = await read_form(request), agent_of(request, request.path_params["agent"])
        new = checked({"content": form.text("content").strip(), "tags": _tags(form)}, wire.MemoryRequest)
        await self._runtime.memory.remember(
            ref,
            new["content"],
            tuple(dict.fromkeys(new.get("tags", ()))),
            by=actor_of(request, ""),
            idempotency_key=form.text("once")[:255] or None,
        )
        return see(f"/agents/{segment(ref.agent_id)}/memories")

    @page("GET /console/agents/{agent}/memories/{memory_id}", "memories:read")
    async def console_memory(self, request: Request) -> Response:
        """Show a memory, active or archived, and who did what to it."""
        ref = agent_of(request, request.path_params["agent"])
        memory = await self._runtime.memory.memory(ref, MemoryId(request.path_params["memory_id"].replace("\0", "")))
        archived = memory.memory_id not in {each.memory_id for each in await self._runtime.memory.memories(ref)}
        changes, cut = await self._changes(request, ref, memory)
        return await self.shown(
            request,
            "memory.html",
            agent=ref.agent_id,
            each=memory,
            here=f"{PREFIX}/agents/{segment(ref.agent_id)}/memories/{segment(memory.memory_id)}",
            archived=archived,
            seen=seen,
            changes=changes,
            cut=cut,
            may_history=principal_of(request).may("ledger:read"),
        )

    @page("POST /console/agents/{agent}/memories/{memory_id}", "memories:write", form=console_memory)
    async def console_edit_memory(self, request: Request) -> Response:
        """Change a memory, if it is still what the page showed."""
        form, ref = await read_form(request), agent_of(request, request.path_params["agent"])
        memory = await self._runtime.memory.memory(ref, MemoryId(request.path_params["memory_id"]))
        if changed := _changed(form.text("seen"), memory):
            raise MemoryChangedError(memory.memory_id, changed)
        asked: JsonObject = {"tags": _tags(form)}
        if _lines(form.text("content")) != _lines(memory.content):
            asked["content"] = form.text("content").strip()
        change = checked(asked, wire.MemoryChange)
        await self._runtime.memory.edit(
            ref,
            memory.memory_id,
            change.get("content"),
            tuple(dict.fromkeys(change["tags"])),
            old_content=memory.content,
            old_tags=memory.tags,
            by=actor_of(request, ""),
        )
        return back(form.text("back"), f"/agents/{segment(ref.agent_id)}/memories", anchor=memory.memory_id)

    @page("POST /console/agents/{agent}/memories/{memory_id}/archive", "memories:write")
    async def console_archive_memory(self, request: Request) -> Response:
        """Move a memory to the archive."""
        form = await read_form(request)
        ref, memory_id = agent_of(request, request.path_params["agent"]), MemoryId(request.path_params["memory_id"])
        if not await self._runtime.memory.archive(ref, (memory_id,), by=actor_of(request, "")):
            raise NotFoundError("memory", memory_id)
        return back(form.text("back"), f"/agents/{segment(ref.agent_id)}/memories")

    async def _changes(self, request: Request, ref: AgentRef, memory: Memory) -> tuple[Sequence[MemoryChange], bool]:
        """Return what was done to a memory, newest first, as far as the principal may read the ledger; and whether older changes of the
        agent's memories were not looked through.
        """
        if not principal_of(request).may("ledger:read"):
            return (), False
        where = LedgerFilter(ref.tenant, ref, kind=LedgerKind.MEMORY, newest_first=True, limit=_CHANGES)
        found = [each.record for each in await self._runtime.ledger(where)]
        of_it = [each for each in found if memory.memory_id in (each.data.get("memory_ids") or ())]
        return [_change_of(each) for each in of_it], len(found) == _CHANGES


def seen(memory: Memory) -> str:
    """Return what tells whether a memory is still what a page showed: its content, and its tags in any order."""
    return f"{_hash(memory.content)}-{_hash(*sorted(memory.tags))}"


def _changed(shown: str, memory: Memory) -> Sequence[str]:
    """Return what of a memory is not any more what a page showed, as `seen` told it."""
    before, now = shown.partition("-"), seen(memory).partition("-")
    return [name for name, place in (("content", 0), ("tags", 2)) if before[place] != now[place]]


def _lines(text: str) -> str:
    """Return a text as a browser's field of several lines has it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _change_of(record: LedgerRecord) -> MemoryChange:
    data = record.data
    return MemoryChange(
        record,
        str(data.get("what", "")).replace("_", " "),
        str(data.get("by") or ""),
        str(data.get("content") or ""),
        tuple(map(str, data.get("tags") or ())),
        str(data.get("error") or ""),
    )


def _tags(form: SentForm) -> list[str]:
    return [each for tag in form.text("tags").split(",") if (each := tag.strip())]


def _place_of(memories: Sequence[Memory], after: str) -> int:
    if not after:
        return 0
    found = next((at for at, each in enumerate(memories, start=1) if each.memory_id == after), 0)
    if not found:
        raise NotFoundError("memory", after)
    return found
