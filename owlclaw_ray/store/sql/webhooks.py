"""Webhooks on the working set: what came in, and what is to be told of runs' ends."""

from __future__ import annotations

from msgspec.structs import replace

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.store.commands import (
    AgentBusy,
    CallbackChanged,
    CallbackStored,
    ChangeCallback,
    DeliveryStored,
    ForgetWebhooks,
    IdempotencyConflict,
    QueueFull,
    QuotaReached,
    ReceiveDelivery,
    RunAccepted,
    WebhooksForgotten,
)
from owlclaw_ray.store.sql.codec import agent_key, from_micros, load_lineage, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.quotas import keep, no_room_for
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.submission import need_submission, submit_run
from owlclaw_ray.store.sql.working_set import RowChange, WorkingSet


def _need_delivery(needs: RowNeeds, command: ReceiveDelivery) -> None:
    delivery = command.delivery
    needs.deliveries.add(delivery.delivery_id)
    if delivery.status is DeliveryStatus.WAITING and delivery.agent is not None:
        needs.counts.add(needs.agent(delivery.agent, delivery.received_at))
    if command.run is not None:
        need_submission(needs, command.run)


@applies(ReceiveDelivery, needs=_need_delivery)
def receive_delivery(store: WorkingSet, command: ReceiveDelivery) -> DeliveryStored:
    """Store the delivery and queue its run, unless it came before and is settled."""
    delivery, run = command.delivery, command.run
    known = store.deliveries.get(delivery.delivery_id)
    if known is not None and known.status.settled:
        if known.receipt != delivery.receipt:
            return DeliveryStored(known, duplicate=True)
        again = None if run is None else submit_run(store, run)  # stored before, but the answer was lost
        return DeliveryStored(known, submitted=again if isinstance(again, RunAccepted) else None)
    delivery = replace(delivery, received_at=from_micros(to_micros(delivery.received_at)))
    if delivery.status is DeliveryStatus.WAITING:
        delivery = _heard(store, delivery)
    submitted = None if run is None else submit_run(store, run)
    match submitted:
        case RunAccepted(run_id):
            delivery = replace(delivery, run_id=run_id)
        case AgentBusy(busy_with):
            delivery = _refused(delivery, f"the agent is busy with run {busy_with}")
        case QueueFull(limit):
            delivery = _refused(
                delivery, f"queue full: the agent has {counted(limit, 'queued run')} (limits.queued_runs)"
            )
        case QuotaReached() as reached:
            delivery = _refused(delivery, str(reached.error(delivery.received_at)))
        case IdempotencyConflict():
            raise ValueError(f"the run of delivery {delivery.delivery_id} has an Idempotency-Key")
    store.put_delivery(delivery)
    return DeliveryStored(delivery, submitted=submitted)


def _heard(store: WorkingSet, delivery: Delivery) -> Delivery:
    """Return a delivery that waits, as unmapped if its agent has no heartbeats: those have none that others started; as refused if the
    agent is new and one too many.
    """
    assert delivery.agent is not None
    refused = no_room_for(store, agent_key(delivery.agent))
    if refused is not None:
        return _refused(delivery, str(refused.error(delivery.received_at)))
    keep(store, agent_key(delivery.agent))
    lineage = load_lineage(store.agents[agent_key(delivery.agent)].lineage)
    if lineage is None:
        return delivery
    why = (
        f"{delivery.agent} was started by {lineage.parent}, and started agents have no heartbeats: deliver it as a run"
    )
    return replace(delivery, status=DeliveryStatus.UNMAPPED, reason=why, event=None)


def _need_callback(needs: RowNeeds, command: ChangeCallback) -> None:
    needs.callbacks.add(command.callback.callback_id)
    needs.record(command.records)


@applies(ChangeCallback, needs=_need_callback)
def change_callback(store: WorkingSet, command: ChangeCallback) -> CallbackStored | CallbackChanged:
    """Replace the callback, unless it is another than it was."""
    new = command.callback
    stored = store.callbacks.get(new.callback_id)
    if stored == new:
        store.record(command.records)
        return CallbackStored()
    if stored is None or stored.agent != new.agent or stored.version != new.version - 1:
        mine = stored is not None and stored.agent.tenant == new.agent.tenant
        return CallbackChanged(stored if mine else None)
    store.change_callback(new)
    store.record(command.records)
    return CallbackStored()


def _need_nothing(_needs: RowNeeds, _command: ForgetWebhooks) -> None:
    """What may be removed is decided by the statements."""


@applies(ForgetWebhooks, needs=_need_nothing)
def forget(store: WorkingSet, command: ForgetWebhooks) -> WebhooksForgotten:
    """Remove what is over."""
    store.remove(RowChange.REMOVED_DELIVERY, command.deliveries)
    store.remove(RowChange.REMOVED_CALLBACK, command.callbacks)
    return WebhooksForgotten()


def _refused(delivery: Delivery, reason: str) -> Delivery:
    return replace(delivery, status=DeliveryStatus.REFUSED, reason=reason)
