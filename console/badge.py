"""The badge of every page: how many calls wait for a person."""

from __future__ import annotations

from functools import partial

from console.live_parts import SharedAnswers
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import Runtime

_MOST = 100
_FRESH_SECONDS = 2.0


class ApprovalBadge:
    """Counts once for all pages of a tenant: what it says may be two seconds old."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime = runtime
        self._counts: SharedAnswers[TenantId, int] = SharedAnswers(clock)

    async def text(self, principal: Principal) -> str:
        """Return what the badge says to a principal: nothing if no call waits, or if it may not know."""
        if not principal.may("approvals:read") or principal.patterns:
            return ""
        count = partial(self._runtime.pending_approvals, principal.tenant, _MOST)
        found = await self._counts.answer(principal.tenant, _FRESH_SECONDS, count)
        return f"{_MOST - 1}+" if found >= _MOST else str(found or "")

    def changed(self, tenant: TenantId) -> None:
        """Have the next page of the tenant count anew."""
        self._counts.forget(tenant)
