"""Versions of a tool, of which each agent sees one (T8).

The versions of `shop.pay` are the tools whose names go on after it: `shop.pay.v1`, `shop.pay.v2`. Which one an agent sees depends
on its id alone, so it sees the same one in every run, and a hundred agents split as the shares say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.governance import Governance, ToolLimit
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.policy.evaluators import VisibilityFacts


def version_for(agent: AgentRef, limit: ToolLimit) -> str:
    """Return which version of the tool the agent sees."""
    digest = sha256(f"{limit.tools}\n{agent.tenant}\n{agent.agent_id}".encode()).digest()
    place = int.from_bytes(digest[:8]) % sum(share for _, share in limit.versions)
    for version, share in limit.versions:
        place -= share
        if place < 0:
            return version
    raise AssertionError(limit)


class VersionEvaluator:
    """Hides the versions of a tool that the agent is not to see. Implements EnforcedEvaluator."""

    name = "version"

    def __init__(self, governance: Governance, tools: Iterable[ToolDefinition]) -> None:
        names = [tool.name for tool in tools]
        limits = [limit for limit in governance.tool_limits if limit.versions]
        self._families = {limit: [name for name in names if name.startswith(f"{limit.tools}.")] for limit in limits}
        self._judged = frozenset(name for family in self._families.values() for name in family)

    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        """See VisibilityEvaluator.judged."""
        del facts
        return self._judged

    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        """See VisibilityEvaluator.hide."""
        chosen = {limit: version_for(facts.agent, limit) for limit in self._families}
        return {
            name: _other(limit, chosen[limit])
            for limit, family in self._families.items()
            for name in family
            if name != f"{limit.tools}.{chosen[limit]}"
        }

    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        """See EnforcedEvaluator.refusal."""
        if tool not in self._judged:
            return ""
        chosen = {limit: version_for(facts.agent, limit) for limit, family in self._families.items() if tool in family}
        wrong = (limit for limit, version in chosen.items() if tool != f"{limit.tools}.{version}")
        return next((_other(limit, chosen[limit]) for limit in wrong), "")


def _other(limit: ToolLimit, version: str) -> str:
    return f"the agent's version of {limit.tools} is {version}"
