"""/v1/schedules: the schedules of agents, and what became of their times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query
from msgspec import convert
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.schedule import ScheduleRequest, ScheduleStatus
from owlclaw_ray.ids import ScheduleId, TenantId
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.schedules.timetable import Timetable
from owlclaw_ray.store.queries import ScheduleFilter
from serve import openapi
from serve.parameters import AgentPath, AgentQuery, Id, LimitQuery, Moment
from serve.representations import backfill_body, json_response, ring_body, schedule_body, schedules_body, ticks_body
from serve.request_bodies import read_body
from serve.tenancy import agent_of, tenant_of
from serve.trigger_request import parse_idempotency_key

SchedulePath = Annotated[Id, Path(description="A schedule's id.", examples=["sch_01kaexample"])]
StatusQuery = Annotated[ScheduleStatus | None, Query(description="Only those that stand like this.")]
AfterQuery = Annotated[Id | None, Query(description="Go on after this schedule: the `next_after` of the page before.")]

BACKFILL_DESCRIPTION = """Queue a run for each due time from `since` to `until`, both included and past, that has none: 1,000 at most.

However often it is asked, no due time gets a second run."""
PAUSE_DESCRIPTION = "Its times pass without runs from now on. They are accounted for as skipped when it goes on."
RING_DESCRIPTION = """What alarm clocks outside of the runtime call.

