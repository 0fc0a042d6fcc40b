"""What can be read off the metrics of a runtime, at one time or between two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.telemetry.metrics.api import MetricFamily


class Numbers(Struct, frozen=True):
    """The metrics of one moment."""

    families: Sequence[MetricFamily]

    def of_node(self, node: str) -> Numbers:
        """Return them without what was counted on other nodes."""
        return Numbers(
            [
                replace(each, samples=tuple(one for one in each.samples if dict(one.labels).get("node", node) == node))
                for each in self.families
            ]
        )

    def nodes(self) -> Sequence[str]:
        """Return the nodes that Ray has, by name."""
        return sorted(node for (node,) in self.by("owlclaw_node_up", ("node",)))

    def total(self, sample: str) -> float:
        """Return the sum of all samples of that name."""
        return sum(self.by(sample, ()).values())

    def by(self, sample: str, labels: Sequence[str]) -> Mapping[tuple[str, ...], float]:
        """Return the sums by the values of these labels."""
        sums: dict[tuple[str, ...], float] = defaultdict(float)
        for family in self.families:
            if not sample.startswith(family.name):  # samples are called as their family, and `_total`, `_count`, …
                continue
            for each in family.samples:
                if each.name == sample:
                    values = dict(each.labels)
                    sums[tuple(values.get(label, "") for label in labels)] += each.value
        return sums


class MetricsDelta(Struct, frozen=True):
    """The counts between two moments; without an earlier one, since the processes began."""

    now: Numbers
    before: Numbers | None = None
    seconds: float = 0.0

    def by(self, sample: str, *labels: str) -> Mapping[tuple[str, ...], float]:
        """Return what was added, by the values of these labels. A counter that was reset has added its present value."""
        earlier: Mapping[tuple[str, ...], float] = {} if self.before is None else self.before.by(sample, labels)
        return {
            key: value - earlier.get(key, 0.0) if value >= earlier.get(key, 0.0) else value
            for key, value in self.now.by(sample, labels).items()
        }

    def total(self, sample: str) -> float:
        """Return what was added in all."""
        return sum(self.by(sample).values())

    def mean(self, histogram: str, *labels: str) -> Mapping[tuple[str, ...], float]:
        """Return the mean of what a histogram observed, where it observed anything."""
        counts, sums = self.by(f"{histogram}_count", *labels), self.by(f"{histogram}_sum", *labels)
        return {key: sums.get(key, 0.0) / count for key, count in counts.items() if count}

    def shown(self, amount: float) -> str:
        """Return an amount as people read it: a rate, or a number where there is no time to divide by."""
        if self.before is None or self.seconds <= 0:
            return f"{amount:,.0f}"
        return f"{amount / self.seconds:,.1f}/s"
