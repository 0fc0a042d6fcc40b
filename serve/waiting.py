"""Waiting for the outcome of a run."""

from __future__ import annotations

from owlclaw_ray.domain.run import Run
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.runtime import Runtime


async def outcome(runtime: Runtime, clock: Clock, tenant: TenantId, run_id: RunId, seconds: float) -> Run:
    """Return the run once it is final, or as it stands after `seconds`; raises NotFoundError."""
    deadline, after = clock.monotonic() + seconds, 0
    while True:
        remaining = deadline - clock.monotonic()
        watched = await runtime.watch(tenant, run_id, after, max(remaining, 0.0))
        if watched.status.final or remaining <= 0:
            return await runtime.run(tenant, run_id)
        if watched.entries:
            after = watched.entries[-1].seq
