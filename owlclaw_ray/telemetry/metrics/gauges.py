"""What is asked of the parts when the metrics are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from owlclaw_ray.access.quota_use import TenantQuotaUse
from owlclaw_ray.domain.node import NodeLoad, Slots
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.models.provider_slots import SlotCounts
from owlclaw_ray.schedules.alarm_sync import AlarmCounts
from owlclaw_ray.telemetry.metrics.api import MetricFamily, Sample
from owlclaw_ray.telemetry.trace_export import ExportCounts
from owlclaw_ray.webhooks.outbox import CallbackCounts


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
    return (
        MetricFamily(
            "owlclaw_actors",
            "gauge",
            "Agent actors: those that wait for an agent, and those that have one",
            tuple(Sample("owlclaw_actors", (("state", state),), float(number)) for state, number in actors),
        ),
        _gauge("owlclaw_agents_in_memory", "Agents that are activated", sum(agents.values())),
    )


def node_up(up: bool) -> MetricFamily:  # noqa: FBT001 - the number itself
    """Return whether the node's root answered."""
    return _gauge("owlclaw_node_up", "Whether the node's root answered", up)


def node_load(load: NodeLoad) -> tuple[MetricFamily, ...]:
    """Return what a node has to do."""
    return (
        _gauge("owlclaw_node_actors", "Agent actors of the node", load.hosts),
        _gauge("owlclaw_node_agents", "Agents of the node that are activated", load.agents),
        _gauge("owlclaw_node_running", "Agents of the node that are at work", load.running),
        MetricFamily(
            "owlclaw_node_waiting_calls",
            "gauge",
            "Calls of tools and memories that wait for a slot of the node",
            tuple(
                Sample("owlclaw_node_waiting_calls", (("slots", slots),), float(number))
                for slots, number in load.waiting_calls.items()
            ),
        ),
        _gauge("owlclaw_node_memory_ratio", "The used share of the node's memory", load.memory_used),
        *(
            ()
            if load.store_seconds is None
            else (
                _gauge(
                    "owlclaw_node_store_seconds",
                    "A small read of the store through the node's Keeper, now",
                    load.store_seconds,
                ),
            )
        ),
    )


def tool_slots(slots: Sequence[Slots]) -> MetricFamily:
    """Return how many slots for tool calls a node has, and how many are taken."""
    return MetricFamily(
        "owlclaw_node_slots",
        "gauge",
        "Slots for tool calls that the node has, and those in use",
        tuple(
            Sample("owlclaw_node_slots", (("slots", each.name), ("state", state)), number)
            for each in slots
            for state, number in (("all", each.total), ("used", each.total - each.available))
        ),
    )


def lease_held(held: bool) -> MetricFamily:  # noqa: FBT001 - the number itself
    """Return whether this cluster holds the lease of the store."""
    return _gauge("owlclaw_cluster_lease_held", "Whether this cluster runs the agents of the store, by its lease", held)


def traces(counts: ExportCounts) -> tuple[MetricFamily, ...]:
    """Return what became of traces."""
    return (
        _counter("owlclaw_traces_exported", "Traces that their receiver took", counts.exported),
        _counter("owlclaw_traces_dropped", "Traces that were given up", counts.dropped),
        _counter("owlclaw_trace_deliveries_failed", "Deliveries of traces that did not get through", counts.failures),
        _gauge(
            "owlclaw_traces_waiting",
            "Traces that wait for a receiver that is away, or for an export that has fallen far behind",
            counts.waiting,
        ),
    )


def slots(counts: Sequence[SlotCounts]) -> tuple[MetricFamily, ...]:
    """Return how the calls of each provider stand."""
    limits = tuple(
        Sample("owlclaw_provider_slots", (("provider", each.provider),), float(each.limit)) for each in counts
    )
    calls = tuple(
        Sample("owlclaw_provider_calls", (("provider", each.provider), ("state", state)), float(number))
        for each in counts
        for state, number in (("running", each.running), ("waiting", each.waiting))
    )
    return (
        MetricFamily("owlclaw_provider_slots", "gauge", "Calls that the provider is taken to bear at once", limits),
        MetricFamily(
            "owlclaw_provider_calls", "gauge", "Calls that have a slot of the provider, or wait for one", calls
        ),
    )


def quotas(uses: Sequence[TenantQuotaUse]) -> tuple[MetricFamily, ...]:
    """Return what tenants use of the quotas that they have, and the quotas."""

    def family(name: str, text: str, number: Callable[[TenantQuotaUse], int]) -> MetricFamily:
        samples = (Sample(name, (("tenant", each.tenant), ("quota", each.quota)), float(number(each))) for each in uses)
        return MetricFamily(name, "gauge", text, tuple(samples))

    return (
        family("owlclaw_quota_used", "What a tenant uses of a quota that it has", lambda each: each.used),
        family("owlclaw_quota_limit", "Quotas of tenants", lambda each: each.limit),
    )


def callbacks_pending(pending: int) -> MetricFamily:
    """Return how many callbacks are to be sent."""
    return _gauge("owlclaw_callbacks_pending", "Callbacks that are to be sent, perhaps again", pending)


def callback_attempts(counts: CallbackCounts) -> MetricFamily:
    """Return what became of attempts to send callbacks."""
    outcomes = (("delivered", counts.delivered), ("failed", counts.failed), ("dead", counts.dead))
    name = "owlclaw_callback_attempts"
    return MetricFamily(
        name,
        "counter",
        "Attempts to send callbacks; after a failed one another comes, after a dead one none",
        tuple(Sample(f"{name}_total", (("outcome", outcome),), float(value)) for outcome, value in outcomes),
    )


def hatchet(counts: AlarmCounts) -> tuple[MetricFamily, ...]:
    """Return the state of the engine that keeps alarms, and its counts."""
    return (
        _gauge("owlclaw_hatchet_reachable", "Whether the engine answered the latest comparison", counts.reachable),
        _gauge("owlclaw_hatchet_alarms", "Alarms that the engine keeps, as far as is known", counts.standing),
        _counter("owlclaw_hatchet_alarms_set", "Alarms that the engine was given", counts.alarms_set),
        _counter("owlclaw_hatchet_refusals", "Comparisons that the engine did not answer, or refused", counts.refused),
        _counter("owlclaw_hatchet_rings", "Alarms that the engine delivered", counts.rings),
    )


def _gauge(name: str, what: str, value: float) -> MetricFamily:
    return MetricFamily(name, "gauge", what, (Sample(name, (), float(value)),))


def _counter(name: str, what: str, value: int) -> MetricFamily:
    return MetricFamily(name, "counter", what, (Sample(f"{name}_total", (), float(value)),))
