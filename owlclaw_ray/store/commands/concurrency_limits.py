"""The command that notes what a model gateway learned of its providers, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.concurrency_limit import ConcurrencyLimit


class NoteConcurrencyLimits(Struct, frozen=True):
    """Note these limits of a node's gateway in place of those of before, and forget all that are older than KEPT.

    Outcome: ConcurrencyLimitsNoted.
    """

    node_id: str
    at: datetime
    limits: Mapping[str, ConcurrencyLimit]
    """By what is asked, see `models.learned_limits`."""


class ConcurrencyLimitsNoted(Struct, frozen=True):
    """It is done."""
