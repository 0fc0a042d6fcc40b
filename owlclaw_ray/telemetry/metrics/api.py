"""Metrics, as they travel between processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Sample(Struct, frozen=True):
    """One number."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class MetricFamily(Struct, frozen=True):
    """All samples of one metric, whose names begin with its own."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    help: str
    samples: tuple[Sample, ...]


class Metrics(Protocol):
    """All numbers of the running system."""

    async def families(self) -> Sequence[MetricFamily]:
        """Return the present numbers; parts that do not answer are left out, and `owlclaw_up` is 0 for them."""
        ...
