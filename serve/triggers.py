"""Triggers: one for an agent, the hot path, so raw bytes in and raw bytes out; and many in one request and one commit."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from owlclaw_ray import wire
from owlclaw_ray.domain.json import LARGE, JsonObject
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import Runtime, TriggerRequest
from owlclaw_ray.store.commands import RunAccepted
from serve.body_limit import body_handled
from serve.body_schemas import reference
from serve.parameters import agent_of, principal_of
from serve.problems import problem_of
from serve.representations import accepted_body, json_response, run_body
from serve.request_bodies import checked, read_json
from serve.resource import IDEMPOTENCY_KEY, JSON_BODY, Resource, answer, body, operation
from serve.streams import OpenRequestLimit
from serve.trigger_request import (
    MAX_WAIT_SECONDS,
    body_hash,
    caused_by,
    parse_idempotency_key,
    parse_trigger,
    parse_wait,
    request_of,
    trigger_of,
)

PATH = "/v1/agents/{agent}/triggers"
BATCH_PATH = "/v1/triggers:batch"
_SCOPE = "runs:write"
_BEHIND_ALL = 2**62
"""A seq that no entry has: following from there reports only the run's end."""
_LOCATION: JsonObject = {"Location": {"schema": {"type": "string"}, "description": "The run's path"}}
_PARAMETERS: list[JsonObject] = [
    {
        "name": "agent",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": wire.AGENT_PATTERN},
        "description": "`definition` or `definition:key`.",
        "example": "assistant",
    },
    {
        "name": "wait",
        "in": "query",
        "required": False,
        "schema": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS},
        "description": "Wait up to this many seconds for the outcome.",
    },
    IDEMPOTENCY_KEY,
    {
        "name": "traceparent",
        "in": "header",
        "required": False,
        "schema": {"type": "string"},
        "description": "The parent span of the run (W3C Trace Context).",
        "example": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    },
]
_BODY = body(
    wire.TriggerRequest,
    {
        "payload": {"payload": {"symbol": "600519"}, "focus": "看一下大盘"},
        "event": {"kind": "event", "payload": {"name": "order.filled", "id": 17}},
        "urgent": {"busy": "interrupt", "priority": 5, "deadline_seconds": 60},
        "nothing": {},
    },
    required=False,
)
_BATCH: JsonObject = {
    "schema": reference("BatchRequest"),
    "example": {
        "triggers": [
            {"agent": "assistant:1", "payload": {"order": 1}, "idempotency_key": "order-1"},
            {"agent": "assistant:2", "payload": {"order": 2}, "idempotency_key": "order-2"},
        ]
    },
}


