"""The numbers of the whole cluster, asked of its parts when somebody reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from actors.fleet_nodes import node_names, ray_nodes
from actors.plan import RuntimePlan
from actors.remote import DIRECTORY, EXPORTER, GATEWAY, KEEPER, ROOT, SCHEDULER, NamedActor, PartName, in_time
from actors.scheduler import SchedulerCounts
from owlclaw_ray.access.quota_use import TenantQuotaUse, quota_uses
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.queries import ActiveRunCounts, PendingCallbackCount, Query
from owlclaw_ray.telemetry.metrics import gauges
from owlclaw_ray.telemetry.metrics.api import MetricFamily
from owlclaw_ray.telemetry.metrics.exposition import labelled

if TYPE_CHECKING:
    from actors.keeper import KeeperActor
    from actors.model_gateway import ModelGatewayActor
    from actors.root import RootActor

_PART_SECONDS = 3.0

A = TypeVar("A")
R = TypeVar("R")


class FleetMetrics:
    """Implements Metrics. What is of one node has the label `node`; the rest is the cluster's."""

    def __init__(self, plan: RuntimePlan, clock: Clock) -> None:
        self._namespace, self._clock = plan.namespace, clock
        self._keepers: dict[str, NamedActor[KeeperActor]] = {}
        self._gateways: dict[str, NamedActor[ModelGatewayActor]] = {}
        self._roots: dict[str, NamedActor[RootActor]] = {}
        self._directory = NamedActor(DIRECTORY, plan.namespace)
        self._scheduler = NamedActor(SCHEDULER, plan.namespace)
        self._has_callbacks = plan.callbacks is not None
        self._exporter = None if plan.tracing is None else NamedActor(EXPORTER, plan.namespace)

    async def families(self) -> Sequence[MetricFamily]:
        """See Metrics.families."""
        present = [node for node in await asyncio.to_thread(ray_nodes) if node.alive]
        nodes = node_names(present)
        self._roots = self._on_each(ROOT, nodes, self._roots)
        self._keepers = self._on_each(KEEPER, nodes, self._keepers)
        self._gateways = self._on_each(GATEWAY, nodes, self._gateways)
        keepers = list(self._keepers.values())
        (counted, slots, loads), (active, pending), quotas, (hosts, lease), scheduled, exported = await asyncio.gather(
            asyncio.gather(
                asyncio.gather(*(_ask(keeper.call.metrics) for keeper in keepers)),
                asyncio.gather(*(_ask(gateway.call.slots) for gateway in self._gateways.values())),
                asyncio.gather(*(_ask(root.call.load) for root in self._roots.values())),
            ),
            asyncio.gather(_first(keepers, ActiveRunCounts()), _first(keepers, PendingCallbackCount())),
            self._quotas(keepers),
            asyncio.gather(_ask(self._directory.call.hosts), _ask(self._directory.call.lease)),
            _ask(self._scheduler.call.counts),
            _ask(None if self._exporter is None else self._exporter.call.counts),
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
        for node, found in zip(nodes, slots, strict=True):
            families += labelled(gauges.slots(found or ()), "node", nodes[node])
        for seen, load in zip(present, loads, strict=True):
            told = [gauges.node_up(load is not None), gauges.tool_slots(seen.slots)]
            told += gauges.node_load(load) if load is not None else ()
            families += labelled(told, "node", nodes[seen.node_id])
        families += [gauges.lease_held(lease.held)] if lease is not None else []
        families += [gauges.active_runs(active)] if active is not None else []
        families += gauges.quotas(quotas) if quotas is not None else ()
        families += gauges.pool(hosts) if hosts is not None else ()
        families += [gauges.callbacks_pending(pending)] if self._has_callbacks and pending is not None else []
        families += _scheduler_families(scheduled) if scheduled is not None else ()
        families += gauges.traces(exported) if exported is not None else ()
        return families

    async def _quotas(self, keepers: Sequence[NamedActor[KeeperActor]]) -> Sequence[TenantQuotaUse] | None:
        try:
            return await quota_uses(_FirstOf(keepers), self._clock.now())
        except StoreUnavailableError:
            return None

    def _on_each(
        self, part: PartName[A], nodes: Iterable[str], known: Mapping[str, NamedActor[A]]
    ) -> dict[str, NamedActor[A]]:
        return {node: known.get(node) or NamedActor(part, self._namespace, node) for node in nodes}


def _scheduler_families(counts: SchedulerCounts) -> Iterator[MetricFamily]:
    if counts.callbacks is not None:
        yield gauges.callback_attempts(counts.callbacks)
    if counts.alarms is not None:
        yield from gauges.hatchet(counts.alarms)


class _FirstOf:
    """Implements QueryStore: asks the Keepers until one answers."""

    def __init__(self, keepers: Sequence[NamedActor[KeeperActor]]) -> None:
        self._keepers = keepers

    async def read(self, query: Query[R]) -> R:
        answer = await _first(self._keepers, query)
        if answer is None:
            raise StoreUnavailableError("no Keeper answers")
        return answer


async def _first(keepers: Sequence[NamedActor[KeeperActor]], query: Query[R]) -> R | None:
    """Return the answer of the first that gives one."""
    for keeper in keepers:
        answer = await _ask(partial(keeper.call.read, query))
        if answer is not None:
            return answer
    return None


async def _ask(question: Callable[[], Awaitable[R]] | None) -> R | None:
    """Return the answer of a part; None if it gives none in time, or there is no such part."""
    return None if question is None else await in_time(question(), _PART_SECONDS)
