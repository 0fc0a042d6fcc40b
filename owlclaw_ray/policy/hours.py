"""Tools that may be used at some times of some days only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from owlclaw_ray.domain.governance import Governance, matches
from owlclaw_ray.domain.hours import Hours
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.policy.evaluators import VisibilityFacts


class HoursEvaluator:
    """Hides tools outside all of the hours that the definition names for them, and outside any of their skills'. Implements
    EnforcedEvaluator.
    """

    name = "hours"

    def __init__(self, governance: Governance, tools: Iterable[ToolDefinition]) -> None:
        self._hours: dict[str, tuple[tuple[Hours, ...], ...]] = {}
        for tool in tools:
            named = tuple(each for each in governance.hours if matches(tool.name, each.tools))
            skills = tuple((hours,) for each in governance.skills if each.is_about(tool.name) for hours in each.hours)
            if named or skills:
                self._hours[tool.name] = (named, *skills) if named else skills

    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        """See VisibilityEvaluator.judged."""
        del facts
        return self._hours

    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        """See VisibilityEvaluator.hide."""
        hidden = {tool: _outside(needed, facts.now) for tool, needed in self._hours.items()}
        return {tool: why for tool, why in hidden.items() if why}

    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        """See EnforcedEvaluator.refusal."""
        return _outside(self._hours.get(tool, ()), facts.now)


def _outside(needed: Iterable[Collection[Hours]], now: datetime) -> str:
    """Return which group of hours has none that it is within now; empty if there is no such group."""
    for group in needed:
        if not any(each.contains(now) for each in group):
            return f"it is outside {' and '.join(map(str, group))}"
    return ""
