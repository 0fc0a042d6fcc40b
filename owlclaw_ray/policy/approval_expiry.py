"""The end of approvals that were not decided in time: a denial, so that their runs go on (T7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ApprovalSettled, ExpireApproval
from owlclaw_ray.store.queries import ExpiredApprovals


class ApprovalExpiry:
    """Looks for approvals whose time is over. Any number may do so at once: each is ended by one of them."""

    def __init__(self, *, store: Store, wake: Callable[[Sequence[AgentRef]], Awaitable[object]], clock: Clock) -> None:
        self._store, self._wake, self._clock = store, wake, clock

    async def tick(self) -> int:
        """End every approval whose time is over; return how many that were."""
        now = self._clock.now()
        over = [each.request for each in await self._store.read(ExpiredApprovals(now))]
        if not over:
            return 0
        commands = [ExpireApproval(each.agent.tenant, each.approval_id, now) for each in over]
        outcomes = await self._store.apply(commands)
        settled = [each for each in outcomes if isinstance(each, ApprovalSettled)]
        resuming = [each.approval.request.agent for each in settled if each.resumes]
        if resuming:
            await self._wake(resuming)
        return len(settled)
