"""/v1/callbacks: what is told of runs' ends."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.callback import CallbackStatus
from owlclaw_ray.ids import CallbackId, RunId
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.queries import CallbackFilter
from serve import openapi
from serve.parameters import AgentQuery, Id, LimitQuery, RunQuery
from serve.representations import callback_body, json_response
from serve.tenancy import agent_of, tenant_of

CallbackIdPath = Annotated[Id, Path(description="A callback's id.", examples=["cb_0123456789abcdef0123456789"])]


class CallbackRoutes:
    """The resource of callbacks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1/callbacks", tags=["webhooks"], default_response_class=Response)
        router.add_api_route(
            "",
            self.listing,
            operation_id="list_callbacks",
            summary="What is told of runs' ends, newest first",
            response_model=None,
            responses={200: openapi.answer("Callbacks", wire.Callbacks), **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/{callback_id}",
            self.one,
            operation_id="get_callback",
            summary="What is told of a run's end to one address",
            response_model=None,
            responses={200: openapi.answer("The callback", wire.Callback), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/{callback_id}/redelivery",
            self.send_again,
            methods=["POST"],
            operation_id="redeliver_callback",
            summary="Send a callback again",
            description="One that is dead, or was delivered, with as many attempts as at first.",
            response_model=None,
            responses={
                200: openapi.answer("It is going to be sent", wire.Callback),
                **openapi.problems(404, 409, 422, 500, 503),
            },
        )
        return router

    async def listing(
        self,
        request: Request,
        agent: AgentQuery = None,
        run: RunQuery = None,
        status: Annotated[CallbackStatus | None, Query(description="Only those that stand like this.")] = None,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return callbacks."""
        ref = None if agent is None else agent_of(request, agent)
        run_id = None if run is None else RunId(run)
        where = CallbackFilter(tenant_of(request), ref, run_id, status, limit)
        found = await self._runtime.outbox.callbacks(where)
        return json_response({"callbacks": [callback_body(each) for each in found]})

    async def one(self, request: Request, callback_id: CallbackIdPath) -> Response:
        """Return the callback."""
        found = await self._runtime.outbox.callback(tenant_of(request), CallbackId(callback_id))
        return json_response(callback_body(found))

    async def send_again(self, request: Request, callback_id: CallbackIdPath) -> Response:
        """Have the callback sent again."""
        pending = await self._runtime.outbox.send_again(tenant_of(request), CallbackId(callback_id))
        return json_response(callback_body(pending))
