"""What is asked of the parts when the metrics are read."""

from __future__ import annotations

from collections.abc import Mapping

from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.engine.trace_export import ExportCounts
from owlclaw_ray.ports.metrics import MetricFamily, Sample


def up(parts: Mapping[str, bool]) -> MetricFamily:
    """Return which parts answered."""
    samples = tuple(Sample("owlclaw_up", (("part", part),), float(answered)) for part, answered in parts.items())
    return MetricFamily("owlclaw_up", "gauge", "Whether the part answered when it was asked for its numbers", samples)


def active_runs(counted: Mapping[RunStatus, int]) -> MetricFamily:
    """Return how many runs there are that are not over."""
    samples = tuple(
        Sample("owlclaw_runs", (("status", status.value),), float(number)) for status, number in counted.items()
    )
    return MetricFamily("owlclaw_runs", "gauge", "Runs that are not over", samples)


def pool(agents: Mapping[str, int]) -> tuple[MetricFamily, ...]:
    """Return how many agent actors there are, and how many agents they hold; `agents` are those of each actor."""
    warm = sum(held == 0 for held in agents.values())
    actors = (("warm", warm), ("occupied", len(agents) - warm))
    held = Sample("owlclaw_agents_in_memory", (), float(sum(agents.values())))
    return (
        MetricFamily(
            "owlclaw_actors",
            "gauge",
            "Agent actors: those that wait for an agent, and those that have one",
            tuple(Sample("owlclaw_actors", (("state", state),), float(number)) for state, number in actors),
        ),
        MetricFamily("owlclaw_agents_in_memory", "gauge", "Agents that are activated", (held,)),
    )


def traces(counts: ExportCounts) -> tuple[MetricFamily, ...]:
    """Return what became of traces."""
    return (
        _counter("owlclaw_traces_exported", "Traces that their receiver took", counts.exported),
        _counter("owlclaw_traces_dropped", "Traces that were given up", counts.dropped),
        _counter("owlclaw_trace_deliveries_failed", "Deliveries of traces that did not get through", counts.failures),
        MetricFamily(
            "owlclaw_traces_waiting",
            "gauge",
            "Traces that wait for a receiver that is away, or for an export that has fallen far behind",
            (Sample("owlclaw_traces_waiting", (), float(counts.waiting)),),
        ),
    )


def _counter(name: str, what: str, value: int) -> MetricFamily:
    return MetricFamily(name, "counter", what, (Sample(f"{name}_total", (), float(value)),))
