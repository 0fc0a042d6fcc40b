"""/v1/webhooks and /v1/deliveries: where others send what happens at them, and the inbox of what came in."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.webhook import DeliveryStatus
from owlclaw_ray.errors import NotFoundError, WebhookRefusedError
from owlclaw_ray.ids import DeliveryId
from owlclaw_ray.store.commands import DeliveryStored
from owlclaw_ray.store.queries import DeliveryFilter
from serve.parameters import Id, LimitQuery, check_owner, principal_of, submitters_of, tenant_of
from serve.representations import delivery_body, full_delivery_body, json_response, receipt_body, source_body
from serve.resource import PUBLIC, Resource, answer, operation

DeliveryIdPath = Annotated[Id, Path(description="A delivery's id.", examples=["whd_0123456789abcdef0123456789"])]
_REFUSED = "there is no such source, or it has not signed this; /v1/deliveries tells the source's tenant why"
_EXAMPLE: JsonObject = {"schema": {}, "example": {"action": "opened", "issue": {"number": 17}}}
_QUEUED = answer("A run is queued, or the webhook waits for a heartbeat", wire.WebhookReceipt)


class WebhookRoutes(Resource):
    """The resources of webhooks and of their deliveries."""

    tag = "webhooks"

    @operation("GET /v1/webhooks", "webhooks:read", "Webhook sources", {200: answer("Sources", wire.WebhookSources)})
    async def list_webhook_sources(self, request: Request) -> Response:
        """Return the sources of the tenant, without their secrets."""
        principal_of(request).require_all_agents()
        found = self._runtime.inbox.sources(tenant_of(request))
        return json_response({"sources": [source_body(each) for each in found]})

    @operation(
        "POST /v1/webhooks/{source}",
        PUBLIC,
        "Send a webhook",
        {202: _QUEUED, 200: answer("Nothing new", wire.WebhookReceipt)},
        401,
        408,
        409,
        413,
        429,
        extra={"requestBody": {"required": True, "content": {"application/json": _EXAMPLE}}},
    )
    async def receive_webhook(
        self, request: Request, source: Annotated[Id, Path(description="The source's name.", examples=["github"])]
    ) -> Response:
        """Check the body against the signature of the source, map it to an agent and a payload as owlclaw.yaml says, and commit it.

        202: it is committed with the run that it triggers, or for its agent's next heartbeat, and cannot be lost. 200: it is a
        duplicate, or the source's `when` ignores it. 401: there is no such source, or its signature is wrong or too old: /v1/deliveries
        tells the source's tenant why. 422: its signature is right, but it cannot be mapped to a trigger. Every delivery, including
        refused and unmapped ones, is at /v1/deliveries.
        """
        headers = dict(request.headers)
        try:
            await self._runtime.inbox.expect(source, headers)
            stored = await self._runtime.inbox.receive(source, headers, await request.body())
        except (
            NotFoundError,
            WebhookRefusedError,
        ):  # who has no secret learns neither which sources there are nor how they sign
            raise WebhookRefusedError(source, _REFUSED) from None
        return _receipt(stored)

    @operation(
        "GET /v1/deliveries",
        "webhooks:read",
        "Webhooks that came in, newest first",
        {200: answer("Deliveries", wire.Deliveries)},
        404,
    )
    async def list_deliveries(
        self,
        request: Request,
        source: Annotated[Id | None, Query(description="Only of this source.", examples=["github"])] = None,
        status: Annotated[DeliveryStatus | None, Query(description="Only those in this state.")] = None,
        limit: LimitQuery = 100,
        before: Annotated[
            Id | None, Query(description="Only those that came before this one: the `next_before` of the page before.")
        ] = None,
    ) -> Response:
        """Return a page of deliveries without their bodies; `next_before` leads to the next page. 404 if the delivery `before` is not
        there any more.
        """
        principal_of(request).require_all_agents()
        where = DeliveryFilter(tenant_of(request), source, status, limit + 1)
        found = await self._runtime.inbox.deliveries(where, None if before is None else DeliveryId(before))
        following = found[limit - 1].delivery_id if len(found) > limit else None
        return json_response({"deliveries": [delivery_body(each) for each in found[:limit]], "next_before": following})

    @operation(
        "GET /v1/deliveries/{delivery_id}",
        "webhooks:read",
        "A webhook that came in, with its body",
        {200: answer("The delivery", wire.FullDelivery)},
        404,
    )
    async def get_delivery(self, request: Request, delivery_id: DeliveryIdPath) -> Response:
        """Return the delivery."""
        await check_owner(request, partial(self._owner, request, delivery_id))
        found = await self._runtime.inbox.delivery(tenant_of(request), DeliveryId(delivery_id))
        return json_response(full_delivery_body(found))

    @operation(
        "POST /v1/deliveries/{delivery_id}/redelivery",
        "webhooks:write",
        "Map a webhook again",
        {202: _QUEUED, 200: answer("It is ignored, or came again meanwhile", wire.WebhookReceipt)},
        404,
        409,
        429,
    )
    async def redeliver_webhook(self, request: Request, delivery_id: DeliveryIdPath) -> Response:
        """Map one that was unmapped, or that its agent refused, as its source is configured now."""
        await check_owner(request, partial(self._owner, request, delivery_id))
        quota, by = principal_of(request).quota, submitters_of(request)
        stored = await self._runtime.inbox.redeliver(
            tenant_of(request), DeliveryId(delivery_id), quota=quota, submitters=by, by=str(principal_of(request))
        )
        return _receipt(stored)

    async def _owner(self, request: Request, delivery_id: str) -> AgentRef | None:
        return (await self._runtime.inbox.delivery(tenant_of(request), DeliveryId(delivery_id))).agent


def _receipt(stored: DeliveryStored) -> Response:
    new = not stored.duplicate and stored.delivery.status in {DeliveryStatus.TRIGGERED, DeliveryStatus.WAITING}
    return json_response(receipt_body(stored), 202 if new else 200)
