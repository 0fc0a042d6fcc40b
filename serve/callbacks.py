"""/v1/callbacks: webhooks that are sent when runs end."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import CallbackStatus
from owlclaw_ray.ids import CallbackId, RunId
from owlclaw_ray.store.queries import CallbackFilter
from serve.parameters import AgentQuery, Id, LimitQuery, RunQuery, check_owner, only_agent_of, principal_of, tenant_of
from serve.representations import callback_body, json_response
from serve.resource import Resource, answer, operation

CallbackIdPath = Annotated[Id, Path(description="A callback's id.", examples=["cb_0123456789abcdef0123456789"])]


class CallbackRoutes(Resource):
    """The resource of callbacks."""

    tag = "webhooks"

    @operation(
        "GET /v1/callbacks",
        "webhooks:read",
        "Callbacks, newest first",
        {200: answer("Callbacks", wire.Callbacks)},
        404,
    )
    async def list_callbacks(
        self,
        request: Request,
        agent: AgentQuery = None,
        run: RunQuery = None,
        status: Annotated[CallbackStatus | None, Query(description="Only those in this state.")] = None,
        *,
        limit: LimitQuery = 100,
        before: Annotated[
            Id | None, Query(description="Only those made before this one: the `next_before` of the page before.")
        ] = None,
    ) -> Response:
        """Return a page of the webhooks that are sent when runs end; `next_before` leads to the next page. 404 if the callback `before`
        is not there any more.
        """
        ref = only_agent_of(request, agent)
        run_id = None if run is None else RunId(run)
        where = CallbackFilter(tenant_of(request), ref, run_id, status, limit + 1)
        found = await self._runtime.outbox.callbacks(where, None if before is None else CallbackId(before))
        following = found[limit - 1].callback_id if len(found) > limit else None
        return json_response({"callbacks": [callback_body(each) for each in found[:limit]], "next_before": following})

    @operation(
        "GET /v1/callbacks/{callback_id}",
        "webhooks:read",
        "A callback",
        {200: answer("The callback", wire.Callback)},
        404,
    )
    async def get_callback(self, request: Request, callback_id: CallbackIdPath) -> Response:
        """Return the webhook that is sent to one address when a run ends, and how far its delivery is."""
        found = await self._runtime.outbox.callback(tenant_of(request), CallbackId(callback_id))
        principal_of(request).require_agent(found.agent)
        return json_response(callback_body(found))

    @operation(
        "POST /v1/callbacks/{callback_id}/redelivery",
        "webhooks:write",
        "Send a callback again",
        {200: answer("It will be sent", wire.Callback)},
        404,
        409,
    )
    async def redeliver_callback(self, request: Request, callback_id: CallbackIdPath) -> Response:
        """Send one that is dead or delivered again, with as many attempts as the first time."""
        await check_owner(request, partial(self._owner, request, callback_id))
        pending = await self._runtime.outbox.send_again(
            tenant_of(request), CallbackId(callback_id), str(principal_of(request))
        )
        return json_response(callback_body(pending))

    @operation(
        "GET /v1/callback-secrets",
        "secrets:write",
        "The secrets that sign the tenant's callbacks",
        {200: answer("The secrets", wire.CallbackSecrets)},
        404,
    )
    async def list_callback_secrets(self, request: Request) -> Response:
        """Return what receivers check the tenant's callbacks by, the present secret first. Who has one can sign callbacks of this tenant,
        and of no other. Where the runtime has no callbacks: 404.
        """
        secrets = list(await self._runtime.callback_secrets(principal_of(request)))
        return json_response({"tenant": tenant_of(request), "secrets": secrets}, headers={"Cache-Control": "no-store"})

    async def _owner(self, request: Request, callback_id: str) -> AgentRef:
        return (await self._runtime.outbox.callback(tenant_of(request), CallbackId(callback_id))).agent
