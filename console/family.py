"""Runs that belong together: one that nobody asked for, and those that it and its like had other agents make, as a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct, field

from console.whole_runs import WholeRuns
from owlclaw_ray.domain.lineage import MAX_DEPTH
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.domain.run import Run
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.runtime.api import Runtime

_MOST = 100
"""How many runs are in one tree."""


class FamilyRun(Struct):
    """A run of a family."""

    run_id: RunId
    run: Run | None
    """None for one that is gone, or is none of the principal's business."""
    children: list[FamilyRun] = field(default_factory=list)

    @property
    def cost(self) -> float:
        """What it and its children cost, as far as they are over: US dollars."""
        own = self.run.result.usage.cost if self.run is not None and self.run.result is not None else 0.0
        return own + sum(each.cost for each in self.children)

    @property
    def size(self) -> int:
        """How many runs there are, with it."""
        return 1 + sum(each.size for each in self.children)


async def family(runtime: Runtime, whole: WholeRuns, principal: Principal, run: Run) -> FamilyRun | None:
    """Return the tree that a run belongs to, None if it is alone."""
    lineage, started = run.trigger.lineage, await whole.started(run.agent.tenant, run.run_id)
    if lineage is None and not started:
        return None
    tree = _Tree(runtime, whole, principal, run, started)
    found = await tree.of(run.run_id if lineage is None else lineage.root_run, 0)
    if not _has(found, run.run_id):  # the root is gone, or not for the principal, or started too many to show
        found.children.append(FamilyRun(run.run_id, run))
    return found


def _has(tree: FamilyRun, run_id: RunId) -> bool:
    return tree.run_id == run_id or any(_has(each, run_id) for each in tree.children)


class _Tree:
    def __init__(
        self, runtime: Runtime, whole: WholeRuns, principal: Principal, run: Run, started: Sequence[RunId]
    ) -> None:
        self._runtime, self._whole, self._principal = runtime, whole, principal
        self._tenant: TenantId = run.agent.tenant
        self._known, self._started = {run.run_id: run}, {run.run_id: started}
        self._left = _MOST

    async def of(self, run_id: RunId, depth: int) -> FamilyRun:
        self._left -= 1
        run = self._known.get(run_id) or await self._run(run_id)
        if run is None or depth >= MAX_DEPTH:
            return FamilyRun(run_id, run)
        started = self._started.get(run_id)
        if started is None:
            started = await self._whole.started(self._tenant, run_id)
        children = await asyncio.gather(*(self.of(each, depth + 1) for each in started[: max(0, self._left)]))
        return FamilyRun(run_id, run, children)

    async def _run(self, run_id: RunId) -> Run | None:
        try:
            run = await self._runtime.run(self._tenant, run_id)
        except NotFoundError:
            return None
        return run if self._principal.sees(run.agent) else None
