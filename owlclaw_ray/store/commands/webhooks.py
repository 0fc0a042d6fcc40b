"""Commands about deliveries that came in and callbacks that go out, and their outcomes."""

from __future__ import annotations

from msgspec import Struct

from owlclaw_ray.domain.callback import Callback
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.webhook import Delivery
from owlclaw_ray.ids import CallbackId, DeliveryId
from owlclaw_ray.store.commands.runs import AgentBusy, QueueFull, QuotaReached, RunAccepted, SubmitRun


class ReceiveDelivery(Struct, frozen=True):
    """Store what came in, and with it the run that it triggers. Outcome: DeliveryStored.

    One that waits for a heartbeat registers its agent when that is new.

    One that would wait for a heartbeat of an agent that was started by another is stored as unmapped: it has none.

    A delivery of the same id that is settled stays as it is. One that is not is replaced. If the run is refused, because
    its agent's queue is full or its policy says so, the delivery is stored as refused, with the reason.
    """

    delivery: Delivery
    run: SubmitRun | None = None


class ChangeCallback(Struct, frozen=True):
    """Put this in the place of a callback, if the version that is stored is the one before. Outcome: CallbackStored or CallbackChanged.

    Callbacks are made with the run that they tell of (SubmitRun), or with its end (FinishRun).
    """

    callback: Callback
    records: tuple[LedgerRecord, ...] = ()
    """Who asked for it, if somebody did: in the ledger if it is stored, once."""


class ForgetWebhooks(Struct, frozen=True):
    """Remove these deliveries, unless they wait, and these callbacks, if they are delivered or dead. Outcome: WebhooksForgotten."""

    deliveries: tuple[DeliveryId, ...]
    callbacks: tuple[CallbackId, ...]


class DeliveryStored(Struct, frozen=True):
    """The delivery is durable, like this. `duplicate`: it came before, and changed nothing now."""

    delivery: Delivery
    duplicate: bool = False
    submitted: RunAccepted | AgentBusy | QueueFull | QuotaReached | None = None
    """What became of the run that came with it, unless it is a duplicate."""


class CallbackStored(Struct, frozen=True):
    """The callback is durable, or was before."""


class CallbackChanged(Struct, frozen=True):
    """Somebody else changed it; `callback` is what is stored. None: it does not exist."""

    callback: Callback | None


class WebhooksForgotten(Struct, frozen=True):
    """What could be removed is not there any more."""
