"""Runs that belong together: one that nobody asked for, and those that it and its like had other agents make, as a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct, field

from console.whole_runs import WholeRuns
from owlclaw_ray.domain.lineage import MAX_DEPTH
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.domain.run import Run, Usage
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
    used: Usage = Usage()
    """What it used so far."""
    children: list[FamilyRun] = field(default_factory=list)
    left: int = 0
    """How many runs that it started are not among its children: the tree would have too many."""

    @property
    def cost(self) -> float:
        """What it and its children have cost, US dollars: at least, if some are not known."""
        return self.used.cost + sum(each.cost for each in self.children)

    @property
    def size(self) -> int:
        """How many runs there are, with it: at least, if some are not known."""
        return 1 + self.left + sum(each.size for each in self.children)

    @property
    def known(self) -> bool:
        """Whether all runs are known."""
        return self.run is not None and not self.left and all(each.known for each in self.children)

    @property
    def version(self) -> str:
        """Another text for a tree that says something else: of each run how it stands and what it has cost, and how many are not shown."""
        status = self.run.status.value if self.run else "gone"
        return f"{status} {self.used.cost} {self.left} ({','.join(each.version for each in self.children)})"

    @property
    def over(self) -> bool:
        """Whether all runs that are known are over."""
        return (self.run is None or self.run.status.final) and all(each.over for each in self.children)


async def family(runtime: Runtime, whole: WholeRuns, principal: Principal, run: Run) -> FamilyRun | None:
    """Return the tree that a run belongs to, None if it is alone."""
    lineage, started = run.trigger.lineage, await whole.started(run.agent.tenant, run.run_id)
    if lineage is None and not started:
        return None
    tree = _Tree(runtime, whole, principal, run, started)
    found = await tree.of(run.run_id if lineage is None else lineage.root_run, 0)
    if not _has(found, run.run_id):  # the root is gone, or not for the principal, or started too many to show
        found.left = max(0, found.left - 1)
        found.children.append(FamilyRun(run.run_id, run, await whole.usage(run), left=len(started)))
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
        self._left = _MOST - 1

    async def of(self, run_id: RunId, depth: int) -> FamilyRun:
        run = self._known.get(run_id) or await self._run(run_id)
        if run is None:
            return FamilyRun(run_id, run)
        used = await self._whole.usage(run)
        started = self._started.get(run_id)
        if started is None:
            started = await self._whole.started(self._tenant, run_id)
        shown = started[: self._left] if depth < MAX_DEPTH else ()
        self._left -= len(shown)
        children = await asyncio.gather(*(self.of(each, depth + 1) for each in shown))
        return FamilyRun(run_id, run, used, children, len(started) - len(shown))

    async def _run(self, run_id: RunId) -> Run | None:
        try:
            run = await self._runtime.run(self._tenant, run_id)
        except NotFoundError:
            return None
        return run if self._principal.sees(run.agent) else None
