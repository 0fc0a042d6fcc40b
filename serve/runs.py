"""/v1/runs: reading, following and cancelling runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, get_args

from fastapi import Path, Query
from msgspec import convert
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import MAX_FOCUS
from owlclaw_ray.domain.score import Judgement
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import RunId
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.run_search import RunSearch
from owlclaw_ray.wire import MAX_ID, NO_NUL
from serve.body_schemas import reference
from serve.events import LAST_EVENT_ID, EventStream, last_event_id
from serve.parameters import AgentQuery, Id, Moment, check_owner, only_agent_of, principal_of, tenant_of
from serve.representations import event_body, exact_moment, json_response, run_body, score_body
from serve.request_bodies import read_body
from serve.resource import JSON_BODY, Resource, answer, body, operation
from serve.streams import KeepAliveTimer, OpenRequestLimit

RunIdPath = Annotated[Id, Path(description="A run's id.", examples=["run_01kaexample"])]


def _event(fields: JsonObject, content: JsonObject) -> JsonObject:
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    return {"type": "object", "required": [*fields, "data"], "properties": {**fields, "data": data}}


_JOURNAL_EVENT = _event(
    {"id": {"type": "string", "pattern": "^[1-9][0-9]*$"}, "event": {"enum": [*get_args(wire.EventKind)]}},
    reference("Event"),
)
_END_EVENT = _event(
    {"event": {"const": "end"}},
    {"type": "object", "required": ["status"], "properties": {"status": {"enum": [*get_args(wire.RunStatus)]}}},
)
_EVENT_STREAM: JsonObject = {
    "description": "Events as they are committed, then `event: end`. The schema is that of one event.",
    "content": {
        "text/event-stream": {
            "schema": {"oneOf": [_JOURNAL_EVENT, _END_EVENT]},
            "example": {
                "id": "2",
                "event": "run_started",
                "data": '{"seq":2,"kind":"run_started","at":"2026-11-03T09:30:00.020Z","data":{"epoch":1}}',
            },
        }
    },
}
_LAST_EVENT_ID: JsonObject = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "integer", "minimum": 0, "maximum": LAST_EVENT_ID},
    "description": "Only events after this `id`.",
}


class RunRoutes(Resource):
    """The resource of runs."""

    tag = "runs"

    def __init__(self, runtime: Runtime, places: OpenRequestLimit, keep_alive: float) -> None:
        super().__init__(runtime)
        self._places, self._pulse = places, KeepAliveTimer(keep_alive)

    @operation("GET /v1/runs", "runs:read", "List runs, newest first", {200: answer("Runs", wire.Runs)}, 404)
    async def list_runs(
        self,
        request: Request,
        agent: AgentQuery = None,
        *,
        definition: Annotated[
            str | None, Query(description="Only runs of this definition's agents.", max_length=MAX_ID, pattern=NO_NUL)
        ] = None,
        status: Annotated[RunStatus | None, Query(description="Only runs in this state.")] = None,
        trigger: Annotated[TriggerKind | None, Query(description="Only runs that this kind of trigger began.")] = None,
        since: Annotated[
            Moment | None, Query(description="Only runs accepted from this time on, with its zone.")
        ] = None,
        until: Annotated[
            Moment | None, Query(description="Only runs accepted before this time, with its zone.")
        ] = None,
        text: Annotated[
            str | None,
            Query(description="Only runs whose `focus` has all of these words.", max_length=MAX_FOCUS, pattern=NO_NUL),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=500, description="At most so many.")] = 50,
        before: Annotated[
            Id | None, Query(description="Only runs accepted before this one: the `next_before` of the page before.")
        ] = None,
        open_: Annotated[bool, Query(alias="open", description="Only runs that are not over.")] = False,
        include: Annotated[
            Literal["payload"] | None, Query(description="`payload`: with what each run was triggered with, too.")
        ] = None,
    ) -> Response:
        """Return a page of runs, without their payloads; `next_before` leads to the next page. 404 if the run `before` is not there any
        more, as old runs and idle heartbeats are not: begin again.

        A page may have fewer runs than `limit`, or none, and others behind it: `searched_to` says how far it looked.
        """
        tenant = tenant_of(request)
        ref, payloads = only_agent_of(request, agent), include is not None
        before_seq = None
        if before is not None:
            last = await self._runtime.run(tenant, RunId(before))
            principal_of(request).require_agent(last.agent)
            before_seq = last.seq
        found = await self._runtime.search_runs(
            RunSearch(
                tenant,
                ref,
                definition,
                status,
                open_,
                trigger,
                since,
                until,
                text,
                before_seq=before_seq,
                limit=limit,
                payloads=payloads,
            )
        )
        return json_response(
            {
                "runs": [run_body(run, payload=payloads) for run in found.runs],
                "next_before": found.following,
                "searched_to": None if found.searched_to is None else exact_moment(found.searched_to),
            }
        )

    @operation("GET /v1/runs/{run_id}", "runs:read", "A run and its result", {200: answer("The run", wire.Run)}, 404)
    async def get_run(
        self,
        request: Request,
        run_id: RunIdPath,
        events: Annotated[bool, Query(description="Whether to include the journal as `events`.")] = False,  # noqa: FBT002 - a query parameter
    ) -> Response:
        """Return the run; its journal too if asked for."""
        tenant = tenant_of(request)
        run = await self._runtime.run(tenant, RunId(run_id))
        principal_of(request).require_agent(run.agent)
        shown = run_body(run)
        if events:
            watched = await self._runtime.watch(tenant, run.run_id, 0, 0.0)
            shown["events"] = [event_body(entry) for entry in watched.entries]
        return json_response(shown)

    @operation(
        "GET /v1/runs/{run_id}/events",
        "runs:read",
        "Follow a run",
        {200: _EVENT_STREAM},
        404,
        429,
        extra={"parameters": [_LAST_EVENT_ID]},
    )
    async def stream_run_events(self, request: Request, run_id: RunIdPath) -> Response:
        """Stream server-sent events: the run's journal as it is committed, then `event: end`, after which the server closes.

        `id` is the entry's seq, `event` its kind, `data` the entry as JSON. Reconnect with the header `Last-Event-ID` and nothing
        is missed or repeated. A comment line keeps idle connections open.
        """
        tenant, after = tenant_of(request), last_event_id(request)
        await check_owner(request, partial(self._owner, request, run_id))
        return EventStream(self._runtime, tenant, RunId(run_id), after, places=self._places, pulse=self._pulse)

    @operation(
        "POST /v1/runs/{run_id}/cancel",
        "runs:write",
        "Cancel a run",
        {202: answer("The run will be cancelled", wire.Run), 200: answer("The run is over, now or before", wire.Run)},
        404,
    )
    async def cancel_run(self, request: Request, run_id: RunIdPath) -> Response:
        """Ask the run to stop. Repeating it changes nothing."""
        await check_owner(request, partial(self._owner, request, run_id))
        run = await self._runtime.cancel(tenant_of(request), RunId(run_id), str(principal_of(request)))
        return json_response(run_body(run), 200 if run.status.final else 202)

    @operation(
        "POST /v1/runs/{run_id}/scores",
        "runs:write",
        "Score a run, in Langfuse",
        {200: answer("The score is stored", wire.Score)},
        *JSON_BODY,
        404,
        409,
        extra=body(wire.ScoreRequest),
    )
    async def score_run(self, request: Request, run_id: RunIdPath) -> Response:
        """Send a score to Langfuse, beside the run's trace; one of the same name for the same run is replaced, so repeating is safe.

        409 `score-refused`: traces do not go to Langfuse, or it refuses the score. 503: it does not answer.
        """
        judgement = convert(read_body(await request.body(), wire.ScoreRequest), Judgement)
        await check_owner(request, partial(self._owner, request, run_id))
        score = await self._runtime.score(tenant_of(request), RunId(run_id), judgement, str(principal_of(request)))
        return json_response(score_body(RunId(run_id), score))

    async def _owner(self, request: Request, run_id: str) -> AgentRef:
        return (await self._runtime.run(tenant_of(request), RunId(run_id))).agent
