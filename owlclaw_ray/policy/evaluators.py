"""The evaluators that judge by the definition, the run's lineage and the time of day. All of them are enforced before each call too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from hashlib import sha256

from typing_extensions import override

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef
from owlclaw_ray.domain.agent_tools import ORCHESTRATING, OUTLASTING, WORKING
from owlclaw_ray.domain.governance import ROLE_TAG, Governance, ToolLimit, matches
from owlclaw_ray.domain.hours import Hours
from owlclaw_ray.domain.lineage import ChildRole
from owlclaw_ray.domain.permission import Approver
from owlclaw_ray.domain.tool import Permission, ToolDefinition
from owlclaw_ray.policy.visibility import EnforcedEvaluator, VisibilityFacts


class StaticEvaluator(EnforcedEvaluator):
    """Hides the same tools in every run.

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

    @override
    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        return self._hidden

    @override
    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        return self._hidden.get(tool, "")


def _turned_off(definition: AgentDefinition, tool: ToolDefinition) -> str:
    limit = definition.governance.limit_of(tool.name)
    if limit is not None and not limit.enabled:
        return "it is turned off in agent.yaml"
    return definition.tools.refusal(tool.name)


def _for_other_roles(definition: AgentDefinition, tool: ToolDefinition) -> str:
    roles = definition.governance.roles
    wanted = {tag.removeprefix(ROLE_TAG) for tag in tool.tags if tag.startswith(ROLE_TAG)}
    if not wanted or wanted & roles:
        return ""
    has = f"the agent is {', '.join(sorted(roles))}" if roles else "the agent has no role"
    return f"it is for {', '.join(sorted(wanted))}, and {has}"


def _unconfirmed(definition: AgentDefinition, tool: ToolDefinition) -> str:
    """Calls of the tool need a person's approval, the definition does not confirm the tool, and no approver is configured."""
    if definition.permissions.approver is not Approver.NOBODY:
        return ""
    why = definition.governance.unconfirmed(tool)
    return f"{why}, and it is not confirmed (governance.confirmed in agent.yaml)" if why else ""


STATIC_EVALUATORS = {"choice": _turned_off, "role": _for_other_roles, "risk": _unconfirmed}
"""The reasons of static evaluators, by the evaluator's name."""


class SubAgentEvaluator(EnforcedEvaluator):
    """Hides tools from agents that other agents started (T22): the blacklist of their roles, and what they were not granted."""

    name = "started"

    def __init__(self, tools: Iterable[ToolDefinition]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @override
    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        return () if facts.lineage is None else self._tools

    @override
    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        lineage = facts.lineage
        if lineage is None or tool not in self._tools:
            return ""
        if tool in ORCHESTRATING:
            return "agents that were started by others neither start agents nor make plans and tasks"
        if tool in OUTLASTING:
            return "agents that were started by others leave no memories and no schedules"
        if tool in WORKING:
            return ""
        if not lineage.grants_tool(tool):
            return f"{lineage.parent} did not grant it"
        writes = self._tools[tool].permission is Permission.WRITE
        if writes and lineage.role is ChildRole.WORKER and not lineage.named_tools:
            return f"workers only read unless they are given tools by name, and {lineage.parent} gave none"
        return ""


class HoursEvaluator(EnforcedEvaluator):
    """Hides tools outside all of the hours that the definition names for them, and outside any of their skills'."""

    name = "hours"

    def __init__(self, governance: Governance, tools: Iterable[ToolDefinition]) -> None:
        self._hours: dict[str, tuple[tuple[Hours, ...], ...]] = {}
        for tool in tools:
            named = tuple(each for each in governance.hours if matches(tool.name, each.tools))
            skills = tuple((hours,) for each in governance.skills if each.is_about(tool.name) for hours in each.hours)
            if named or skills:
                self._hours[tool.name] = (named, *skills) if named else skills

    @override
    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        return self._hours

    @override
    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        for group in self._hours.get(tool, ()):
            if not any(each.contains(facts.now) for each in group):
                return f"it is outside {' and '.join(map(str, group))}"
        return ""


def version_for(agent: AgentRef, limit: ToolLimit) -> str:
    """Return which version of the tool the agent sees (T8).

    It depends on the agent's id alone: an agent sees the same version in every run, and a hundred agents split as the shares say.
    """
    digest = sha256(f"{limit.tools}\n{agent.tenant}\n{agent.agent_id}".encode()).digest()
    place = int.from_bytes(digest[:8]) % sum(share for _, share in limit.versions)
    for version, share in limit.versions:
        place -= share
        if place < 0:
            return version
    raise AssertionError(limit)


class VersionEvaluator(EnforcedEvaluator):
    """Hides all versions of a tool but one. Versions of `shop.pay` are the tools named `shop.pay.v1`, `shop.pay.v2` and so on."""

    name = "version"

    def __init__(self, governance: Governance, tools: Iterable[ToolDefinition]) -> None:
        names = [tool.name for tool in tools]
        limits = [limit for limit in governance.tool_limits if limit.versions]
        self._families = {limit: {name for name in names if name.startswith(f"{limit.tools}.")} for limit in limits}
        self._judged = frozenset(name for family in self._families.values() for name in family)

    @override
    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        return self._judged

    @override
    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        for limit, family in self._families.items():
            version = version_for(facts.agent, limit) if tool in family else ""
            if version and tool != f"{limit.tools}.{version}":
                return f"the agent's version of {limit.tools} is {version}"
        return ""
