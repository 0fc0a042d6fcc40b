"""/v1/webhooks: where others send what happens at them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray import wire
from owlclaw_ray.domain.webhook import DeliveryStatus
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.commands import DeliveryStored
from serve import openapi
from serve.parameters import Id
from serve.representations import json_response, receipt_body, source_body
from serve.tenancy import tenant_of

DESCRIPTION = """The body is checked against the signature of the source, mapped to an agent and a payload as owlclaw.yaml says, and
committed with the run that it triggers, or for its agent's next heartbeat: 202 means that it cannot be lost.
200: it came before, or the source's `when` says
that it does not matter. 401: it is not signed as agreed, or too old. 422: it is signed rightly, and no trigger can be made of
it. What came in, refused and unmapped too, is at /v1/deliveries."""


class WebhookRoutes:
    """The resource of webhooks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], default_response_class=Response)
        router.add_api_route(
            "",
            self.listing,
            operation_id="list_webhook_sources",
            summary="Who may send webhooks",
            response_model=None,
            responses={200: openapi.answer("Sources", wire.WebhookSources), **openapi.problems(422, 500, 503)},
        )
        router.add_api_route(
            "/{source}",
            self.receive,
            methods=["POST"],
            status_code=202,
            operation_id="receive_webhook",
            summary="Send a webhook",
            description=DESCRIPTION,
            response_model=None,
            openapi_extra=openapi.WEBHOOK_OPERATION,
            responses={
                200: openapi.answer("Nothing new", wire.WebhookReceipt),
                202: openapi.answer("A run is queued, or it waits for a heartbeat", wire.WebhookReceipt),
                **openapi.problems(401, 404, 409, 408, 413, 422, 429, 500, 503),
            },
        )
        return router

    async def listing(self) -> Response:
        """Return the sources, without their secrets."""
        return json_response({"sources": [source_body(each) for each in self._runtime.inbox.sources()]})

    async def receive(
        self, request: Request, source: Annotated[Id, Path(description="The source's name.", examples=["github"])]
    ) -> Response:
        """Take in what the source sends."""
        headers, body = dict(request.headers), await request.body()
        stored = await self._runtime.inbox.receive(tenant_of(request), source, headers, body)
        return receipt(stored)


def receipt(stored: DeliveryStored) -> Response:
    """Return what whoever delivers is told."""
    new = not stored.duplicate and stored.delivery.status in {DeliveryStatus.TRIGGERED, DeliveryStatus.WAITING}
    return json_response(receipt_body(stored), 202 if new else 200)
