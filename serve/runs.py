"""/v1/runs: reading, following and cancelling runs."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from msgspec import convert
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.score import Judgement
from owlclaw_ray.ids import RunId
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.queries import RunFilter
from serve import openapi
from serve.events import EventStream, last_event_id
from serve.parameters import AgentQuery, Id
from serve.representations import event_body, json_response, run_body, score_body
from serve.request_bodies import read_body
from serve.streams import KeepAliveTimer, OpenRequestLimit
from serve.tenancy import agent_of, tenant_of

RunIdPath = Annotated[Id, Path(description="A run's id.", examples=["run_01kaexample"])]

EVENTS_DESCRIPTION = """Server-sent events: the run's journal as it is committed, then `event: end`, after which the server closes.

`id` is the entry's seq, `event` its kind, `data` the entry as JSON. Reconnect with the header `Last-Event-ID` and nothing
is missed or repeated. A comment line keeps idle connections open."""

SCORES_DESCRIPTION = """A score of the same name for the same run takes the place of the earlier one, so that the request is safe to repeat.

It goes to Langfuse, beside the run's trace. Where traces do not go there it is refused with 409 `score-refused`, and so is what Langfuse
refuses; while Langfuse does not answer, with 503."""


class RunRoutes:
    """The resource of runs."""

    def __init__(self, runtime: Runtime, places: OpenRequestLimit, keep_alive: float) -> None:
        self._runtime, self._places = runtime, places
        self._pulse = KeepAliveTimer(keep_alive)

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1/runs", tags=["runs"], default_response_class=Response)
        router.add_api_route(
            "",
            self.listing,
            operation_id="list_runs",
            summary="List runs, newest first",
            response_model=None,
            responses={200: openapi.answer("Runs", wire.Runs), **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/{run_id}",
            self.one,
            operation_id="get_run",
            summary="A run and its result",
            response_model=None,
            responses={200: openapi.answer("The run", wire.Run), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/{run_id}/events",
            self.events,
            operation_id="stream_run_events",
            summary="Follow a run",
            description=EVENTS_DESCRIPTION,
            response_model=None,
            openapi_extra=openapi.EVENTS_OPERATION,
            responses={200: openapi.EVENT_STREAM, **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/{run_id}/cancel",
            self.cancel,
            methods=["POST"],
            operation_id="cancel_run",
            summary="Cancel a run",
            status_code=202,
            response_model=None,
            responses={
                200: openapi.answer("The run is over, now or before", wire.Run),
                202: openapi.answer("The run is going to be cancelled", wire.Run),
                **openapi.problems(404, 422, 500, 503),
            },
        )
        router.add_api_route(
            "/{run_id}/scores",
            self.score,
            methods=["POST"],
            operation_id="score_run",
            summary="Score a run, in Langfuse",
            description=SCORES_DESCRIPTION,
            response_model=None,
            openapi_extra=openapi.body("ScoreRequest"),
            responses={
                200: openapi.answer("The score is kept", wire.Score),
                **openapi.problems(400, 404, 408, 409, 413, 422, 500, 503),
            },
        )
        return router

    async def listing(
        self,
        request: Request,
        agent: AgentQuery = None,
        status: Annotated[RunStatus | None, Query(description="Only runs in this state.")] = None,
        limit: Annotated[int, Query(ge=1, le=500, description="At most so many.")] = 50,
        before: Annotated[
            int | None, Query(ge=1, le=2**63 - 1, description="Only runs with a lower seq: `next_before`.")
        ] = None,
        *,
        include: Annotated[
            Literal["payload"] | None, Query(description="`payload`: with what each run was triggered with, too.")
        ] = None,
    ) -> Response:
        """Return a page of runs, without their payloads; `next_before` leads to the next page."""
        tenant = tenant_of(request)
        ref, payloads = None if agent is None else agent_of(request, agent), include is not None
        found = await self._runtime.runs(RunFilter(tenant, ref, status, before, limit + 1, payloads))
        page = found[:limit]
        following = page[-1].seq if len(found) > limit else None
        return json_response({"runs": [run_body(run, payload=payloads) for run in page], "next_before": following})

    async def one(
        self,
        request: Request,
        run_id: RunIdPath,
        events: Annotated[bool, Query(description="Whether to include the journal as `events`.")] = False,  # noqa: FBT002 - a query parameter
    ) -> Response:
        """Return the run; its journal too if asked for."""
        tenant = tenant_of(request)
        run = await self._runtime.run(tenant, RunId(run_id))
        body = run_body(run)
        if events:
            watched = await self._runtime.watch(tenant, run.run_id, 0, 0.0)
            body["events"] = [event_body(entry) for entry in watched.entries]
        return json_response(body)

    async def events(self, request: Request, run_id: RunIdPath) -> Response:
        """Stream the run's journal from Last-Event-ID on."""
        tenant, after = tenant_of(request), last_event_id(request)
        return EventStream(self._runtime, tenant, RunId(run_id), after, places=self._places, pulse=self._pulse)

    async def cancel(self, request: Request, run_id: RunIdPath) -> Response:
        """Ask for the end of the run. Doing it again changes nothing."""
        run = await self._runtime.cancel(tenant_of(request), RunId(run_id))
        return json_response(run_body(run), 200 if run.status.final else 202)

    async def score(self, request: Request, run_id: RunIdPath) -> Response:
        """Have the score kept."""
        judgement = convert(read_body(await request.body(), wire.ScoreRequest), Judgement)
        score = await self._runtime.score(tenant_of(request), RunId(run_id), judgement)
        return json_response(score_body(RunId(run_id), score))
