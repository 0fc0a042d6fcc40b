"""The badge of every page: how many calls wait for a person."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from console.live_parts import SharedAnswers
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import Runtime

_MOST = 99
"""What it counts to."""
_LOOKED_AT = 1_000
"""Calls of a tenant, those that were asked for first."""
_FRESH_SECONDS = 2.0


class ApprovalBadge:
    """Counts once for all pages of a tenant, by agent, what each principal sees its own of: what it says may be two seconds old."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime = runtime
        self._counts: SharedAnswers[TenantId, Mapping[AgentRef, int]] = SharedAnswers(clock)

    async def text(self, principal: Principal) -> str:
        """Return what the badge says to a principal: how many calls of its agents wait, with a + if more may; nothing if none does,
        or if it may not know.
        """
        if not principal.may("approvals:read"):
            return ""
        counts = await self._counted(principal.tenant)
        found = sum(number for agent, number in counts.items() if principal.sees(agent))
        more = found > _MOST or sum(counts.values()) >= _LOOKED_AT
        return f"{min(found, _MOST)}+" if more else str(found or "")

    async def by_agent(self, principal: Principal) -> Mapping[str, int]:
        """Return how many calls of each agent of the principal wait, by its name, as far as they are counted."""
        counts = await self._counted(principal.tenant)
        return dict(sorted((agent.agent_id, number) for agent, number in counts.items() if principal.sees(agent)))

    async def _counted(self, tenant: TenantId) -> Mapping[AgentRef, int]:
        count = partial(self._runtime.pending_approvals, tenant, _LOOKED_AT)
        return await self._counts.answer(tenant, _FRESH_SECONDS, count)

    def changed(self, tenant: TenantId) -> None:
        """Have the next page of the tenant count anew."""
        self._counts.forget(tenant)
