"""Webhook deliveries and callbacks as rows."""

from __future__ import annotations

from typing import Any

from owlclaw_ray.domain.callback import Callback, CallbackStatus
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.ids import CallbackId, DeliveryId, RunId, TenantId
from owlclaw_ray.store.sql.codec import (
    agent_key,
    agent_of,
    dump,
    from_micros,
    load,
    optional_micros,
    optional_time,
    to_micros,
)
from owlclaw_ray.store.sql.schema import callbacks, webhook_deliveries

DELIVERY_COLUMNS = tuple(webhook_deliveries.c)
BRIEF_DELIVERY_COLUMNS = tuple(column for column in webhook_deliveries.c if column.name not in {"body", "event"})
CALLBACK_COLUMNS = tuple(callbacks.c)


def delivery_row(delivery: Delivery) -> tuple[Any, ...]:
    """Return the values of DELIVERY_COLUMNS."""
    return (
        delivery.delivery_id,
        delivery.tenant,
        delivery.source,
        delivery.receipt,
        to_micros(delivery.received_at),
        delivery.status.value,
        dump(delivery.reason),
        None if delivery.agent is None else agent_key(delivery.agent),
        delivery.run_id,
        dump(delivery.headers),
        delivery.whole,
        dump(delivery.body),
        None if delivery.event is None else dump(delivery.event),
        delivery.failures,
    )


def delivery_of(row: Any) -> Delivery:
    """Return the delivery of a row of DELIVERY_COLUMNS or BRIEF_DELIVERY_COLUMNS."""
    return Delivery(
        DeliveryId(row.delivery_id),
        TenantId(row.tenant),
        row.source,
        row.receipt,
        from_micros(row.received_at),
        DeliveryStatus(row.status),
        load(row.reason),
        None if row.agent is None else agent_of(row.agent),
        None if row.run_id is None else RunId(row.run_id),
        load(row.headers),
        load(row.body) if "body" in row._fields else "",
        bool(row.whole),
        load(row.event) if "event" in row._fields and row.event is not None else None,
        row.failures,
    )


def callback_row(callback: Callback) -> tuple[Any, ...]:
    """Return the values of CALLBACK_COLUMNS."""
    return (
        callback.callback_id,
        callback.agent.tenant,
        agent_key(callback.agent),
        callback.run_id,
        callback.url,
        to_micros(callback.created_at),
        callback.status.value,
        callback.attempts,
        optional_micros(callback.next_try_at),
        optional_micros(callback.tried_at),
        dump(callback.problem),
        optional_micros(callback.delivered_at),
        callback.version,
        callback.changed_by,
        callback.host,
    )


def callback_of(row: Any) -> Callback:
    """Return the callback of a row of CALLBACK_COLUMNS."""
    return Callback(
        CallbackId(row.callback_id),
        agent_of(row.agent),
        RunId(row.run_id),
        row.url,
        from_micros(row.created_at),
        CallbackStatus(row.status),
        row.attempts,
        optional_time(row.next_try_at),
        optional_time(row.tried_at),
        load(row.problem),
        optional_time(row.delivered_at),
        row.version,
        row.changed_by,
    )
