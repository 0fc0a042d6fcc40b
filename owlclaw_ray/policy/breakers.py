"""Circuit breakers: a tool that keeps failing is not called for a while, then tried with one call (G3).

Each agent has a breaker for each of its capabilities. What is known of it is what the agent's saved state and the journal of
its present run say, so that an activation which takes a run over knows the same as the one before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from msgspec.structs import replace
from typing_extensions import override

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.governance import Breaker, BreakerRule, CallOutcome
from owlclaw_ray.domain.tool import ToolError
from owlclaw_ray.ids import ToolCallId
from owlclaw_ray.policy.visibility import VisibilityEvaluator, VisibilityFacts

NO_FAILURES = frozenset(
    {
        *(
            "invalid_arguments",
            "not_found",
            "unknown_agent",
            "unknown_definition",
            "unknown_task",
            "not_your_step",
            "too_deep",
        ),
        *("denied", "not_executed", "cancelled", "tool_not_available", "circuit_open"),
        *("limit_reached", "rate_limited", "budget_exhausted"),
        *(
            "file_not_found",
            "not_a_file",
            "not_a_directory",
            "invalid_path",
            "too_large",
            "binary_file",
            "output_too_large",
        ),
        *("patch_apply_failed", "unsupported_patch", "command_not_found"),
        *("skill_not_found", "reference_not_found", "reference_not_text", "reference_too_large", "binary_artifact"),
    }
)
"""The errors of the caller: what it asked for is not there, is no such thing, or is not permitted. All others, whatever a handler
or a server calls them, are a capability's own."""
_CHOSEN = "code.run_command"
"""What ends badly here is a command that the caller chose."""


class Breakers:
    """The breakers of one agent during one run."""

    def __init__(self, rule: BreakerRule, known: Iterable[Breaker]) -> None:
        self._rule = rule
        self._known = {each.tool: each for each in known}
        self._probes: dict[str, ToolCallId] = {}

    def admit(self, tool: str, call_id: ToolCallId, now: float) -> ToolError | None:
        """Return why the tool must not be called, or None; while it is half open, one call is admitted until that one ends."""
        breaker = self._known.get(tool)
        if breaker is None or not breaker.open_until:
            return None
        if breaker.open_at(now):
            failed = f"{tool} failed {counted(breaker.failures, 'time')} in a row"
            message = f"circuit open: {failed}; retry in {breaker.open_until - now:.0f} s"
            return ToolError("circuit_open", message)
        if self._probes.setdefault(tool, call_id) != call_id:
            return ToolError(
                "circuit_open",
                f"circuit half open: {tool} failed before, and one call is testing it; wait for its result",
            )
        return None

    def note(self, outcome: CallOutcome) -> None:
        """Learn from the end of a call."""
        probe = self._probes.get(outcome.tool)
        if probe is not None and probe != outcome.call_id:
            return
        self._probes.pop(outcome.tool, None)
        breaker = self._known.get(outcome.tool, Breaker(outcome.tool, 0))
        if breaker.open_at(outcome.at):
            return
        chosen_command = outcome.tool == _CHOSEN and outcome.error == "command_failed"
        if outcome.error and outcome.error not in NO_FAILURES and not chosen_command:
            failures = breaker.failures + 1
            opens = failures >= self._rule.failures or breaker.half_open_at(outcome.at)
            open_until = outcome.at + self._rule.open_seconds if opens else 0.0
            self._known[outcome.tool] = replace(breaker, failures=failures, open_until=open_until)
        elif not outcome.error:
            self._known.pop(outcome.tool, None)

    def kept(self) -> tuple[Breaker, ...]:
        """Return those of capabilities that failed when they were last used, by name."""
        return tuple(self._known[tool] for tool in sorted(self._known))


class BreakerEvaluator(VisibilityEvaluator):
    """Hides capabilities whose breaker is open."""

    name = "breaker"

    @override
    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        return [each.tool for each in facts.state.breakers if each.open_until]

    @override
    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        hidden = {}
        for each in facts.state.breakers:
            if each.open_at(facts.now.timestamp()):
                until = datetime.fromtimestamp(each.open_until, UTC).isoformat(timespec="seconds")
                hidden[each.tool] = f"circuit open until {until}: it failed {counted(each.failures, 'time')} in a row"
        return hidden
