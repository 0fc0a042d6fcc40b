"""/v1/deliveries: the inbox of webhooks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.webhook import DeliveryStatus
from owlclaw_ray.ids import DeliveryId
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.queries import DeliveryFilter
from serve import openapi
from serve.parameters import Id, LimitQuery
from serve.representations import delivery_body, full_delivery_body, json_response
from serve.tenancy import tenant_of
from serve.webhooks import receipt

DeliveryIdPath = Annotated[Id, Path(description="A delivery's id.", examples=["whd_0123456789abcdef0123456789"])]


class DeliveryRoutes:
    """The resource of webhook deliveries."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1/deliveries", tags=["webhooks"], default_response_class=Response)
        router.add_api_route(
            "",
            self.listing,
            operation_id="list_deliveries",
            summary="Webhooks that came in, newest first",
            response_model=None,
            responses={200: openapi.answer("Deliveries", wire.Deliveries), **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/{delivery_id}",
            self.one,
            operation_id="get_delivery",
            summary="A webhook that came in, with its body",
            response_model=None,
            responses={200: openapi.answer("The delivery", wire.FullDelivery), **openapi.problems(404, 422, 500, 503)},
        )
        router.add_api_route(
            "/{delivery_id}/redelivery",
            self.redeliver,
            methods=["POST"],
            status_code=202,
            operation_id="redeliver_webhook",
            summary="Map a webhook again",
            description="One that was unmapped, or that its agent refused, as its source is configured now.",
            response_model=None,
            responses={
                200: openapi.answer("It does not matter, or came again meanwhile", wire.WebhookReceipt),
                202: openapi.answer("A run is queued, or it waits for a heartbeat", wire.WebhookReceipt),
                **openapi.problems(404, 409, 422, 429, 500, 503),
            },
        )
        return router

    async def listing(
        self,
        request: Request,
        source: Annotated[Id | None, Query(description="Only of this source.", examples=["github"])] = None,
        status: Annotated[DeliveryStatus | None, Query(description="Only those that stand like this.")] = None,
        limit: LimitQuery = 100,
    ) -> Response:
        """Return deliveries without their bodies."""
        found = await self._runtime.inbox.deliveries(DeliveryFilter(tenant_of(request), source, status, limit))
        return json_response({"deliveries": [delivery_body(each) for each in found]})

    async def one(self, request: Request, delivery_id: DeliveryIdPath) -> Response:
        """Return the delivery."""
        found = await self._runtime.inbox.delivery(tenant_of(request), DeliveryId(delivery_id))
        return json_response(full_delivery_body(found))

    async def redeliver(self, request: Request, delivery_id: DeliveryIdPath) -> Response:
        """Map the delivery again."""
        return receipt(await self._runtime.inbox.redeliver(tenant_of(request), DeliveryId(delivery_id)))
