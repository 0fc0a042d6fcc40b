"""How long queues were: what was seen of them in each of the last minutes, by whoever looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.usage import STEP, Grain, floored
from serve.numbers import Numbers

MINUTES = 60
"""For how long lengths are kept."""
_QUEUES = {
    "Runs queued": ("owlclaw_runs", "status", "queued"),
    "Runs that wait in the middle": ("owlclaw_runs", "status", "waiting"),
    "Model calls that wait for a provider": ("owlclaw_provider_calls", "state", "waiting"),
    "Callbacks to be sent": ("owlclaw_callbacks_pending", "", ""),
}
"""The metric that has the length of each, and which of its samples."""


class LengthRange(Struct, frozen=True):
    """The lengths that were seen in one minute."""

    least: int
    most: int


class QueueLengths:
    """Lengths by queue and minute, in memory: a process that has just begun has seen nothing, and what nobody looked at is not known."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[datetime, LengthRange]] = {}

    def note(self, at: datetime, lengths: Mapping[str, int]) -> None:
        """Keep what somebody saw, and forget what is older than MINUTES."""
        minute = floored(at, Grain.MINUTE)
        for queue, length in lengths.items():
            kept = self._seen.setdefault(queue, {})
            before = kept.get(minute, LengthRange(length, length))
            kept[minute] = LengthRange(min(before.least, length), max(before.most, length))
            oldest = minute - (MINUTES - 1) * STEP[Grain.MINUTE]
            self._seen[queue] = {each: seen for each, seen in kept.items() if oldest <= each <= minute}

    def of(self, queue: str, now: datetime) -> Sequence[LengthRange | None]:
        """Return what was seen in each of the last MINUTES, the present one last; None where nobody looked."""
        seen = self._seen.get(queue, {})
        return [seen.get(minute) for minute in minutes_until(now)]


def minutes_until(now: datetime) -> Sequence[datetime]:
    """Return the beginnings of the last MINUTES, the present one last."""
    present = floored(now, Grain.MINUTE)
    return [present - back * STEP[Grain.MINUTE] for back in reversed(range(MINUTES))]


def lengths_of(now: Numbers) -> Mapping[str, int]:
    """Return the length of each queue by its name, without those of parts that did not answer."""
    answered = {each.name for each in now.families}
    return {
        queue: int(now.total(metric) if not label else now.by(metric, (label,)).get((value,), 0.0))
        for queue, (metric, label, value) in _QUEUES.items()
        if metric in answered
    }
