"""Tools that agents which were started by others do not have (T22): the blacklist of their roles, and what they were granted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from owlclaw_ray.domain.agent_tools import ORCHESTRATING, OUTLASTING, WORKING
from owlclaw_ray.domain.lineage import ChildRole, Lineage
from owlclaw_ray.domain.tool import Permission, ToolDefinition
from owlclaw_ray.policy.evaluators import VisibilityFacts


class SubAgentEvaluator:
    """Hides tools from agents that other agents started. Implements EnforcedEvaluator."""

    name = "started"

    def __init__(self, tools: Sequence[ToolDefinition]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        """See VisibilityEvaluator.judged."""
        return () if facts.lineage is None else self._tools

    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        """See VisibilityEvaluator.hide."""
        lineage = facts.lineage
        if lineage is None:
            return {}
        reasons = {name: _reason(tool, lineage) for name, tool in self._tools.items()}
        return {tool: reason for tool, reason in reasons.items() if reason}

    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        """See EnforcedEvaluator.refusal."""
        if facts.lineage is None or tool not in self._tools:
            return ""
        return _reason(self._tools[tool], facts.lineage)


def _reason(tool: ToolDefinition, lineage: Lineage) -> str:
    if tool.name in ORCHESTRATING:
        return "agents that were started by others neither start agents nor make plans and tasks"
    if tool.name in OUTLASTING:
        return "agents that were started by others leave no memories and no schedules"
    if tool.name in WORKING:
        return ""
    if not lineage.grants_tool(tool.name):
        return f"{lineage.parent} did not grant it"
    writes = tool.permission is Permission.WRITE
    if writes and lineage.role is ChildRole.WORKER and not lineage.named_tools:
        return f"workers only read unless they are given tools by name, and {lineage.parent} gave none"
    return ""
