"""How many calls of a model provider may run at once, as somebody learned it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

KEPT = timedelta(minutes=5)
"""For how long a limit is worth beginning with: what a provider bears changes."""


class ConcurrencyLimit(Struct, frozen=True):
    """What one gateway learned of one provider."""

    calls: int
    """So many at once."""
    threshold: int | None = None
    """Up to it the limit doubles in a round of answers, from it on it grows by one. None: it has never been too high."""


class NotedLimit(Struct, frozen=True):
    """A limit, and the node whose gateway learned it."""

    node_id: str
    limit: ConcurrencyLimit


def limit_to_begin_with(noted: Sequence[NotedLimit], node_id: str) -> ConcurrencyLimit | None:
    """Return the node's own limit, or the mean of the others', as clusters with equal loads have it; None without any."""
    limits = [each.limit for each in noted if each.node_id == node_id] or [each.limit for each in noted]
    if not limits:
        return None
    thresholds = [each.threshold for each in limits if each.threshold is not None]
    known = len(thresholds) == len(limits)
    return ConcurrencyLimit(
        calls=round(sum(each.calls for each in limits) / len(limits)),
        threshold=round(sum(thresholds) / len(thresholds)) if known else None,
    )
