"""POST /v1/agents/{agent}/triggers: the hot path, so raw bytes in and raw bytes out."""

from __future__ import annotations

from contextlib import nullcontext

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from owlclaw_ray import wire
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.commands import RunAccepted
from serve import openapi
from serve.body_limit import body_handled
from serve.representations import accepted_body, json_response, run_body
from serve.run_wait import outcome
from serve.streams import OpenRequestLimit
from serve.tenancy import agent_of
from serve.trigger_request import body_hash, caused_by, parse_idempotency_key, parse_trigger, parse_wait

PATH = "/v1/agents/{agent}/triggers"
DESCRIPTION = """Commit a trigger: 202 means that it cannot be lost and will run, one run of an agent at a time: interrupts first,
then those of higher `priority`, then in the order of acceptance.

`busy` says what becomes of it if the agent has runs already. It waits (`enqueue`), is refused with 409 (`reject`), takes the
place of a queued trigger of the same kind and focus that came with `coalesce` too, or ends the running run and goes first
(`interrupt`). When `limits.queued_runs` of the agent wait, it is refused with 429.

With `Idempotency-Key`, a repetition with the same body within 24 hours answers for the same run. With `wait`, the response
comes when the run is over (200, the whole run) or after that many seconds (202, still going).

`callback_url` is told of the run's end by a signed webhook, see /v1/callbacks."""


class TriggerRoutes:
    """The resource of triggers."""

    def __init__(self, runtime: Runtime, clock: Clock, places: OpenRequestLimit) -> None:
        self._runtime, self._clock, self._places = runtime, clock, places

    def fast_route(self) -> Route:
        """Return a route that does the same without what FastAPI does for every request; it has to be the first of all."""
        return Route(PATH, self.submit, methods=["POST"])

    def router(self) -> APIRouter:
        """Return the routes, for the document; see `fast_route`."""
        router = APIRouter(tags=["triggers"])
        router.add_api_route(
            PATH,
            self.submit,
            methods=["POST"],
            status_code=202,
            operation_id="trigger_agent",
            summary="Trigger an agent",
            description=DESCRIPTION,
            response_model=None,
            response_class=Response,
            openapi_extra=openapi.TRIGGER_OPERATION,
            responses={
                200: openapi.answer("The run is over (with `wait`)", wire.Run),
                202: openapi.answer("The trigger is committed", wire.Accepted, location=True),
                **openapi.problems(400, 404, 409, 408, 413, 422, 429, 500, 503),
            },
        )
        return router

    async def submit(self, request: Request) -> Response:
        """Commit the trigger that the request carries, and wait for its run if asked to."""
        agent = agent_of(request, request.path_params["agent"])
        key, wait = parse_idempotency_key(request), parse_wait(request)
        trigger, admission = parse_trigger(b"".join([chunk async for chunk in request.stream()]))
        trigger = caused_by(request, trigger)
        hashed = "" if key is None else body_hash(agent, trigger, admission)
        with nullcontext() if wait is None else self._places.one():
            accepted = await self._runtime.submit(agent, trigger, admission, idempotency_key=key, body_hash=hashed)
            body_handled(request.scope)
            run = await self._present(agent.tenant, accepted, wait)
        headers = {"Location": f"{request.scope.get('root_path', '')}/v1/runs/{accepted.run_id}"}
        if wait is not None and run is not None and run.status.final:
            return json_response(run_body(run), 200, headers)
        status = RunStatus.QUEUED if run is None else run.status
        return json_response(accepted_body(accepted, status), 202, headers)

    async def _present(self, tenant: TenantId, accepted: RunAccepted, wait: float | None) -> Run | None:
        if wait is not None:
            return await outcome(self._runtime, self._clock, tenant, accepted.run_id, wait)
        if accepted.duplicate:
            return await self._runtime.run(tenant, accepted.run_id)
        return None
