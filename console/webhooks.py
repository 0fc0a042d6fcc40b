"""Webhooks that came in, callbacks that go out, and sending or mapping them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from starlette.requests import Request
from starlette.responses import Response

from console.filters import choice_of
from console.jinja import query, segment
from console.pages import PREFIX, Pages, back, name_in, page, see
from console.text import pretty
from console.visits import read_form
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import Callback, CallbackStatus
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.ids import CallbackId, DeliveryId, RunId
from owlclaw_ray.store.queries import CallbackFilter, DeliveryFilter
from serve.parameters import check_owner, only_agent_of, principal_of, submitters_of, tenant_of

PAGE = 100


_AGAIN = "again"


class WebhookPages(Pages):
    """`/console/webhooks`."""

    place: ClassVar[str] = "webhooks"

    @page("GET /console/webhooks", "webhooks:read", "source", "status", "before")
    async def console_deliveries(self, request: Request) -> Response:
        """Show the webhooks that came in, newest first, and who may send them."""
        source = _text(request, "source")
        status = choice_of(request, "status", DeliveryStatus)
        narrowed = bool(principal_of(request).patterns)
        before = _text(request, "before")
        where = DeliveryFilter(tenant_of(request), source or None, status, PAGE + 1)
        found: Sequence[Delivery] = ()
        if not narrowed:
            found = await self._runtime.inbox.deliveries(where, DeliveryId(before) if before else None)
        return await self.shown(
            request,
            "deliveries.html",
            deliveries=found[:PAGE],
            before=before,
            following=found[PAGE - 1].delivery_id if len(found) > PAGE else None,
            sources=self._runtime.inbox.sources(where.tenant),
            narrowed=narrowed,
            source=source,
            status=status.value if status else "",
            statuses=[each.value for each in DeliveryStatus],
        )

    @page("GET /console/webhooks/deliveries/{delivery_id}", "webhooks:read")
    async def console_delivery(self, request: Request) -> Response:
        """Show a webhook with what of it was kept."""
        delivery = await self._delivery(request)
        return await self.shown(
            request,
            "delivery.html",
            delivery=delivery,
            headers=pretty(dict(delivery.headers)),
            body=pretty(delivery.body),
        )

    @page("GET /console/webhooks/deliveries/{delivery_id}/body", "webhooks:read")
    async def console_delivery_body(self, request: Request) -> Response:
        """Return the body as it came, as plain text."""
        delivery = await self._delivery(request)
        return Response(delivery.body.encode("utf-8", "replace"), media_type="text/plain; charset=utf-8")

    @page("POST /console/webhooks/deliveries/{delivery_id}/redelivery", "webhooks:write")
    async def console_redeliver(self, request: Request) -> Response:
        """Map the webhook again, as its source is configured now."""
        await read_form(request)
        delivery = await self._delivery(request)
        await self._runtime.inbox.redeliver(
            delivery.tenant,
            delivery.delivery_id,
            quota=principal_of(request).quota,
            submitters=submitters_of(request),
            by=str(principal_of(request)),
        )
        return see(f"/webhooks/deliveries/{segment(delivery.delivery_id)}")

    @page("GET /console/webhooks/callbacks", "webhooks:read", "status", "agent", "run", "before", "did")
    async def console_callbacks(self, request: Request) -> Response:
        """Show the callbacks, newest first."""
        agent, run, before = (_text(request, name) for name in ("agent", "run", "before"))
        status = choice_of(request, "status", CallbackStatus)
        narrowed = bool(principal_of(request).patterns) and not agent
        found: Sequence[Callback] = ()
        if not narrowed:
            ref = only_agent_of(request, agent or None)
            where = CallbackFilter(tenant_of(request), ref, RunId(run) if run else None, status, PAGE + 1)
            found = await self._runtime.outbox.callbacks(where, CallbackId(before) if before else None)
        here = query(status=status.value if status else "", agent=agent, run=run, before=before)
        return await self.shown(
            request,
            "callbacks.html",
            callbacks=found[:PAGE],
            before=before,
            following=found[PAGE - 1].callback_id if len(found) > PAGE else None,
            here=f"{PREFIX}/webhooks/callbacks{here}",
            narrowed=narrowed,
            agent=agent,
            run=run,
            status=status.value if status else "",
            statuses=[each.value for each in CallbackStatus],
            again=request.query_params.get("did") == _AGAIN,
        )

    @page("POST /console/webhooks/callbacks/{callback_id}/redelivery", "webhooks:write")
    async def console_send_again(self, request: Request) -> Response:
        """Have the callback sent again, with as many attempts as the first time."""
        form = await read_form(request)
        tenant, callback_id = tenant_of(request), CallbackId(name_in(request, "callback_id", "callback"))
        callback = await self._runtime.outbox.callback(tenant, callback_id)

        async def owner() -> AgentRef:
            return callback.agent

        await check_owner(request, owner)
        await self._runtime.outbox.send_again(tenant, callback_id, str(principal_of(request)))
        asked_by = callback.agent.agent_id if principal_of(request).patterns else ""
        return back(form.text("back"), f"/webhooks/callbacks{query(run=callback.run_id, agent=asked_by)}", did=_AGAIN)

    async def _delivery(self, request: Request) -> Delivery:
        delivery_id = DeliveryId(name_in(request, "delivery_id", "delivery"))
        delivery = await self._runtime.inbox.delivery(tenant_of(request), delivery_id)

        async def owner() -> AgentRef | None:
            return delivery.agent

        await check_owner(request, owner)
        return delivery


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "").strip().replace("\0", "")