class TriggerRoutes(Resource):
    """The resource of triggers."""

    tag = "triggers"

    def __init__(self, runtime: Runtime, clock: Clock, places: OpenRequestLimit) -> None:
        super().__init__(runtime)
        self._clock, self._places = clock, places

    def first_route(self) -> Route:
        """Return a route to `trigger_agent` that has to be the first of all: Ray Serve tries one after another to name each request."""
        return Route(PATH, self.trigger_agent, methods=["POST"])

    @operation(
        f"POST {PATH}",
        _SCOPE,
        "Trigger an agent",
        {
            202: answer("The trigger is committed", wire.Accepted) | {"headers": _LOCATION},
            200: answer("The run is over (with `wait`)", wire.Run),
        },
        *JSON_BODY,
        404,
        409,
        429,
        extra=_BODY | {"parameters": _PARAMETERS},
    )
    async def trigger_agent(self, request: Request) -> Response:
        """Commit a trigger: 202 means that it cannot be lost and will run, one run of an agent at a time: interrupts first,
        then those of higher `priority`, then in the order of acceptance.

        `busy` says what happens if the agent has runs already. The trigger waits (`enqueue`), is refused with 409 (`reject`), replaces
        a queued trigger of the same kind and focus that also came with `coalesce`, or ends the running run and goes first
        (`interrupt`). When `limits.queued_runs` of the agent wait, or a quota of the tenant or key is reached, it is refused with 429.

        With `Idempotency-Key`, a repetition with the same body within 24 hours answers for the same run. With `wait`, the response
        comes when the run is over (200, the whole run) or after that many seconds (202, not over yet).

        When the run ends, a signed webhook is sent to `callback_url`, see /v1/callbacks.
        """
        principal = principal_of(request)
        principal.require(_SCOPE)
        agent = agent_of(request, request.path_params["agent"])
        key, wait = parse_idempotency_key(request), parse_wait(request)
        trigger, admission = parse_trigger(b"".join([chunk async for chunk in request.stream()]))
        trigger = caused_by(request, trigger)
        hashed = "" if key is None else body_hash(agent, trigger, admission)
        if principal.quota is not None:
            admission = replace(admission, quota=principal.quota)
        with nullcontext() if wait is None else self._places.one(principal):
            accepted = await self._runtime.submit(agent, trigger, admission, idempotency_key=key, body_hash=hashed)
            body_handled(request.scope)
            run = None
            if wait is not None:
                run = await self._outcome(agent.tenant, accepted.run_id, wait)
            elif accepted.duplicate:
                run = await self._runtime.run(agent.tenant, accepted.run_id)
        headers = {"Location": f"{request.scope.get('root_path', '')}/v1/runs/{accepted.run_id}"}
        if wait is not None and run is not None and run.status.final:
            return json_response(run_body(run), 200, headers)
        status = RunStatus.QUEUED if run is None else run.status
        return json_response(accepted_body(accepted, status), 202, headers)

    async def _outcome(self, tenant: TenantId, run_id: RunId, seconds: float) -> Run:
        """Return the run once it is final, or as it is after `seconds`; raises NotFoundError."""
        deadline = self._clock.monotonic() + seconds
        async with self._runtime.follow(tenant, run_id, _BEHIND_ALL) as follower:
            over = False
            while not over and (left := deadline - self._clock.monotonic()) > 0:
                over = (await follower.next(left)).over
        return await self._runtime.run(tenant, run_id)

    @operation(
        f"POST {BATCH_PATH}",
        "runs:write",
        "Trigger many agents",
        {200: answer("The outcome of each", wire.BatchResults)},
        *JSON_BODY,
        extra={"requestBody": {"required": True, "content": {"application/json": _BATCH}}},
    )
    async def trigger_agents(self, request: Request) -> Response:
        """Commit many triggers together, in one transaction before the response.

        Each has its own result, in order: `status` is what the trigger alone would have been answered, 202 with `accepted`, or another
        with `problem`; one that is refused does not affect the others. The request is safe to repeat if each trigger has an
        `idempotency_key`.
        """
        content = await request.body()
        triggers = checked(read_json(content), wire.BatchRequest)["triggers"]
        parsed = [_parsed(request, each, large=len(content) > LARGE) for each in triggers]
        ready = [each for each in parsed if isinstance(each, TriggerRequest)]
        outcomes = iter(await self._runtime.submit_all(ready))
        all_outcomes = [next(outcomes) if isinstance(each, TriggerRequest) else each for each in parsed]
        principal = principal_of(request)
        return json_response({"results": [await self._result(principal, each) for each in all_outcomes]})

    async def _result(self, principal: Principal, outcome: RunAccepted | OwlClawError) -> dict[str, Any]:
        if isinstance(outcome, OwlClawError):
            problem = problem_of(outcome, principal=principal)
            return {"status": problem.status, "accepted": None, "problem": problem.body(BATCH_PATH)}
        status = RunStatus.QUEUED
        if outcome.duplicate:
            status = (await self._runtime.run(principal.tenant, outcome.run_id)).status
        return {"status": 202, "accepted": accepted_body(outcome, status), "problem": None}


def _parsed(request: Request, item: Any, *, large: bool) -> TriggerRequest | OwlClawError:
    """Return a trigger of the batch, or why it is refused."""
    if isinstance(item, dict) and item.get("idempotency_key", "") is None:
        item = {name: value for name, value in item.items() if name != "idempotency_key"}  # null means none
    try:
        asked = checked(item, wire.BatchTrigger)
        agent, key = agent_of(request, asked["agent"]), asked.get("idempotency_key")
        trigger, admission = trigger_of(asked)
    except OwlClawError as error:
        return error
    return request_of(request, agent, trigger.compact() if large else trigger, admission, key)
