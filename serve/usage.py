"""/v1/usage: what runs and tool calls came to, by time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.usage import KEPT, MINUTES_KEPT, STEP, Grain, RunBucket, ToolBucket, UsageBy, floored
from owlclaw_ray.errors import Problem
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.usage import RunUsage, ToolUsage
from serve.errors import InvalidRequestError
from serve.parameters import AgentQuery, Moment, only_agent_of, tenant_of
from serve.representations import json_response, moment, run_usage_body, tool_usage_body
from serve.resource import Resource, answer, operation


class UsageQuery(BaseModel):
    """Of which time, and what is counted apart."""

    since: Moment | None = Field(
        None, description="Only what ended from this time on, with its zone. Default: today's, in UTC."
    )
    until: Moment | None = Field(None, description="Only what ended before this time, with its zone. Default: now.")
    grain: Grain = Field(Grain.TOTAL, description="For each minute, hour or day of UTC, or all together.")
    by: UsageBy = Field(UsageBy.NONE, description="For each agent, definition or tool; `none`: for all together.")
    agent: AgentQuery = None
    limit: int = Field(1_000, ge=1, le=10_000, description="At most so many.")


class UsageRoutes(Resource):
    """The resource of usage. `clock` says what is today."""

    tag = "runs"

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        super().__init__(runtime)
        self._clock = clock

    @operation(
        "GET /v1/usage",
        "runs:read",
        "What runs, or tool calls, came to",
        {200: answer("What was counted", wire.UsageReport)},
    )
    async def get_usage(self, request: Request, query: Annotated[UsageQuery, Query()]) -> Response:
        """Return numbers, cost, tokens and times of the runs that ended, or of the tool calls with `by=tool`; never read from runs, but
        counted as they end.

        Times that begin within `since` and `until` count as a whole: hours, minutes with `grain=minute`, and days for what is counted by
        agent or definition, or of one agent. The answer says which they were. Minutes are kept for 2 days, the rest for 92.
        """
        tenant, ref = tenant_of(request), only_agent_of(request, query.agent)
        problem = problem_of(query.grain, query.by, ref)
        if problem is not None:
            raise InvalidRequestError([problem])
        since, until = span_of(query, ref, self._clock.now())
        runs: list[RunBucket] = []
        tools: list[ToolBucket] = []
        if query.by is UsageBy.TOOL:
            tools = [*await self._runtime.tool_usage(ToolUsage(tenant, since, until, query.grain, query.limit + 1))]
        else:
            agents = () if ref is None else (ref,)
            wanted = RunUsage(tenant, since, until, query.grain, query.by, agents, query.limit + 1)
            runs = [*await self._runtime.run_usage(wanted)]
        return json_response(
            {
                "since": moment(since),
                "until": moment(until),
                "grain": query.grain.value,
                "by": query.by.value,
                "complete": len(runs) + len(tools) <= query.limit,
                "runs": [run_usage_body(each) for each in runs[: query.limit]],
                "tools": [tool_usage_body(each) for each in tools[: query.limit]],
            }
        )


def problem_of(grain: Grain, by: UsageBy, agent: AgentRef | None) -> Problem | None:
    """Return why nothing is counted like that; None if it is."""
    if by is UsageBy.TOOL:
        if agent is not None:
            return Problem("query agent", "calls of tools are not counted by agent", "leave it out, or by=tool")
        if grain is Grain.MINUTE:
            return Problem("query grain", "calls of tools are not counted by minute", "hour, day or total")
    elif grain in {Grain.MINUTE, Grain.HOUR} and (by is not UsageBy.NONE or agent is not None):
        what = f"runs of agents are not counted by {grain.value}"
        return Problem("query grain", what, "day or total; or leave out the agent, and by")
    return None


def span_of(query: UsageQuery, agent: AgentRef | None, now: datetime) -> tuple[datetime, datetime]:
    """Return the whole times that are asked for: from when on, and up to when."""
    unit = Grain.HOUR
    if query.grain is Grain.MINUTE:
        unit = Grain.MINUTE
    elif agent is not None or query.by in {UsageBy.AGENT, UsageBy.DEFINITION}:
        unit = Grain.DAY
    oldest = now - (MINUTES_KEPT if unit is Grain.MINUTE else KEPT)
    until = min(query.until or now, now + STEP[Grain.DAY])
    since = max(query.since or floored(now, Grain.DAY), oldest)
    return floored(since, unit), floored(until + STEP[unit] - timedelta(microseconds=1), unit)
