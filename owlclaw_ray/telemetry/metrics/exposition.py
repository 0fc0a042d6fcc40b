"""Between prometheus_client's registries, what travels between processes, and the text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from owlclaw_ray.telemetry.metrics.api import MetricFamily, Sample

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_CREATED = "_created"
"""The end of the name of a sample that says since when there is a counter: of no use beside the counter."""


def read(text: str) -> tuple[MetricFamily, ...]:
    """Return the numbers of a text; raises ValueError for one that is none."""
    return tuple(map(family_of, text_string_to_metric_families(text)))


def text_of(families: Iterable[MetricFamily]) -> bytes:
    """Return the text of these families; of the same name there is one, with the samples of all."""
    registry = CollectorRegistry()
    registry.register(_SampleCollector(families))
    return generate_latest(registry)


def labelled(families: Sequence[MetricFamily], label: str, value: str) -> tuple[MetricFamily, ...]:
    """Return the families with one more label on each sample."""
    return tuple(
        MetricFamily(
            each.name,
            each.kind,
            each.help,
            tuple(Sample(one.name, (*one.labels, (label, value)), one.value) for one in each.samples),
        )
        for each in families
    )


class _SampleCollector(Collector):
    def __init__(self, families: Iterable[MetricFamily]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric once."""
        metrics: dict[str, Metric] = {}
        for family in self._families:
            metric = metrics.setdefault(family.name, Metric(family.name, family.help, family.kind))
            for sample in family.samples:
                metric.add_sample(sample.name, dict(sample.labels), sample.value)
        yield from metrics.values()


def family_of(metric: Metric) -> MetricFamily:
    """Return the numbers of one metric of a registry."""
    samples = (
        Sample(each.name, tuple(each.labels.items()), float(each.value))
        for each in metric.samples
        if not each.name.endswith(_CREATED)
    )
    return MetricFamily(metric.name, metric.type, metric.documentation, tuple(samples))
