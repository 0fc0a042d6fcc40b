"""POST /v1/triggers:batch: many triggers in one request and one commit, each answered for itself."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import OwlClawError, Problem
from owlclaw_ray.ids import TenantId
from owlclaw_ray.runtime.api import Runtime, TriggerRequest
from owlclaw_ray.store.commands import RunAccepted
from serve import openapi
from serve.errors import InvalidRequestError
from serve.json_body import read_json
from serve.problems import problem_of
from serve.representations import accepted_body, json_response
from serve.tenancy import agent_of, tenant_of
from serve.trigger_request import MAX_BATCH, body_hash, caused_by, checked_key, json_type, trigger_of

PATH = "/v1/triggers:batch"
DESCRIPTION = f"""Commit up to {MAX_BATCH} triggers together. Each is answered for itself, in order: `status` is what it would have been
answered alone, 202 with `accepted`, or another with `problem`; one that is refused keeps no other back. What is accepted is
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
        parsed = [_parsed(request, each, large=len(body) > LARGE) for each in _triggers(body)]
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


def _triggers(body: bytes) -> list[Any]:
    parsed = read_json(body)
    triggers = parsed.get("triggers") if isinstance(parsed, dict) and parsed.keys() == {"triggers"} else None
    if not isinstance(triggers, list):
        fix = 'such as {"triggers": [{"agent": "assistant"}]}'
        raise InvalidRequestError([Problem("body", "must be an object with nothing but a list `triggers`", fix)])
    if not 1 <= len(triggers) <= MAX_BATCH:
        raise InvalidRequestError([Problem("body.triggers", f"has {len(triggers)} triggers", f"1 to {MAX_BATCH}")])
    return triggers


def _parsed(request: Request, item: Any, *, large: bool) -> TriggerRequest | OwlClawError:
    """Return a trigger of the batch, or why it is none."""
    try:
        if not isinstance(item, dict) or not isinstance(item.get("agent"), str):
            what = "must be an object with an agent" if isinstance(item, dict) else f"is {json_type(item)}"
            raise InvalidRequestError([Problem("body", what, 'such as {"agent": "assistant"}')])
        fields = dict(item)
        agent = agent_of(request, fields.pop("agent"))
        key = checked_key(fields.pop("idempotency_key", None), "body.idempotency_key")
        trigger, admission = trigger_of(fields)
    except OwlClawError as error:
        return error
    trigger = caused_by(request, trigger.compact() if large else trigger)
    return TriggerRequest(agent, trigger, admission, key, "" if key is None else body_hash(agent, trigger, admission))
