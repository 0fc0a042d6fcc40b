"""Budgets: how much a run, an agent or a tenant may use (G2)."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import Enum
from urllib.parse import quote

from msgspec import Struct

NANO = 1_000_000_000
"""Money is counted in billionths of a US dollar, so that sums are exact."""


class BudgetScope(Enum):
    """Whose use is added up."""

    RUN = "run"
    AGENT = "agent"
    TENANT = "tenant"


class BudgetUnit(Enum):
    """What is counted."""

    TOKENS = "tokens"
    """Of prompts and replies."""
    MONEY = "money"
    """Of model calls."""
    CALLS = "calls"
    """Model calls; or, for a budget of certain tools, calls of these."""


class BudgetPeriod(Enum):
    """After what time it is renewed."""

    TOTAL = "total"
    """Never."""
    MINUTE = "minute"
    """Of the clock. Model calls that find less left than they may use wait for the next one."""
    DAY = "day"
    MONTH = "month"


class BudgetWindow(Struct, frozen=True):
    """A stretch of time for which a budget is given."""

    key: str
    ends_at: datetime | None
    """None if it never ends."""


class Budget(Struct, frozen=True):
    """How much of one thing may be used in one window. Amounts are tokens, calls, or NANO dollars."""

    name: str
    scope: BudgetScope
    unit: BudgetUnit
    limit: int
    period: BudgetPeriod = BudgetPeriod.TOTAL
    zone: str = "UTC"
    """Whose midnight begins days and months."""
    tools: tuple[str, ...] = ()
    """Patterns of the tools whose calls are counted; none: model calls."""
    reserve: int | None = None
    """Of tokens how many a reply may have, of money what a call is taken to cost at least; None: what follows from the model."""
    alerts: tuple[int, ...] = (50, 80)
    """Percentages at which people are told, once a window; ascending."""
    cheaper: str = ""
    """The model to use instead once the last alert is reached; empty: none."""

    def window(self, now: datetime) -> BudgetWindow:
        """Return the window that holds this moment."""
        if self.period is BudgetPeriod.TOTAL:
            return BudgetWindow("", None)
        if self.period is BudgetPeriod.MINUTE:
            return minute_of(now)
        from zoneinfo import ZoneInfo

        zone = ZoneInfo(self.zone)
        day = now.astimezone(zone).date()
        if self.period is BudgetPeriod.DAY:
            return BudgetWindow(day.isoformat(), _midnight(day + timedelta(days=1), zone))
        following = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        return BudgetWindow(f"{day:%Y-%m}", _midnight(following, zone))

    def account(self, tenant: str, agent_id: str, window: BudgetWindow) -> str:
        """Return under which name the store adds up the use in a window."""
        owner = quote(tenant, safe="")
        if self.scope is BudgetScope.AGENT:
            owner = f"{owner}/{agent_id}"
        return f"{self.name}.{self.unit.value}.{window.key}@{owner}"

    def spoken(self, amount: int) -> str:
        """Return an amount as people say it."""
        if self.unit is BudgetUnit.MONEY:
            return f"${amount / NANO:,.2f}" if amount % (NANO // 100) == 0 else f"${amount / NANO:.6f}"
        return f"{amount:,} {self.unit.value}"

    @property
    def title(self) -> str:
        """Return which budget it is and how much it gives."""
        each = "" if self.period is BudgetPeriod.TOTAL else f" a {self.period.value}"
        return f"the budget {self.name} ({self.spoken(self.limit)} for the {self.scope.value}{each})"


class BudgetUse(Struct, frozen=True):
    """How much of an account is gone."""

    account: str
    used: int
    reserved: int
    """By calls that are under way."""


class BudgetStanding(Struct, frozen=True):
    """A budget, and what is gone of it in its present window."""

    budget: Budget
    window: BudgetWindow
    used: int | None
    """None for a budget of runs, of which each has its own."""
    reserved: int = 0
    """By calls that are under way."""


def minute_of(at: datetime) -> BudgetWindow:
    """Return the minute of the clock that holds this moment."""
    minute = at.astimezone(UTC).replace(second=0, microsecond=0)
    return BudgetWindow(f"{minute:%Y-%m-%dT%H:%M}", minute + timedelta(minutes=1))


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)
