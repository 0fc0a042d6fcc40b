"""/v1/schedules: the schedules of agents, and what became of their due times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from fastapi import Path, Query
from msgspec import convert
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.schedule import ScheduleRequest, ScheduleStatus
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.store.queries import ScheduleFilter
from serve.parameters import (
    AgentPath,
    AgentQuery,
    Id,
    LimitQuery,
    Moment,
    agent_of,
    check_owner,
    only_agent_of,
    principal_of,
    submitters_of,
    tenant_of,
)
from serve.representations import backfill_body, json_response, ring_body, schedule_body, schedules_body, ticks_body
from serve.request_bodies import read_body
from serve.resource import IDEMPOTENCY_KEY, JSON_BODY, Resource, answer, body, operation
from serve.trigger_request import parse_idempotency_key

SchedulePath = Annotated[Id, Path(description="A schedule's id.", examples=["sch_01kaexample"])]
StatusQuery = Annotated[ScheduleStatus | None, Query(description="Only those in this state.")]
AfterQuery = Annotated[Id | None, Query(description="Go on after this schedule: the `next_after` of the page before.")]
_EXAMPLES: Mapping[str, JsonObject] = {
    "once": {"focus": "is the order filled?", "delay_seconds": 300},
    "interval": {"focus": "look around", "interval_seconds": 900, "jitter_seconds": 60},
    "cron": {
        "focus": "看一下大盘",
        "cron_expression": "0 9 * * MON-FRI",
        "timezone": "Asia/Shanghai",
        "overlap": "skip",
    },
}


class ScheduleRoutes(Resource):
    """The resource of schedules."""

    tag = "schedules"

    @operation(
        "GET /v1/schedules",
        "schedules:read",
        "Schedules, by agent, oldest first",
        {200: answer("Schedules", wire.Schedules)},
        404,
    )
    async def list_schedules(
        self,
        request: Request,
        agent: AgentQuery = None,
        status: StatusQuery = None,
        after: AfterQuery = None,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return schedules, including those done and cancelled unless a status is asked for. 404 if there is no schedule `after` among
        them.
        """
        ref = only_agent_of(request, agent)
        return await self._page(
            ScheduleFilter(tenant_of(request), ref, status, None if after is None else ScheduleId(after), limit)
        )

    @operation(
        "GET /v1/agents/{agent}/schedules",
        "schedules:read",
        "An agent's schedules, oldest first",
        {200: answer("Schedules", wire.Schedules)},
        404,
    )
    async def list_agent_schedules(
        self,
        request: Request,
        agent: AgentPath,
        status: StatusQuery = None,
        after: AfterQuery = None,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return the agent's schedules. 404 if there is no schedule `after` among them."""
        ref = agent_of(request, agent)
        return await self._page(
            ScheduleFilter(tenant_of(request), ref, status, None if after is None else ScheduleId(after), limit)
        )

    @operation(
        "POST /v1/agents/{agent}/schedules",
        "schedules:write",
        "Create a schedule",
        {201: answer("It is stored", wire.Schedule)},
        *JSON_BODY,
        404,
        409,
        429,
        extra=body(wire.ScheduleRequest, _EXAMPLES) | {"parameters": [IDEMPOTENCY_KEY]},
    )
    async def create_schedule(self, request: Request, agent: AgentPath) -> Response:
        """Store a schedule; with the Idempotency-Key of an earlier request, return its schedule. When the tenant has as many schedules or
        agents as it may, it is refused with 429.
        """
        key, asked = parse_idempotency_key(request), read_body(await request.body(), wire.ScheduleRequest)
        wanted = convert(asked | {"at": wire.moment(asked["at"])} if "at" in asked else asked, ScheduleRequest)
        stored = await self._runtime.timetable.create(
            agent_of(request, agent),
            wanted,
            idempotency_key=key,
            submitters=submitters_of(request),
            by=str(principal_of(request)),
        )
        return json_response(schedule_body(stored), 201, {"Location": f"/v1/schedules/{stored.schedule_id}"})

    @operation(
        "GET /v1/schedules/{schedule_id}",
        "schedules:read",
        "A schedule",
        {200: answer("The schedule", wire.Schedule)},
        404,
    )
    async def get_schedule(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Return the schedule."""
        found = await self._runtime.timetable.schedule(tenant_of(request), ScheduleId(schedule_id))
        principal_of(request).require_agent(found.agent)
        return json_response(schedule_body(found))

    @operation(
        "GET /v1/schedules/{schedule_id}/ticks",
        "schedules:read",
        "What became of a schedule's due times, newest first",
        {200: answer("Ticks", wire.Ticks)},
        404,
    )
    async def list_ticks(
        self,
        request: Request,
        schedule_id: SchedulePath,
        before: Annotated[
            Moment | None,
            Query(description="Only due times before this one: the `next_before` of the page before."),
        ] = None,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return ticks."""
        await check_owner(request, partial(self._owner, request, schedule_id))
        found = await self._runtime.timetable.ticks(tenant_of(request), ScheduleId(schedule_id), before, limit)
        return json_response(ticks_body(found, limit))

    @operation(
        "POST /v1/schedules/{schedule_id}/pause",
        "schedules:write",
        "Pause a schedule",
        {200: answer("The schedule as it is now", wire.Schedule)},
        404,
        409,
    )
    async def pause_schedule(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Pause the schedule: its due times pass without runs, and are recorded as skipped when it is resumed.

        Repeating it changes nothing.
        """
        await check_owner(request, partial(self._owner, request, schedule_id))
        by = str(principal_of(request))
        found = await self._runtime.timetable.pause(tenant_of(request), ScheduleId(schedule_id), by)
        return json_response(schedule_body(found))

    @operation(
        "POST /v1/schedules/{schedule_id}/resume",
        "schedules:write",
        "Resume a paused schedule",
        {200: answer("The schedule as it is now", wire.Schedule)},
        404,
        409,
    )
    async def resume_schedule(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Resume the schedule. Repeating it changes nothing."""
        await check_owner(request, partial(self._owner, request, schedule_id))
        by = str(principal_of(request))
        found = await self._runtime.timetable.resume(tenant_of(request), ScheduleId(schedule_id), by)
        return json_response(schedule_body(found))

    @operation(
        "POST /v1/schedules/{schedule_id}/cancel",
        "schedules:write",
        "Cancel a schedule",
        {200: answer("The schedule as it is now", wire.Schedule)},
        404,
        409,
    )
    async def cancel_schedule(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Cancel the schedule: it never fires again, its queued runs are cancelled, and a running one is asked to stop.

        Repeating it changes nothing.
        """
        await check_owner(request, partial(self._owner, request, schedule_id))
        by = str(principal_of(request))
        found = await self._runtime.timetable.cancel(tenant_of(request), ScheduleId(schedule_id), by)
        return json_response(schedule_body(found))

    @operation(
        "POST /v1/schedules/{schedule_id}/backfill",
        "schedules:write",
        "Queue runs for past due times of a schedule",
        {200: answer("What was queued", wire.Backfill)},
        *JSON_BODY,
        404,
        409,
        extra=body(wire.BackfillRequest, {"day": {"since": "2026-11-02T00:00:00Z", "until": "2026-11-03T00:00:00Z"}}),
    )
    async def backfill_schedule(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Queue a run for each past due time from `since` to `until`, both included, that has none: 1,000 at most.

        Repeating it gives no due time a second run.
        """
        asked = read_body(await request.body(), wire.BackfillRequest)
        since, until = wire.moment(asked["since"]), wire.moment(asked["until"])
        await check_owner(request, partial(self._owner, request, schedule_id))
        quota, by = principal_of(request).quota, submitters_of(request)
        done = await self._runtime.timetable.backfill(
            tenant_of(request),
            ScheduleId(schedule_id),
            since,
            until,
            quota=quota,
            submitters=by,
            by=str(principal_of(request)),
        )
        return json_response(backfill_body(done))

    @operation(
        "POST /v1/schedules/{schedule_id}/ring",
        "schedules:write",
        "Fire a schedule if it is due",
        {200: answer("When to call again", wire.Ring)},
    )
    async def ring_schedule(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Fire the schedule if it is due. Timers outside of the runtime call this.

        The store decides whether it is due: a call too early, too late or twice, or for a schedule that is cancelled, unknown or another
        tenant's, does no harm.
        """
        principal_of(request).require_all_agents()
        return json_response(ring_body(await self._runtime.ring(tenant_of(request), ScheduleId(schedule_id))))

    async def _page(self, where: ScheduleFilter) -> Response:
        return json_response(schedules_body(await self._runtime.timetable.schedules(where), where.limit))

    async def _owner(self, request: Request, schedule_id: str) -> AgentRef:
        return (await self._runtime.timetable.schedule(tenant_of(request), ScheduleId(schedule_id))).agent
