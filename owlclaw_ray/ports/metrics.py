"""Metrics, as they travel between processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from owlclaw_ray.domain.pickling import fast_pickle


@fast_pickle
@dataclass(frozen=True, slots=True)
class Sample:
    """One number."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@fast_pickle
@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All samples of one metric, whose names begin with its own."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    help: str
    samples: tuple[Sample, ...]


class Metrics(Protocol):
    """Everything that can be said of the running system in numbers."""

    async def families(self) -> Sequence[MetricFamily]:
        """Return the present numbers; parts that do not answer are left out, and said to be down."""
        ...
