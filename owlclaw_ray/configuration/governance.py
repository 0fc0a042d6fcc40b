"""Rules of what agents may do, as agent.yaml writes them (G1, G3, G4, T8)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from owlclaw_ray.configuration.limits import Count, Seconds
from owlclaw_ray.configuration.section import NonEmpty, Section
from owlclaw_ray.domain.budget import NANO, Budget, BudgetPeriod, BudgetScope, BudgetUnit
from owlclaw_ray.domain.governance import BreakerRule, Governance, Risk, ToolLimit
from owlclaw_ray.domain.hours import DAYS, Hours

_MINUTES_OF_A_DAY = 1_440
Patterns: TypeAlias = Annotated[tuple[NonEmpty, ...], Field(min_length=1)]


def _minutes(written: Any) -> int:
    """Return minutes after midnight. YAML reads an unquoted 15:00 as a number of the base 60, which is these minutes."""
    if isinstance(written, int) and not isinstance(written, bool) and 0 <= written <= _MINUTES_OF_A_DAY:
        return written
    found = re.fullmatch(r"(\d{1,2}):([0-5]\d)", written) if isinstance(written, str) else None
    minutes = int(found[1]) * 60 + int(found[2]) if found else _MINUTES_OF_A_DAY + 1
    if minutes > _MINUTES_OF_A_DAY:
        raise ValueError(f"is {written!r}: write a time of day such as '09:30', up to '24:00'")
    return minutes


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        raise ValueError(f"is {name!r}, which is no IANA time zone such as Europe/Berlin") from error
    return name


TimeOfDay: TypeAlias = Annotated[int, BeforeValidator(_minutes)]
Zone: TypeAlias = Annotated[str, AfterValidator(_zone)]


class TimesFile(Section):
    """A time of day on days of the week."""

    start: TimeOfDay = Field(alias="from")
    end: TimeOfDay = Field(alias="to")
    """Before `from`: on the next day."""
    zone: Zone = "UTC"
    days: Annotated[tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...], Field(min_length=1)] = (
        "mon",
        "tue",
        "wed",
        "thu",
        "fri",
        "sat",
        "sun",
    )

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if self.start in {self.end, _MINUTES_OF_A_DAY}:
            raise ValueError("has no time between from and to; for a whole day write from: '00:00' and to: '24:00'")
        return self

    def of(self, tools: tuple[str, ...]) -> Hours:
        """Return the rule for these tools."""
        return Hours(tools, self.start, self.end, self.zone, tuple(sorted(map(DAYS.index, self.days))))


class HoursFile(TimesFile):
    """When tools may be used."""

    tools: Patterns


class BreakerFile(Section):
    """When the circuit of a capability that keeps failing opens."""

    failures: Annotated[int, Field(ge=0)] = 5
    """In a row; 0 turns breakers off."""
    open_seconds: Seconds = 60.0


class BudgetFile(Section):
    """How much may be used of one thing."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    unit: BudgetUnit
    limit: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Tokens, calls, or US dollars."""
    scope: BudgetScope = BudgetScope.AGENT
    period: BudgetPeriod = BudgetPeriod.TOTAL
    zone: Zone = "UTC"
    tools: tuple[NonEmpty, ...] = ()
    """Patterns of the tools whose calls are counted; none: model calls."""
    reserve: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Of tokens how many a reply may have, 4,096 by default; of money what a call is taken to cost at least."""
    alerts: tuple[Annotated[int, Field(ge=1, le=100)], ...] = (50, 80)
    """Percentages."""
    cheaper: NonEmpty | None = None
    """The model to use once the last alert is reached."""

    @model_validator(mode="after")
    def _consistent(self) -> BudgetFile:
        if self.tools and self.unit is not BudgetUnit.CALLS:
            raise ValueError(f"counts {self.unit.value} of tools: a budget of tools has the unit calls")
        if self.tools and self.cheaper:
            raise ValueError("names a cheaper model, but counts calls of tools: remove one of the two")
        if self.cheaper and not self.alerts:
            raise ValueError("names a cheaper model, but no alert at which it is used: write alerts: [80]")
        if self.unit is not BudgetUnit.MONEY and not self.limit.is_integer():
            raise ValueError(f"has the limit {self.limit:g}: {self.unit.value} are whole numbers")
        if self.period is BudgetPeriod.MINUTE:
            raise ValueError(
                "is of a minute: a budget is total, or of a day or month; tokens a minute are a quota of a tenant"
            )
        if self.scope is BudgetScope.RUN and self.period is not BudgetPeriod.TOTAL:
            raise ValueError(f"is of a run and of a {self.period.value}: a run's budget is for the whole run")
        return self

    def budget(self) -> Budget:
        """Return the budget."""
        one = NANO if self.unit is BudgetUnit.MONEY else 1
        reserve = None if self.reserve is None else max(1, round(self.reserve * one))
        return Budget(
            self.name,
            self.scope,
            self.unit,
            max(1, round(self.limit * one)),
            self.period,
            self.zone,
            self.tools,
            reserve,
            tuple(sorted(set(self.alerts))),
            self.cheaper or "",
        )


