"""Tools that an agent's definition, its roles, or their own risk keep from it, whatever the time and whatever it did."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.governance import ROLE_TAG
from owlclaw_ray.domain.permission import Approver
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.policy.evaluators import VisibilityFacts


class StaticEvaluator:
    """Hides the same tools in every run. Implements EnforcedEvaluator.

    `reason` says why a definition does not have a tool; the empty text leaves it visible.
    """

    def __init__(
        self,
        name: str,
        reason: Callable[[AgentDefinition, ToolDefinition], str],
        definition: AgentDefinition,
        tools: Iterable[ToolDefinition],
    ) -> None:
        self.name = name
        reasons = {tool.name: reason(definition, tool) for tool in tools}
        self._hidden = {tool: why for tool, why in reasons.items() if why}

    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        """See VisibilityEvaluator.judged."""
        del facts
        return self._hidden

    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        """See VisibilityEvaluator.hide."""
        del facts
        return self._hidden

    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        """See EnforcedEvaluator.refusal."""
        del facts
        return self._hidden.get(tool, "")


def turned_off(definition: AgentDefinition, tool: ToolDefinition) -> str:
    """Say so if the definition turned the tool off, or does not choose it."""
    limit = definition.governance.limit_of(tool.name)
    if limit is not None and not limit.enabled:
        return "it is turned off in agent.yaml"
    return definition.tools.refusal(tool.name)


def for_others(definition: AgentDefinition, tool: ToolDefinition) -> str:
    """Say so if the tool is for roles that the definition has not."""
    roles = definition.governance.roles
    wanted = {tag.removeprefix(ROLE_TAG) for tag in tool.tags if tag.startswith(ROLE_TAG)}
    if not wanted or wanted & roles:
        return ""
    has = f"the agent is {', '.join(sorted(roles))}" if roles else "the agent has no role"
    return f"it is for {', '.join(sorted(wanted))}, and {has}"


def unconfirmed(definition: AgentDefinition, tool: ToolDefinition) -> str:
    """Say so if a person has to confirm the tool's calls, nobody confirmed the tool, and nobody can be asked."""
    if definition.permissions.approver is not Approver.NOBODY:
        return ""
    why = definition.governance.unconfirmed(tool)
    return f"{why}, and nobody confirmed it (governance.confirmed in agent.yaml)" if why else ""


STATIC_EVALUATORS = {"choice": turned_off, "role": for_others, "risk": unconfirmed}
"""The reasons, by the name of their evaluator."""
