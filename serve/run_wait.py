"""Waiting for the outcome of a run."""

from __future__ import annotations

from owlclaw_ray.domain.run import Run
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import Runtime

_BEHIND_ALL = 2**62
"""A seq that no entry has: who follows from there hears only of the run's end."""


async def outcome(runtime: Runtime, clock: Clock, tenant: TenantId, run_id: RunId, seconds: float) -> Run:
    """Return the run once it is final, or as it stands after `seconds`; raises NotFoundError."""
    deadline = clock.monotonic() + seconds
    async with runtime.follow(tenant, run_id, _BEHIND_ALL) as follower:
        over = False
        while not over and (left := deadline - clock.monotonic()) > 0:
            over = (await follower.next(left)).over
    return await runtime.run(tenant, run_id)