class SharedBudgetFile(BudgetFile):
    """A budget that owlclaw.yaml gives to all definitions."""

    scope: BudgetScope = BudgetScope.TENANT


_TRADING_HOURS: dict[str, Any] = {
    "from": "09:30",
    "to": "15:00",
    "zone": "Asia/Shanghai",
    "days": ("mon", "tue", "wed", "thu", "fri"),
}


def duplicate_name(budgets: Iterable[BudgetFile]) -> str:
    """Return a name that two of the budgets have, or the empty text."""
    names = [each.name for each in budgets]
    return min((name for name in names if names.count(name) > 1), default="")


class GovernanceFile(Section):
    """The section `governance` of agent.yaml."""

    roles: tuple[NonEmpty, ...] = ()
    confirmed: tuple[NonEmpty, ...] = ()
    """Patterns of tools of high or critical risk whose use a person has confirmed."""
    risk: dict[NonEmpty, Risk] = Field(default_factory=dict)
    """By patterns of tools."""
    hours: tuple[HoursFile, ...] = ()
    trading_hours: TimesFile = TimesFile(**_TRADING_HOURS)
    """What `trading_hours_only` of a skill means."""
    breaker: BreakerFile = Field(default_factory=BreakerFile)
    budgets: tuple[BudgetFile, ...] = ()

    @model_validator(mode="after")
    def _one_budget_a_name(self) -> GovernanceFile:
        if twice := duplicate_name(self.budgets):
            raise ValueError(f"has two budgets named {twice!r}: give one of them another name")
        return self

    def governance(self, limits: ToolLimits) -> Governance:
        """Return the rules of the definition, with those of its tools."""
        return Governance(
            frozenset(self.roles),
            self.confirmed,
            self.risk,
            tuple(each.of(each.tools) for each in self.hours),
            BreakerRule(self.breaker.failures, self.breaker.open_seconds),
            tuple(limit.limit(tools) for tools, limit in limits.items()),
            tuple(each.budget() for each in self.budgets),
        )


class ToolLimitFile(Section):
    """How a tool is used."""

    enabled: bool = True
    calls: Count | None = None
    """How many in `seconds`; none: as many as the model likes."""
    seconds: Seconds = 60.0
    cooldown: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Seconds between the beginnings of two calls."""
    attempts: Annotated[int, Field(ge=1, le=10)] = 1
    """Tries of a call that fails with a retryable error, if the tool is pure or idempotent."""
    timeout: Seconds | None = None
    """Seconds; none: what the tool says, or limits.tool_timeout."""
    version: NonEmpty | Annotated[dict[NonEmpty, Count], Field(min_length=1)] | None = None
    """Which version of the tool agents see: one, or several with their shares."""

    def limit(self, tools: str) -> ToolLimit:
        """Return the limit of the tools that the pattern names."""
        shares = {self.version: 1} if isinstance(self.version, str) else self.version or {}
        return ToolLimit(tools, **self.model_dump(exclude={"version"}), versions=tuple(sorted(shares.items())))


ToolLimits: TypeAlias = dict[NonEmpty, ToolLimitFile]
"""By patterns of tools: the one that is a tool's own name, else the first that matches, holds for it."""


class ToolsFile(Section):
    """The section `tools` of agent.yaml."""

    limits: ToolLimits = Field(default_factory=dict)