Whether it is due is what the store says: to ring too early, too late or twice, for one that is cancelled, unknown or another tenant's,
does no harm."""
CANCEL_DESCRIPTION = "It never fires again. Its queued runs are cancelled, and a running one is asked to end."


class ScheduleRoutes:
    """The resource of schedules."""

    def __init__(self, timetable: Timetable, ring: Callable[[TenantId, ScheduleId], Awaitable[Alarm]]) -> None:
        self._timetable, self._ring = timetable, ring

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1", tags=["schedules"], default_response_class=Response)
        router.add_api_route(
            "/schedules",
            self.listing,
            operation_id="list_schedules",
            summary="Schedules, by agent, oldest first",
            response_model=None,
            responses={200: openapi.answer("Schedules", wire.Schedules), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/agents/{agent}/schedules",
            self.of_agent,
            operation_id="list_agent_schedules",
            summary="An agent's schedules, oldest first",
            response_model=None,
            responses={200: openapi.answer("Schedules", wire.Schedules), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/agents/{agent}/schedules",
            self.create,
            methods=["POST"],
            status_code=201,
            operation_id="create_schedule",
            summary="A new schedule",
            response_model=None,
            openapi_extra=openapi.SCHEDULE_OPERATION,
            responses={
                201: openapi.answer("It is stored", wire.Schedule),
                **openapi.problems(400, 404, 409, 408, 413, 422, 500, 503),
            },
        )
        router.add_api_route(
            "/schedules/{schedule_id}",
            self.one,
            operation_id="get_schedule",
            summary="A schedule",
            response_model=None,
            responses={200: openapi.answer("The schedule", wire.Schedule), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/schedules/{schedule_id}/ticks",
            self.ticks,
            operation_id="list_ticks",
            summary="What became of a schedule's times, newest first",
            response_model=None,
            responses={200: openapi.answer("Ticks", wire.Ticks), **openapi.problems(404, 422, 500, 503)},
        )
        for verb, endpoint, summary, description in (
            ("pause", self.pause, "Pause a schedule", PAUSE_DESCRIPTION),
            ("resume", self.resume, "Have a paused schedule go on", ""),
            ("cancel", self.cancel, "Cancel a schedule", CANCEL_DESCRIPTION),
        ):
            router.add_api_route(
                f"/schedules/{{schedule_id}}/{verb}",
                endpoint,
                methods=["POST"],
                operation_id=f"{verb}_schedule",
                summary=summary,
                description=description or None,
                response_model=None,
                responses={
                    200: openapi.answer("The schedule as it stands", wire.Schedule),
                    **openapi.problems(404, 409, 422, 500, 503),
                },
            )
        router.add_api_route(
            "/schedules/{schedule_id}/ring",
            self.ring,
            methods=["POST"],
            operation_id="ring_schedule",
            summary="Fire a schedule if it is due",
            description=RING_DESCRIPTION,
            response_model=None,
            responses={200: openapi.answer("When to ring again", wire.Ring), **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/schedules/{schedule_id}/backfill",
            self.backfill,
            methods=["POST"],
            operation_id="backfill_schedule",
            summary="Runs for past times of a schedule",
            description=BACKFILL_DESCRIPTION,
            response_model=None,
            openapi_extra=openapi.BACKFILL_OPERATION,
            responses={
                200: openapi.answer("What it did", wire.Backfill),
                **openapi.problems(400, 404, 409, 408, 413, 422, 500, 503),
            },
        )
        return router

    async def listing(
        self,
        request: Request,
        agent: AgentQuery = None,
        status: StatusQuery = None,
        after: AfterQuery = None,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return schedules, those done and cancelled too unless a status is asked for."""
        ref = None if agent is None else agent_of(request, agent)
        return await self._page(ScheduleFilter(tenant_of(request), ref, status, _id_or_none(after), limit))

    async def of_agent(
        self,
        request: Request,
        agent: AgentPath,
        status: StatusQuery = None,
        after: AfterQuery = None,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return the agent's schedules."""
        ref = agent_of(request, agent)
        return await self._page(ScheduleFilter(tenant_of(request), ref, status, _id_or_none(after), limit))

    async def create(self, request: Request, agent: AgentPath) -> Response:
        """Store a schedule; with the Idempotency-Key of an earlier request, return what that one made."""
        key, asked = parse_idempotency_key(request), read_body(await request.body(), wire.ScheduleRequest)
        wanted = convert(asked | {"at": wire.moment(asked["at"])} if "at" in asked else asked, ScheduleRequest)
        stored = await self._timetable.create(agent_of(request, agent), wanted, idempotency_key=key)
        return json_response(schedule_body(stored), 201, {"Location": f"/v1/schedules/{stored.schedule_id}"})

    async def one(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Return the schedule."""
        return json_response(schedule_body(await self._timetable.schedule(tenant_of(request), ScheduleId(schedule_id))))

    async def ticks(
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
        found = await self._timetable.ticks(tenant_of(request), ScheduleId(schedule_id), before, limit)
        return json_response(ticks_body(found, limit))

    async def pause(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Pause the schedule. Doing it again changes nothing."""
        return json_response(schedule_body(await self._timetable.pause(tenant_of(request), ScheduleId(schedule_id))))

    async def resume(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Have the schedule go on. Doing it again changes nothing."""
        return json_response(schedule_body(await self._timetable.resume(tenant_of(request), ScheduleId(schedule_id))))

    async def cancel(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Cancel the schedule. Doing it again changes nothing."""
        return json_response(schedule_body(await self._timetable.cancel(tenant_of(request), ScheduleId(schedule_id))))

    async def backfill(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Queue what is missing."""
        asked = read_body(await request.body(), wire.BackfillRequest)
        since, until = wire.moment(asked["since"]), wire.moment(asked["until"])
        done = await self._timetable.backfill(tenant_of(request), ScheduleId(schedule_id), since, until)
        return json_response(backfill_body(done))

    async def ring(self, request: Request, schedule_id: SchedulePath) -> Response:
        """Fire it if it is due."""
        return json_response(ring_body(await self._ring(tenant_of(request), ScheduleId(schedule_id))))

    async def _page(self, where: ScheduleFilter) -> Response:
        return json_response(schedules_body(await self._timetable.schedules(where), where.limit))


def _id_or_none(text: str | None) -> ScheduleId | None:
    return None if text is None else ScheduleId(text)
