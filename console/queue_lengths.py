"""How long queues were, in each of the last minutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.queue_length import LengthRange, Queue, QueueMinute
from owlclaw_ray.domain.usage import STEP, Grain, floored
from serve.numbers import Numbers

MINUTES = 60
"""For how long lengths are shown."""


class _Gauge(Struct, frozen=True):
    """What tells the present length of a queue: samples of a metric, those with this value of this label, if there is one."""

    title: str
    metric: str
    label: str = ""
    value: str = ""


_GAUGES = {
    Queue.QUEUED_RUNS: _Gauge("Runs queued", "owlclaw_runs", "status", "queued"),
    Queue.WAITING_RUNS: _Gauge("Runs that wait in the middle", "owlclaw_runs", "status", "waiting"),
    Queue.WAITING_MODEL_CALLS: _Gauge(
        "Model calls that wait for a provider", "owlclaw_provider_calls", "state", "waiting"
    ),
    Queue.WAITING_TOOL_CALLS: _Gauge("Tool calls that wait for a slot", "owlclaw_node_waiting_calls"),
    Queue.PENDING_CALLBACKS: _Gauge("Callbacks to be sent", "owlclaw_callbacks_pending"),
}


class QueueLengths(Struct, frozen=True):
    """How long a queue is, and was in each of the last MINUTES, the present one last; None where it is not known."""

    title: str
    now: int
    minutes: Sequence[LengthRange | None]


def queue_lengths(now: Numbers, noted: Iterable[QueueMinute], at: datetime) -> Sequence[QueueLengths]:
    """Return the queues of parts that answered."""
    known = {(each.queue, each.begins_at): each.lengths for each in noted}
    minutes, found = minutes_until(at), []
    for queue, length in _lengths(now).items():
        present = known.get((queue, minutes[-1]), LengthRange(length, length)).including(length)
        before = [known.get((queue, minute)) for minute in minutes[:-1]]
        found.append(QueueLengths(_GAUGES[queue].title, length, (*before, present)))
    return found


def minutes_until(now: datetime) -> Sequence[datetime]:
    """Return the beginnings of the last MINUTES, the present one last."""
    present = floored(now, Grain.MINUTE)
    return [present - back * STEP[Grain.MINUTE] for back in reversed(range(MINUTES))]


def _lengths(now: Numbers) -> Mapping[Queue, int]:
    answered = {each.name for each in now.families}
    return {
        queue: int(
            now.by(gauge.metric, (gauge.label,)).get((gauge.value,), 0.0) if gauge.label else now.total(gauge.metric)
        )
        for queue, gauge in _GAUGES.items()
        if gauge.metric in answered
    }
