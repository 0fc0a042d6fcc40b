"""Webhooks in and out, as interfaces use them, and the sending of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.callback import Callback
from owlclaw_ray.domain.webhook import Delivery, WebhookSource
from owlclaw_ray.ids import CallbackId, DeliveryId, TenantId
from owlclaw_ray.store.commands import DeliveryStored
from owlclaw_ray.store.queries import CallbackFilter, DeliveryFilter


class Inbox(Protocol):
    """Webhooks that come in."""

    def sources(self) -> Sequence[WebhookSource]:
        """Return who may send, by name. Their secrets are for nobody to see."""
        ...

    async def receive(self, tenant: TenantId, source: str, headers: Mapping[str, str], body: bytes) -> DeliveryStored:
        """Store what came in, with the run that it triggers, and wake the agent. When this returns, it cannot be lost.

        `headers` have names in small letters. Raises NotFoundError for an unknown source, WebhookRefusedError,
        WebhookUnmappedError, AgentBusyError, QueueFullError, DefinitionError: each of these is in the inbox too, as far as
        the source is known. Raises StoreUnavailableError.
        """
        ...

    async def deliveries(self, where: DeliveryFilter) -> Sequence[Delivery]:
        """Return the deliveries that match, newest first, without their bodies."""
        ...

    async def delivery(self, tenant: TenantId, delivery_id: DeliveryId) -> Delivery:
        """Return the delivery; raises NotFoundError."""
        ...

    async def redeliver(self, tenant: TenantId, delivery_id: DeliveryId) -> DeliveryStored:
        """Map a stored delivery again, as its source is configured now; raises as `receive`, and SettledError."""
        ...


class Outbox(Protocol):
    """What is told of runs' ends."""

    async def callbacks(self, where: CallbackFilter) -> Sequence[Callback]:
        """Return the callbacks that match, newest first."""
        ...

    async def callback(self, tenant: TenantId, callback_id: CallbackId) -> Callback:
        """Return the callback; raises NotFoundError."""
        ...

    async def send_again(self, tenant: TenantId, callback_id: CallbackId) -> Callback:
        """Have a callback sent (again), with as many attempts as at first; raises NotFoundError, SettledError while its run is not over."""
        ...


class CallbackAnswered(Struct, frozen=True):
    """The receiver answered, with this status."""

    status: int
    retry_after: float | None = None
    """When it wants to be asked again, in seconds, if it said so."""


class CallbackUnanswered(Struct, frozen=True):
    """Nothing useful came back, or nothing was sent: `why`."""

    why: str


class CallbackSender(Protocol):
    """Sends one webhook."""

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> CallbackAnswered | CallbackUnanswered:
        """Post the body within a bounded time, follow no redirect, and read no more of the answer than its status.

        Nothing is sent to an address that may not be reached. Never raises but when it is cancelled.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
