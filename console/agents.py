"""Agents, what each of them has and remembers, and triggering them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from console.charts import cost_chart, last, runs_chart
from console.jinja import segment
from console.pages import FRAGMENT, Pages, page, see
from console.runs import begun
from console.text import visible
from console.visits import SentForm, read_form
from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import NANO
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.schedule import Schedule
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.usage import Grain, RunBucket, UsageBy
from owlclaw_ray.errors import DefinitionError, MemoryChangedError, NotFoundError, Problem, UnknownAgentError
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.runtime.api import AgentView, Runtime
from owlclaw_ray.store.queries import RunFilter, ScheduleFilter
from owlclaw_ray.store.usage import RunUsage
from serve.errors import InvalidRequestError, MalformedJsonError
from serve.parameters import actor_of, agent_of, principal_of, tenant_of
from serve.request_bodies import checked, read_json
from serve.trigger_request import request_of, trigger_of

PAGE = 100
_RECENT = 10
_DAYS = 30
_MEMORIES = 50
_FOUND = 20
_LONGEST_QUERY = 1_000


class AgentPages(Pages):
    """`/console/agents`."""

    place: ClassVar[str] = "agents"

    @page("GET /console/agents", "agents:read", "after", "sort", FRAGMENT, live={"rows": 1.0})
    async def console_agents(self, request: Request) -> Response:
        """Show a page of all agents."""
        after, sort = request.query_params.get("after", ""), request.query_params.get("sort", "")
        if "\0" in after:
            raise InvalidRequestError([Problem("query after", "is no agent", "leave it out")])
        principal, following = principal_of(request), None
        if sort not in {"", "cost"}:
            raise InvalidRequestError([Problem("query sort", f"is {sort!r}", "cost, or leave it out")])
        if sort:
            principal.require("runs:read")
            costs = await self._costs(request, ())
            agents = await asyncio.gather(*(view_of(self._runtime, ref) for ref in costs if principal.sees(ref)))
        else:
            found = await self._runtime.agents(tenant_of(request), after, PAGE + 1)
            agents = [each for each in found[:PAGE] if principal.sees(each.agent)]
            following = found[PAGE - 1].agent.agent_id if len(found) > PAGE else None
            costs = await self._costs(request, [each.agent for each in agents]) if agents else {}
        return await self.shown(
            request,
            "agents.html",
            "rows",
            agents=agents,
            costs=costs,
            sort=sort,
            after=after,
            following=following,
        )

    async def _costs(self, request: Request, agents: Sequence[AgentRef]) -> Mapping[AgentRef, float]:
        """Return what runs of these agents, or of those that cost most, have cost today, in US dollars and that order."""
        if not principal_of(request).may("runs:read"):
            return {}
        since, until = last(self._now(), Grain.DAY, 1)
        where = RunUsage(tenant_of(request), since, until, by=UsageBy.AGENT, agents=tuple(agents), limit=PAGE)
        found = await self._runtime.run_usage(where)
        return {each.agent: each.counts.cost / NANO for each in found if each.agent is not None}

    @page("GET /console/agents/{agent}", "agents:read", FRAGMENT, live={"live": 1.0})
    async def console_agent(self, request: Request) -> Response:
        """Show an agent, with as much of what it has as the principal may see."""
        principal = principal_of(request)
        ref = agent_of(request, request.path_params["agent"])
        runs: Sequence[Run] = ()
        days: Sequence[RunBucket] = ()
        since, until = last(self._now(), Grain.DAY, _DAYS)
        if principal.may("runs:read"):
            runs = await self._runtime.runs(RunFilter(ref.tenant, ref, None, None, _RECENT, payloads=False))
            days = await self._runtime.run_usage(RunUsage(ref.tenant, since, until, Grain.DAY, agents=(ref,)))
        schedules: Sequence[Schedule] = ()
        if principal.may("schedules:read"):
            schedules = await self._runtime.timetable.schedules(ScheduleFilter(ref.tenant, ref, limit=PAGE))
        view = await (view_of(self._runtime, ref) if runs else self._runtime.agent(ref))
        skills: Sequence[Skill] = ()
        if not view.problem:
            try:
                skills = await self._runtime.skills(ref)
            except DefinitionError as error:
                view = replace(view, problem=str(error))
        return await self.shown(
            request,
            "agent.html",
            "live",
            view=view,
            agent=ref.agent_id,
            record=view.record,
            runs=runs,
            drawn=[
                runs_chart("Runs by day", days, since, until, Grain.DAY),
                cost_chart("Cost by day", days, since, until, Grain.DAY),
            ],
            schedules=schedules,
            skills=skills,
            stats=await self._runtime.memory.stats(ref) if principal.may("memories:read") else None,
        )

    @page("POST /console/agents/{agent}/triggers", "runs:write")
    async def console_trigger(self, request: Request) -> Response:
        """Trigger the agent, and lead to its run; the same form twice makes one run."""
        return await self._trigger(request, await read_form(request), request.path_params["agent"])

    @page("POST /console/triggers", "runs:write")
    async def console_trigger_chosen(self, request: Request) -> Response:
        """Trigger the agent that is chosen in the form."""
        form = await read_form(request)
        return await self._trigger(request, form, form.text("agent").strip())

    async def _trigger(self, request: Request, form: SentForm, agent: str) -> Response:
        ref = agent_of(request, agent)
        asked: JsonObject = {"focus": form.text("focus").strip()}
        if form.text("payload").strip():
            asked["payload"] = _payload(form.text("payload"))
        trigger, admission = trigger_of(checked(asked, wire.TriggerRequest))
        key = form.text("once")[:255] or None
        accepted = await begun(self._runtime, request_of(request, ref, trigger, admission, key))
        return see(f"/runs/{accepted.run_id}")

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
        return await self.shown(
            request,
            "memories.html",
            agent=ref.agent_id,
            memories=memories,
            archived=archived,
            wanted=wanted,
            degraded=degraded,
            following=following,
            seen=seen,
        )

    @page("POST /console/agents/{agent}/memories", "memories:write")
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

    @page("POST /console/agents/{agent}/memories/{memory_id}", "memories:write")
    async def console_edit_memory(self, request: Request) -> Response:
        """Change a memory, if it is still what the page showed."""
        form, ref = await read_form(request), agent_of(request, request.path_params["agent"])
        memory = await self._runtime.memory.memory(ref, MemoryId(request.path_params["memory_id"]))
        if form.text("seen") != seen(memory):
            raise MemoryChangedError(memory.memory_id, ["content"])
        asked: JsonObject = {"tags": _tags(form)}
        if form.text("content").strip() != visible(memory.content).strip():
            asked["content"] = form.text("content").strip()
        change = checked(asked, wire.MemoryChange)
        await self._runtime.memory.edit(
            ref,
            memory.memory_id,
            change.get("content"),
            tuple(dict.fromkeys(change["tags"])),
            old_content=memory.content,
            by=actor_of(request, ""),
        )
        return see(f"/agents/{segment(ref.agent_id)}/memories#{memory.memory_id}")

    @page("POST /console/agents/{agent}/memories/{memory_id}/archive", "memories:write")
    async def console_archive_memory(self, request: Request) -> Response:
        """Move a memory to the archive."""
        await read_form(request)
        ref, memory_id = agent_of(request, request.path_params["agent"]), MemoryId(request.path_params["memory_id"])
        if not await self._runtime.memory.archive(ref, (memory_id,), by=actor_of(request, "")):
            raise NotFoundError("memory", memory_id)
        return see(f"/agents/{segment(ref.agent_id)}/memories")


async def view_of(runtime: Runtime, agent: AgentRef) -> AgentView:
    """Return an agent that has run, be its definition gone."""
    try:
        return await runtime.agent(agent)
    except UnknownAgentError as error:
        return AgentView(agent, None, model="", scripted=False, isolation="", warnings=(), problem=str(error))


def seen(memory: Memory) -> str:
    """Return what tells whether a memory is still what a page showed."""
    return hashlib.sha256(memory.content.encode()).hexdigest()


def _payload(text: str) -> JsonValue:
    """Return the JSON that somebody typed; raises InvalidRequestError."""
    try:
        return read_json(text.encode())
    except MalformedJsonError as error:
        fix = 'write JSON, such as {"symbol": "600519"}; a text needs quotation marks'
        raise InvalidRequestError([Problem("payload", str(error), fix)]) from None


def _tags(form: SentForm) -> list[str]:
    return [each for tag in form.text("tags").split(",") if (each := tag.strip())]


def _place_of(memories: Sequence[Memory], after: str) -> int:
    if not after:
        return 0
    found = next((at for at, each in enumerate(memories, start=1) if each.memory_id == after), 0)
    if not found:
        raise NotFoundError("memory", after)
    return found
