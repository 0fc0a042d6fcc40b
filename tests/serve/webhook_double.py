"""Webhooks in and out of the runtime in one process: the real inbox and outbox over dictionaries."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import Callback, CallbackStatus
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus, Mapping, SignatureForm, WebhookSource
from owlclaw_ray.ids import CallbackId, DeliveryId, RandomIds, RunId
from owlclaw_ray.store.commands import AppendLedger, CallbackStored, ChangeCallback, DeliveryStored, LedgerAppended
from owlclaw_ray.store.queries import CallbackById, CallbackFilter, DeliveryById, DeliveryFilter, Place
from owlclaw_ray.webhooks.inbox import WebhookInbox
from owlclaw_ray.webhooks.outbox import WebhookOutbox

AT = datetime(2026, 11, 3, 9, tzinfo=UTC)
AGENT = AgentRef.parse("assistant")
GITHUB = WebhookSource(
    "github",
    ("It's a Secret to Everybody",),
    Mapping("assistant"),
    SignatureForm("X-Hub-Signature-256", prefix="sha256="),
)
CALLBACK_KEY = "a2V5LWtleS1rZXkta2V5LWtleS1rZXk="
DELIVERIES = (
    Delivery(
        DeliveryId("whd_1"), AGENT.tenant, "github", "r1", AT, DeliveryStatus.TRIGGERED, "", AGENT, RunId("run_1")
    ),
    Delivery(
        DeliveryId("whd_2"),
        AGENT.tenant,
        "github",
        "r2",
        AT,
        DeliveryStatus.UNMAPPED,
        "the body has nothing at 'issue'",
        headers={"x-github-event": "ping"},
        body='{"zen": "价格"}',
        whole=True,
    ),
)
CALLBACKS = tuple(
    Callback(
        CallbackId(f"cb_{number}"),
        AGENT,
        RunId(f"run_{number}"),
        "https://example.org/",
        AT,
        status,
        attempts,
        problem=why,
    )
    for number, status, attempts, why in (
        (1, CallbackStatus.WAITING, 0, ""),
        (2, CallbackStatus.DEAD, 10, "the receiver answered 503"),
    )
)


class MemoryWebhookStore:
    def __init__(self):
        self._deliveries = {each.delivery_id: each for each in DELIVERIES}
        self._callbacks = {each.callback_id: each for each in CALLBACKS}

    async def apply(self, commands):
        return [self._apply(command) for command in commands]

    def _apply(self, command):
        if isinstance(command, ChangeCallback):
            self._callbacks[command.callback.callback_id] = command.callback
            return CallbackStored()
        if isinstance(command, AppendLedger):
            return LedgerAppended()
        stored = command.delivery if command.run is None else replace(command.delivery, run_id=command.run.run_id)
        self._deliveries[stored.delivery_id] = stored
        return DeliveryStored(stored)

    async def read(self, query):
        match query:
            case DeliveryById():
                return self._deliveries.get(query.delivery_id)
            case CallbackById():
                return self._callbacks.get(query.callback_id)
            case DeliveryFilter():
                return self._matching_deliveries(query)
            case CallbackFilter():
                return self._matching_callbacks(query)
        raise AssertionError(query)

    def _matching_deliveries(self, where):
        found = [
            each
            for each in self._deliveries.values()
            if where.source in {None, each.source} and where.status in {None, each.status}
        ]
        return _page(found, lambda each: Place(each.received_at, each.delivery_id), where)

    def _matching_callbacks(self, where):
        found = [
            each
            for each in self._callbacks.values()
            if where.agent in {None, each.agent}
            and where.run_id in {None, each.run_id}
            and where.status in {None, each.status}
        ]
        return _page(found, lambda each: Place(each.created_at, each.callback_id), where)


def _page(found, place, where):
    def order(at):
        return at.at, at.id

    newest_first = sorted(found, key=lambda each: order(place(each)), reverse=True)
    return [each for each in newest_first if where.before is None or order(place(each)) < order(where.before)][
        : where.limit
    ]


def webhooks(clock, submissions):
    """Return an inbox and an outbox."""
    store = MemoryWebhookStore()
    inbox = WebhookInbox([GITHUB], store=store, submissions=submissions, clock=clock, ids=RandomIds())
    return inbox, WebhookOutbox(store, clock, RandomIds(), (CALLBACK_KEY,))
