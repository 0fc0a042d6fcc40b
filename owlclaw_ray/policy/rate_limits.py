"""Rate limits and cool-downs of an agent's tools (T8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from typing_extensions import override

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.governance import Governance, ToolLimit, ToolRate
from owlclaw_ray.domain.tool import ToolDefinition, ToolError
from owlclaw_ray.policy.visibility import VisibilityEvaluator, VisibilityFacts


def waiting_time(limit: ToolLimit, pace: ToolRate | None, now: float) -> float:
    """Return after how many seconds the next call may begin; 0 for at once."""
    if pace is None:
        return 0.0
    wait = pace.at + limit.cooldown - now
    if limit.calls is not None:
        missing = 1.0 - _tokens(limit, pace, now)
        wait = max(wait, missing * limit.seconds / limit.calls)
    return max(0.0, wait)


def _tokens(limit: ToolLimit, pace: ToolRate | None, now: float) -> float:
    """Return how many calls the bucket holds: it fills up to `calls` in `seconds`."""
    full = float(limit.calls or 0)
    if pace is None:
        return full
    return min(full, pace.tokens + max(0.0, now - pace.at) * full / limit.seconds)


class RateLimiter:
    """The paces of one agent during one run."""

    def __init__(self, governance: Governance, known: Iterable[ToolRate]) -> None:
        self._governance = governance
        self._known = {each.tool: each for each in known}

    def admit(self, tool: str, now: float) -> ToolError | None:
        """Return why a call must wait, or None."""
        limit = self._governance.limit_of(tool)
        wait = waiting_time(limit, self._known.get(tool), now) if limit is not None and limit.paced else 0.0
        if limit is None or wait <= 0:
            return None
        message = f"{_spoken(limit, tool)}; the next call may begin in {wait:.1f} s"
        return ToolError("rate_limited", message, retryable=True, details={"retry_after": round(wait, 3)})

    def note(self, tool: str, now: float) -> None:
        """Learn that a call begins now."""
        limit = self._governance.limit_of(tool)
        if limit is not None and limit.paced:
            pace = self._known.get(tool)
            now = now if pace is None else max(now, pace.at)
            self._known[tool] = ToolRate(tool, max(0.0, _tokens(limit, pace, now) - 1.0), now)

    def kept(self, now: float) -> tuple[ToolRate, ...]:
        """Return those that matter still, by name."""
        kept = []
        for tool, pace in sorted(self._known.items()):
            limit = self._governance.limit_of(tool)
            if limit is not None and limit.paced:
                full = _tokens(limit, pace, now) >= (limit.calls or 0)
                if not full or now < pace.at + limit.cooldown:
                    kept.append(pace)
        return tuple(kept)


class RateLimitEvaluator(VisibilityEvaluator):
    """Hides tools that may not be called yet."""

    name = "rate"

    def __init__(self, governance: Governance, tools: Iterable[ToolDefinition]) -> None:
        limits = {tool.name: governance.limit_of(tool.name) for tool in tools}
        self._limits = {tool: limit for tool, limit in limits.items() if limit is not None and limit.paced}

    @override
    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        return [each.tool for each in facts.state.paces if each.tool in self._limits]

    @override
    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        now = facts.now.timestamp()
        waits = {
            each.tool: waiting_time(self._limits[each.tool], each, now)
            for each in facts.state.paces
            if each.tool in self._limits
        }
        return {
            tool: f"{_spoken(self._limits[tool], tool)}; the next call may begin in {wait:.1f} s"
            for tool, wait in waits.items()
            if wait > 0
        }


def _spoken(limit: ToolLimit, tool: str) -> str:
    calls = "" if limit.calls is None else f"{counted(limit.calls, 'call')} of {tool} in {limit.seconds:g} s"
    pause = f"{limit.cooldown:g} s between calls of {tool}" if limit.cooldown else ""
    return f"the limit is {' and '.join(part for part in (calls, pause) if part)}"
