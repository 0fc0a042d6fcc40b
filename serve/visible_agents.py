"""The agents that a principal may see, in pages: of one that is narrowed to some agents no others are read.

A pattern is one agent or a beginning, so the agents of each stand together in the order of ids: a page costs a read for each pattern
at most, however many agents the tenant has.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from owlclaw_ray.domain.principal import ALL, Principal
from owlclaw_ray.runtime.api import AgentView, Runtime


class VisibleAgents(Struct, frozen=True):
    """A page of agents."""

    agents: Sequence[AgentView]
    next_after: str | None = None
    """The last one of the page, behind which the next page begins; None if there is none."""


async def visible_agents(
    runtime: Runtime,
    principal: Principal,
    limit: int,
    after: str = "",
    *,
    prefix: str = "",
    busy: bool = False,
    with_open_breaker: bool = False,
) -> VisibleAgents:
    """Return the first `limit` agents that the principal may see, in the order of Runtime.agents, which says what the others mean."""
    found = list[AgentView]()
    for pattern in _disjoint(principal.patterns):
        begins = pattern.removesuffix(ALL)
        if not (begins.startswith(prefix) or (pattern != begins and prefix.startswith(begins))):
            continue
        some = await runtime.agents(
            principal.tenant,
            after,
            limit + 1 - len(found) if pattern != begins else 1,
            prefix=max(begins, prefix, key=len),
            busy=busy,
            with_open_breaker=with_open_breaker,
        )
        found += [each for each in some if pattern != begins or each.agent.agent_id == begins]
        if len(found) > limit:
            return VisibleAgents(found[:limit], found[limit - 1].agent.agent_id)
    return VisibleAgents(found)


def _disjoint(patterns: Sequence[str]) -> Sequence[str]:
    """Return patterns for the same agents of which no two match one, in the order of the ids that they match."""
    wanted = {each.removeprefix("agent:") for each in patterns} or {ALL}
    within = {
        each
        for each in wanted
        if any(other != each and other.endswith(ALL) and each.startswith(other[:-1]) for other in wanted)
    }
    return sorted(wanted - within, key=lambda each: each.removesuffix(ALL))
