"""POST /v1/triggers:batch: many triggers in one request and one commit, each answered for itself."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.runtime.api import Runtime, TriggerRequest
from owlclaw_ray.store.commands import RunAccepted
from serve import openapi
from serve.problems import problem_of
from serve.representations import accepted_body, json_response
from serve.request_bodies import checked, read_json
from serve.tenancy import agent_of, tenant_of
from serve.trigger_request import body_hash, caused_by, trigger_of

PATH = "/v1/triggers:batch"
DESCRIPTION = f"""Commit up to {wire.MAX_BATCH} triggers together. Each is answered for itself, in order: `status` is what it would
have been answered alone, 202 with `accepted`, or another with `problem`; one that is refused keeps no other back. What is accepted is
committed in one transaction before the response. The request is safe to repeat if each trigger has an `idempotency_key`."""


class BatchRoutes:
    """The resource of batches of triggers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(tags=["triggers"], default_response_class=Response)
        router.add_api_route(
            PATH,
            self.submit,
            methods=["POST"],
            operation_id="trigger_agents",
            summary="Trigger many agents",
            description=DESCRIPTION,
            response_model=None,
            openapi_extra=openapi.BATCH_OPERATION,
            responses={
                200: openapi.answer("What became of each", wire.BatchResults),
                **openapi.problems(400, 408, 413, 422, 500, 503),
            },
        )
        return router

    async def submit(self, request: Request) -> Response:
        """Commit what can be committed, and say of each trigger what became of it."""
        body = await request.body()
        triggers = checked(read_json(body), wire.BatchRequest)["triggers"]
        parsed = [_parsed(request, each, large=len(body) > LARGE) for each in triggers]
        ready = [each for each in parsed if isinstance(each, TriggerRequest)]
        outcomes = iter(await self._runtime.submit_all(ready))
        all_outcomes = [next(outcomes) if isinstance(each, TriggerRequest) else each for each in parsed]
        tenant = tenant_of(request)
        return json_response({"results": [await self._result(tenant, each) for each in all_outcomes]})

    async def _result(self, tenant: TenantId, outcome: RunAccepted | OwlClawError) -> dict[str, Any]:
        if isinstance(outcome, OwlClawError):
            problem = problem_of(outcome)
            return {"status": problem.status, "accepted": None, "problem": problem.body(PATH)}
        status = RunStatus.QUEUED
        if outcome.duplicate:
            status = (await self._runtime.run(tenant, outcome.run_id)).status
        return {"status": 202, "accepted": accepted_body(outcome, status), "problem": None}


def _parsed(request: Request, item: Any, *, large: bool) -> TriggerRequest | OwlClawError:
    """Return a trigger of the batch, or why it is none."""
    if isinstance(item, dict) and item.get("idempotency_key", "") is None:
        item = {name: value for name, value in item.items() if name != "idempotency_key"}  # null is none
    try:
        asked = checked(item, wire.BatchTrigger)
        agent, key = agent_of(request, asked["agent"]), asked.get("idempotency_key")
        trigger, admission = trigger_of(asked)
    except OwlClawError as error:
        return error
    trigger = caused_by(request, trigger.compact() if large else trigger)
    return TriggerRequest(agent, trigger, admission, key, "" if key is None else body_hash(agent, trigger, admission))
