"""The command that notes how long queues are, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.queue_length import Queue


class NoteQueueLengths(Struct, frozen=True):
    """Note how long these queues were at that moment, and forget what is older than KEPT before it. Outcome: QueueLengthsNoted.

    Of each minute the least and the most of all lengths is kept that were noted.
    """

    at: datetime
    lengths: Mapping[Queue, int]


class QueueLengthsNoted(Struct, frozen=True):
    """It is done."""
