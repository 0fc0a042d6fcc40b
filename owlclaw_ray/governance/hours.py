"""Tools that may be used at some times of some days only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from owlclaw_ray.domain.governance import Governance, Hours, matches
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.ports.visibility import VisibilityFacts


def within(hours: Hours, now: datetime) -> bool:
    """Return whether the clocks of the zone show a time inside these hours.

    It is clocks that count: an hour that comes twice when summer time ends is inside twice, one that is left out in spring never.
    Hours over midnight belong to the day on which they begin.
    """
    from zoneinfo import ZoneInfo

    local = now.astimezone(ZoneInfo(hours.zone))
    minute, today = local.hour * 60 + local.minute, local.weekday()
    if hours.start < hours.end:
        return today in hours.days and hours.start <= minute < hours.end
    yesterday = (today - 1) % 7
    return (minute >= hours.start and today in hours.days) or (minute < hours.end and yesterday in hours.days)


class HoursEvaluator:
    """Hides tools outside all of their hours. Implements VisibilityEvaluator."""

    name = "hours"

    def __init__(self, governance: Governance, tools: Iterable[ToolDefinition]) -> None:
        by_tool = {tool.name: [each for each in governance.hours if matches(tool.name, each.tools)] for tool in tools}
        self._hours = {tool: hours for tool, hours in by_tool.items() if hours}

    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        """See VisibilityEvaluator.judged."""
        del facts
        return self._hours

    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        """See VisibilityEvaluator.hide."""
        return {
            tool: f"it is outside {' and '.join(map(str, hours))}"
            for tool, hours in self._hours.items()
            if not any(within(each, facts.now) for each in hours)
        }
