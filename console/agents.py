"""Agents, what each of them has and remembers, and triggering them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from console.charts import cost_chart, last, runs_chart
from console.pages import FRAGMENT, Pages, page
from console.prompt import BarSegment, segments
from console.runs import triggered
from console.visits import read_form
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef
from owlclaw_ray.domain.artifact import StoredArtifact
from owlclaw_ray.domain.budget import NANO
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.memory import MemoryStats
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.schedule import Schedule, ScheduleStatus
from owlclaw_ray.domain.usage import Grain, RunBucket, UsageBy
from owlclaw_ray.errors import DefinitionError, Problem, UnknownAgentError
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.runs.prompt_view import next_prompt
from owlclaw_ray.runtime.api import AgentView, Runtime
from owlclaw_ray.store.queries import RunFilter, ScheduleFilter
from owlclaw_ray.store.usage import RunUsage
from serve.agents import artifact_response
from serve.errors import InvalidRequestError
from serve.parameters import agent_of, principal_of, tenant_of
from serve.visible_agents import visible_agents

PAGE = 100
_RECENT = 10
_DAYS = 30
_ARTIFACTS = 20
_LOOKED_AT = 3
"""How many of its last runs are asked for a prompt: some end without one."""
_FIRST_ENTRIES = 12
"""Of a run: its prompt and the first reply are among them."""


class NextPrompt(Struct, frozen=True):
    """What would fill an agent's next prompt."""

    bar: Sequence[BarSegment]
    counted: int
    """How many tokens the model counted in the first prompt of its last run."""
    known_tools: bool

    @property
    def tokens(self) -> tuple[int, int]:
        """How many tokens are known, and how many there may be besides."""
        parts = [each.part for each in self.bar]
        known = sum(each.tokens for each in parts if not each.bound)
        return known, sum(each.tokens for each in parts) - known


