"""Percentiles."""

from __future__ import annotations

from collections.abc import Iterable


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the value that `percent` of them do not exceed, one of them itself; raises ValueError without any."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]
