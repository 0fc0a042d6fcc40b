"""The numbers of the whole cluster, asked of its parts when somebody reads them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from actors.nodes import Node, living_nodes
from actors.plan import RuntimePlan
from actors.remote import DIRECTORY, EXPORTER, GATEWAY, KEEPER, SCHEDULER, NamedActor
from actors.scheduler import SchedulerCounts
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.telemetry.metrics import gauges
from owlclaw_ray.telemetry.metrics.api import MetricFamily
from owlclaw_ray.telemetry.metrics.exposition import labelled

_PART_SECONDS = 3.0


class FleetMetrics:
    """Implements Metrics. What each Keeper and each ModelGateway counts has the label `node`; the rest is the cluster's."""

    def __init__(self, plan: RuntimePlan) -> None:
        self._namespace = plan.namespace
        self._keepers: dict[str, NamedActor] = {}
        self._gateways: dict[str, NamedActor] = {}
        self._directory = NamedActor(DIRECTORY, plan.namespace)
        self._scheduler = NamedActor(SCHEDULER, plan.namespace)
        self._has_callbacks = plan.callbacks is not None
        self._exporter = None if plan.tracing is None else NamedActor(EXPORTER, plan.namespace)

    async def families(self) -> Sequence[MetricFamily]:
        """See Metrics.families."""
        nodes = _names(await asyncio.to_thread(living_nodes))
        self._keepers = self._on_each(KEEPER, nodes, self._keepers)
        self._gateways = self._on_each(GATEWAY, nodes, self._gateways)
        keepers = list(self._keepers.values())
        counted, slots, active, pending, hosts, scheduled, exported = await asyncio.gather(
            asyncio.gather(*(_ask(keeper, "metrics") for keeper in keepers)),
            asyncio.gather(*(_ask(gateway, "slots") for gateway in self._gateways.values())),
            _first(keepers, "query", "active_runs", ()),
            _first(keepers, "query", "pending_callbacks", ()),
            _ask(self._directory, "hosts"),
            _ask(self._scheduler, "counts"),
            _ask(self._exporter, "counts"),
        )
        answered = {
            f"{part}@{nodes[node]}": each is not None
            for part, answers in ((KEEPER, counted), (GATEWAY, slots))
            for node, each in zip(nodes, answers, strict=True)
        }
        answered |= {DIRECTORY: hosts is not None, SCHEDULER: scheduled is not None}
        if self._exporter is not None:
            answered[EXPORTER] = exported is not None
        families = [gauges.up(answered)]
        for node, each in zip(nodes, counted, strict=True):
            families += labelled(each or (), "node", nodes[node])
        for node, each in zip(nodes, slots, strict=True):
            families += labelled(gauges.slots(each or ()), "node", nodes[node])
        families += [gauges.active_runs(active)] if active is not None else []
        families += gauges.pool(hosts) if hosts is not None else ()
        families += [gauges.callbacks_pending(pending)] if self._has_callbacks and pending is not None else []
        families += _scheduler_families(scheduled) if scheduled is not None else ()
        families += gauges.traces(exported) if exported is not None else ()
        return families

    def _on_each(self, part: str, nodes: Iterable[str], known: Mapping[str, NamedActor]) -> dict[str, NamedActor]:
        return {node: known.get(node) or NamedActor(part, self._namespace, node) for node in nodes}


def _scheduler_families(counts: SchedulerCounts) -> Iterator[MetricFamily]:
    if counts.callbacks is not None:
        yield gauges.callback_attempts(counts.callbacks)
    if counts.alarms is not None:
        yield from gauges.hatchet(counts.alarms)


def _names(nodes: Sequence[Node]) -> dict[str, str]:
    """Return what each node is called: as its machine, if that has one Ray node only."""
    machines = Counter(node.host for node in nodes)
    return {
        node.node_id: node.host if machines[node.host] == 1 else f"{node.host}-{node.node_id[:8]}" for node in nodes
    }


async def _first(parts: Sequence[NamedActor], method: str, *arguments: object) -> Any:
    """Return the answer of the first that gives one, None if nobody does."""
    for part in parts:
        answer = await _ask(part, method, *arguments)
        if answer is not None:
            return answer
    return None


async def _ask(part: NamedActor | None, method: str, *arguments: object) -> Any:
    if part is None:
        return None
    try:
        async with asyncio.timeout(_PART_SECONDS):
            return await part.ask(method, *arguments)
    except (OwlClawError, TimeoutError):
        return None