class AgentPages(Pages):
    """`/console/agents`."""

    place: ClassVar[str] = "agents"

    @page("GET /console/agents", "agents:read", "after", "sort", "name", "busy", FRAGMENT, live={"rows": 3.0})
    async def console_agents(self, request: Request) -> Response:
        """Show a page of agents: all, those whose names begin somehow, or those that have something to do."""
        asked = request.query_params
        after, sort, name = asked.get("after", ""), asked.get("sort", ""), asked.get("name", "").strip()
        busy = asked.get("busy") == "yes"
        if "\0" in after + name:
            raise InvalidRequestError([Problem("query after", "is no agent", "leave it out")])
        principal, following, cut = principal_of(request), None, False
        if sort not in {"", "cost"}:
            raise InvalidRequestError([Problem("query sort", f"is {sort!r}", "cost, or leave it out")])
        if sort:
            principal.require("runs:read")
            costs, cut = await self._dearest(request)
            agents = await self._runtime.agents_called(tenant_of(request), [each.agent_id for each in costs])
        else:
            found = await visible_agents(self._runtime, principal, PAGE, after, prefix=name, busy=busy)
            agents, following = found.agents, found.next_after
            costs = await self._costs(request, [each.agent for each in agents]) if agents else {}
        return await self.shown(
            request,
            "agents.html",
            "rows",
            agents=agents,
            costs=costs,
            cut=cut,
            sort=sort,
            after=after,
            following=following,
            name=name,
            busy=busy,
        )

    async def _costs(self, request: Request, agents: Sequence[AgentRef]) -> Mapping[AgentRef, float]:
        """Return what runs of these agents have cost today, in US dollars."""
        if not principal_of(request).may("runs:read"):
            return {}
        return await self._cost_today(request, PAGE, tuple(agents))

    async def _dearest(self, request: Request) -> tuple[Mapping[AgentRef, float], bool]:
        """Return those agents of the principal that cost most today with what they cost, in that order, and whether there are more.

        A principal of some agents sees few of those that cost most, so more are read until there are enough.
        """
        principal, limit = principal_of(request), PAGE + 1
        while True:
            found = await self._cost_today(request, limit)
            seen = {agent: cost for agent, cost in found.items() if principal.sees(agent)}
            if len(seen) > PAGE or len(found) < limit:
                return dict(islice(seen.items(), PAGE)), len(seen) > PAGE
            limit *= 10

    async def _cost_today(
        self, request: Request, limit: int, agents: tuple[AgentRef, ...] = ()
    ) -> Mapping[AgentRef, float]:
        since, until = last(self._now(), Grain.DAY, 1)
        where = RunUsage(tenant_of(request), since, until, by=UsageBy.AGENT, agents=agents, limit=limit)
        found = await self._runtime.run_usage(where)
        return {each.agent: each.counts.cost / NANO for each in found if each.agent is not None}

    @page("GET /console/agents/{agent}", "agents:read", FRAGMENT, live={"live": 3.0})
    async def console_agent(self, request: Request) -> Response:
        """Show an agent, with as much of what it has as the principal may see. What changes often is a part, which needs only that."""
        ref = agent_of(request, request.path_params["agent"])
        whole = FRAGMENT not in request.query_params
        runs, stats = await asyncio.gather(self._recent(request, ref), self._stats(request, ref))
        view = await (view_of(self._runtime, ref) if runs else self._runtime.agent(ref))
        besides: JsonObject = {}
        if whole:
            try:
                besides = await self._besides(request, view, runs, stats)
            except DefinitionError as error:
                view = replace(view, problem=str(error))
                besides = await self._besides(request, view, runs, stats)
        return await self.shown(
            request,
            "agent.html",
            "live",
            view=view,
            agent=ref.agent_id,
            record=view.record,
            runs=runs,
            stats=stats,
            **besides,
        )

    async def _recent(self, request: Request, ref: AgentRef) -> Sequence[Run]:
        if not principal_of(request).may("runs:read"):
            return ()
        return await self._runtime.runs(RunFilter(ref.tenant, ref, None, None, _RECENT, payloads=False))

    async def _stats(self, request: Request, ref: AgentRef) -> MemoryStats | None:
        """Return what it remembers; None for those who may not see it, and of an agent whose definition is gone."""
        try:
            return await self._runtime.memory.stats(ref) if principal_of(request).may("memories:read") else None
        except UnknownAgentError:
            return None

    async def _besides(
        self, request: Request, view: AgentView, runs: Sequence[Run], stats: MemoryStats | None
    ) -> JsonObject:
        """Return what the page shows besides its live part; raises DefinitionError if the view does not have that problem yet."""
        principal, ref = principal_of(request), view.agent
        days: Sequence[RunBucket] = ()
        since, until = last(self._now(), Grain.DAY, _DAYS)
        if principal.may("runs:read"):
            days = await self._runtime.run_usage(RunUsage(ref.tenant, since, until, Grain.DAY, agents=(ref,)))
        live = await self._schedules(request, ref)
        artifacts = await self._artifacts(request, ref)
        definition = None if view.problem else await self._runtime.definition(ref)
        return {
            "definition": definition,
            "filled": None if definition is None else await self._next_prompt(definition, view, runs, stats),
            "budgets": () if definition is None else await self._runtime.budgets(ref),
            "artifacts": artifacts[:_ARTIFACTS],
            "more_artifacts": len(artifacts) > _ARTIFACTS,
            "drawn": [
                runs_chart("Runs by day", days, since, until, Grain.DAY),
                cost_chart("Cost by day", days, since, until, Grain.DAY),
            ],
            "schedules": live[:PAGE],
            "more_schedules": len(live) > PAGE,
            "skills": () if definition is None else await self._runtime.skills(ref),
        }

    async def _next_prompt(
        self, definition: AgentDefinition, view: AgentView, runs: Sequence[Run], stats: MemoryStats | None
    ) -> NextPrompt:
        """Return what would fill the agent's next prompt, as far as it is known: its tools are those of its last run."""
        built, counted, tools = None, 0, ""
        for run in runs[:_LOOKED_AT]:
            entries = await self._runtime.journal(run.agent.tenant, run.run_id, _FIRST_ENTRIES + 1, _FIRST_ENTRIES)
            found = {each.kind: each.data for each in reversed(entries)}
            built = found.get(EntryKind.PROMPT_BUILT)
            if built is not None:
                tools = (await self._runtime.prompt_texts(run.agent.tenant, run.run_id)).get(built["tools"], "")
                counted = (found.get(EntryKind.MODEL_REPLIED, {}).get("usage") or {}).get("prompt_tokens", 0)
                break
        parts = next_prompt(
            definition,
            view.record.state.recent_outcomes if view.record else (),
            tools=tools,
            visible=built["visible"] if built else (),
            remembers=stats is None or stats.active > 0,
            now=self._now(),
        )
        return NextPrompt(segments(parts), counted, known_tools=bool(tools))

    async def _schedules(self, request: Request, ref: AgentRef) -> Sequence[Schedule]:
        """Return the active ones, then the paused ones, and one more of each if there is one."""
        live: list[Schedule] = []
        for status in (
            (ScheduleStatus.ACTIVE, ScheduleStatus.PAUSED) if principal_of(request).may("schedules:read") else ()
        ):
            try:
                live += await self._runtime.timetable.schedules(ScheduleFilter(ref.tenant, ref, status, limit=PAGE + 1))
            except UnknownAgentError:  # its definition is gone
                break
        return live

    async def _artifacts(self, request: Request, ref: AgentRef) -> Sequence[StoredArtifact]:
        """Return the newest, and one more if there is one."""
        if not principal_of(request).may("runs:read"):
            return ()
        try:
            return await self._runtime.artifacts(ref, _ARTIFACTS + 1)
        except UnknownAgentError:
            return ()

    @page("GET /console/agents/{agent}/artifacts/{artifact_id}", "runs:read")
    async def console_artifact(self, request: Request) -> Response:
        """Return an artifact, as a download."""
        ref = agent_of(request, request.path_params["agent"])
        artifact_id = ArtifactId(request.path_params["artifact_id"].replace("\0", ""))
        return await artifact_response(await self._runtime.artifact(ref, artifact_id))

    @page("POST /console/agents/{agent}/triggers", "runs:write", form=console_agent)
    async def console_trigger(self, request: Request) -> Response:
        """Trigger the agent, and lead to its run; the same form twice makes one run."""
        return await triggered(self._runtime, request, await read_form(request), request.path_params["agent"])


async def view_of(runtime: Runtime, agent: AgentRef) -> AgentView:
    """Return an agent that has run, be its definition gone."""
    try:
        return await runtime.agent(agent)
    except UnknownAgentError as error:
        return AgentView(agent, None, model="", scripted=False, isolation="", warnings=(), problem=str(error))
