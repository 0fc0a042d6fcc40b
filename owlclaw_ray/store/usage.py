"""Queries of what runs and tool calls came to, and of how long queues were."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.queue_length import QueueMinute
from owlclaw_ray.domain.usage import Grain, RunBucket, ToolBucket, UsageBy
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.queries import Query


class RunUsage(Query[Sequence[RunBucket]], frozen=True):
    """Runs of a tenant that ended from `since` on and before `until`, as far as any did: by time, and at one time what cost most first.

    What is counted by agents, or of some of them, is known by days; all else by hours, or with the grain MINUTE by minutes, for a
    shorter while. `since` and `until` should be the beginnings of such times: one that begins before `since` does not count.
    """

    tenant: TenantId
    since: datetime
    until: datetime
    grain: Grain = Grain.TOTAL
    by: UsageBy = UsageBy.NONE
    """Not TOOL."""
    agents: tuple[AgentRef, ...] = ()
    """Only of these; none: of all."""
    limit: int = 1_000


class ToolUsage(Query[Sequence[ToolBucket]], frozen=True):
    """Calls of a tenant's tools that ended from `since` on and before `until`: by time, and at one time what took most time first.

    They are known by hours.
    """

    tenant: TenantId
    since: datetime
    until: datetime
    grain: Grain = Grain.TOTAL
    limit: int = 1_000


class QueueMinutes(Query[Sequence[QueueMinute]], frozen=True):
    """How long queues were in each minute that begins at `since` or later and of which something was noted, the earliest first."""

    since: datetime
