"""What agents of a definition may do, and what of it depends on what they did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.budget import Budget
from owlclaw_ray.domain.hours import Hours
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.tool import ToolDefinition

RISK_TAG, ROLE_TAG, CONFIRM_TAG = "risk:", "role:", "confirm"
"""Tags of a tool: how dangerous it is, who may use it (any of them), and that a person has to have confirmed it."""
_DAY = 86_400.0


class Risk(Enum):
    """How much harm a tool can do (G4), the least first."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def needs_confirmation(self) -> bool:
        """Whether a person has to confirm calls of the tool, or the tool as a whole."""
        return self in {Risk.HIGH, Risk.CRITICAL}


class BreakerRule(Struct, frozen=True):
    """When a capability that keeps failing is left alone (G3)."""

    failures: int = 5
    """In a row; 0 turns breakers off."""
    open_seconds: float = 60.0
    """For how long nothing is tried; then one call is."""


class ToolLimit(Struct, frozen=True):
    """How a tool, or each of several, is used by an agent (T8)."""

    tools: str
    """A pattern of canonical names."""
    enabled: bool = True
    calls: int | None = None
    """How many calls in `seconds`; None: as many as it likes."""
    seconds: float = 60.0
    cooldown: float = 0.0
    """Seconds between the beginnings of two calls."""
    attempts: int = 1
    """Tries of a call that fails with a retryable error, if the tool is pure or idempotent."""
    timeout: float | None = None
    """Seconds that go before the tool's own."""
    versions: tuple[tuple[str, int], ...] = ()
    """Versions of the tool, each with the share of the agents that see it and no other; none: there are no versions."""

    @property
    def paced(self) -> bool:
        """Whether the time between calls matters."""
        return self.calls is not None or self.cooldown > 0


@dataclass(frozen=True, slots=True)
class Governance:
    """The rules of one definition."""

    roles: frozenset[str] = frozenset()
    """The roles of its agents."""
    confirmed: tuple[str, ...] = ()
    """Patterns of tools whose use a person has confirmed."""
    risks: Mapping[str, Risk] = field(default_factory=dict)
    """Risks by patterns, before what the tools' tags say. The first that matches counts."""
    hours: tuple[Hours, ...] = ()
    breaker: BreakerRule = field(default_factory=BreakerRule)
    tool_limits: tuple[ToolLimit, ...] = ()
    budgets: tuple[Budget, ...] = ()
    skills: tuple[Skill, ...] = ()
    """Those that say something of their capabilities: their risk, that they need a confirmation, when and how often they may be used."""
    _limit_of: dict[str, ToolLimit | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Answers of `limit_of`, so that a call costs the same however many limits there are."""

    def risk_of(self, tool: ToolDefinition) -> Risk:
        """Return how dangerous the tool is; what cannot be read is critical."""
        for pattern, risk in self.risks.items():
            if fnmatchcase(tool.name, pattern):
                return risk
        written = [tag.removeprefix(RISK_TAG) for tag in tool.tags if tag.startswith(RISK_TAG)]
        written += [skill.risk_level for skill in self.skills if skill.is_about(tool.name)]
        known = {risk.value: risk for risk in Risk}
        return max((known.get(each, Risk.CRITICAL) for each in written), key=list(Risk).index, default=Risk.LOW)

    def unconfirmed(self, tool: ToolDefinition) -> str:
        """Return why a person has to confirm calls of the tool; the empty text if nobody has to, or `confirmed` says it."""
        risk = self.risk_of(tool)
        asks = [skill.name for skill in self.skills if skill.requires_confirmation and skill.is_about(tool.name)]
        if not (risk.needs_confirmation or asks or CONFIRM_TAG in tool.tags) or matches(tool.name, self.confirmed):
            return ""
        if risk.needs_confirmation:
            return f"its risk is {risk.value}"
        return f"its skill {asks[0]} requires confirmation" if asks else f"it is tagged {CONFIRM_TAG}"

    def unconfirmed_skill(self, skill: Skill) -> str:
        """Return why a person has to confirm the skill; the empty text if nobody has to, or `confirmed` says it.

        `risks` and `confirmed` name skills as they name tools.
        """
        risk = next(
            (risk for name, risk in self.risks.items() if fnmatchcase(skill.name, name)), Risk(skill.risk_level)
        )
        if not (risk.needs_confirmation or skill.requires_confirmation) or matches(skill.name, self.confirmed):
            return ""
        return f"its risk is {risk.value}" if risk.needs_confirmation else "it requires confirmation"

    def limit_of(self, tool: str) -> ToolLimit | None:
        """Return the limit that holds for a tool that there is: the one of its own name, else the first whose pattern matches, with
        what its skill says.
        """
        if tool not in self._limit_of:
            matching = [limit for limit in self.tool_limits if fnmatchcase(tool, limit.tools)]
            own = next((limit for limit in matching if limit.tools == tool), None)
            self._limit_of[tool] = self._with_skill(tool, own or next(iter(matching), None))
        return self._limit_of[tool]

    def _with_skill(self, tool: str, written: ToolLimit | None) -> ToolLimit | None:
        """Return the limit with the pace that the tool's skill sets; what agent.yaml says of the pace goes before it."""
        skill = next((each for each in self.skills if each.paced and each.is_about(tool)), None)
        if skill is None or (written is not None and written.paced):
            return written
        limit = written or ToolLimit(tool)
        if skill.daily_calls is not None:
            limit = replace(limit, calls=skill.daily_calls, seconds=_DAY)
        return replace(limit, cooldown=skill.cooldown)


class Breaker(Struct, frozen=True):
    """The circuit breaker of one capability of one agent that failed when it was last used. Others have none."""

    tool: str
    failures: int
    """In a row."""
    open_until: float = 0.0
    """In seconds since 1970. 0 while it is closed; when it has passed, the breaker is half open."""

    def open_at(self, now: float) -> bool:
        """Return whether nothing may be tried."""
        return now < self.open_until

    def half_open_at(self, now: float) -> bool:
        """Return whether one call may be tried."""
        return 0 < self.open_until <= now


class ToolRate(Struct, frozen=True):
    """How fast an agent used one tool lately. Tools that rested long enough have none."""

    tool: str
    tokens: float
    """Calls that may be made at once, as of `at`."""
    at: float
    """When the last call began, in seconds since 1970."""


class CallOutcome(Struct, frozen=True):
    """The end of one tool call, as the journal has it."""

    tool: str
    call_id: str
    error: str
    """The error's type; empty for success."""
    at: float
    """In seconds since 1970."""


class Hidden(Struct, frozen=True):
    """Tools that a run may not use, and why."""

    tools: tuple[str, ...]
    by: str
    """The evaluator that says so."""
    reason: str


class Visibility(Struct, frozen=True):
    """Which tools a run may use: a hard boundary (R6)."""

    visible: tuple[str, ...]
    hidden: tuple[Hidden, ...] = ()


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns, as in a shell, is the name's."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
