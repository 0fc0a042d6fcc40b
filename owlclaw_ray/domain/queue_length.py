"""How long queues were, by minutes of UTC."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

KEPT = timedelta(days=2)
"""For how long lengths are kept."""


class Queue(StrEnum):
    """What waits, of all tenants and nodes together."""

    QUEUED_RUNS = "queued_runs"
    WAITING_RUNS = "waiting_runs"
    """Runs that wait in the middle: for a person, or for other runs."""
    WAITING_MODEL_CALLS = "waiting_model_calls"
    """Calls that wait for a slot of their provider."""
    WAITING_TOOL_CALLS = "waiting_tool_calls"
    """Calls of tools and memories that wait for a slot of their node."""
    PENDING_CALLBACKS = "pending_callbacks"


class LengthRange(Struct, frozen=True):
    """The lengths that were found in one time."""

    least: int
    most: int

    def including(self, length: int) -> LengthRange:
        """Return what was found together with that length."""
        return LengthRange(min(self.least, length), max(self.most, length))


class QueueMinute(Struct, frozen=True):
    """What was found of a queue in one minute."""

    queue: Queue
    begins_at: datetime
    lengths: LengthRange
