"""What runs and tool calls came to, counted by time: what charts are drawn of, and what costs are read from.

Times are whole minutes, hours and days of UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef

NOT_CALLED = frozenset(
    {
        "tool_not_available",
        "not_executed",
        "denied",
        "limit_reached",
        "rate_limited",
        "circuit_open",
        "budget_exhausted",
    }
)
"""Types of errors of calls that were not made: they say nothing of the tool, and a tool that is not there may have any name."""


class Grain(Enum):
    """How long the times are of which each is counted apart."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    TOTAL = "total"
    """All of the time that is asked for together."""


class UsageBy(Enum):
    """What is counted apart besides times."""

    NONE = "none"
    AGENT = "agent"
    DEFINITION = "definition"
    TOOL = "tool"


STEP = {Grain.MINUTE: timedelta(minutes=1), Grain.HOUR: timedelta(hours=1), Grain.DAY: timedelta(days=1)}
MINUTES_KEPT = timedelta(days=2)
"""For how long runs are counted by minutes."""
KEPT = timedelta(days=92)
"""For how long the rest is kept: runs by hours, those of each agent by days, calls of each tool by hours."""


class RunCounts(Struct, frozen=True):
    """Runs that ended, and what they used."""

    completed: int = 0
    failed: int = 0
    timeout: int = 0
    terminated: int = 0
    cancelled: int = 0
    skipped: int = 0
    cost: int = 0
    """In billionths of a US dollar (budget.NANO): sums are exact."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    queued_ms: int = 0
    """From acceptance to the beginning; of those that never began, to their end."""
    running_ms: int = 0
    """From the beginning to the end, times included in which they waited for people or other runs."""

    @property
    def runs(self) -> int:
        """How many there are."""
        return self.completed + self.failures + self.cancelled + self.skipped

    @property
    def failures(self) -> int:
        """Those that ended without what was asked for, and not because somebody wanted it."""
        return self.failed + self.timeout + self.terminated


class ToolCounts(Struct, frozen=True):
    """Calls that were made, and how long they took."""

    calls: int = 0
    failures: int = 0
    running_ms: int = 0
    longest_ms: int = 0
    within_100ms: int = 0
    within_1s: int = 0
    """Longer than 100 ms; and so on."""
    within_10s: int = 0
    within_60s: int = 0
    longer: int = 0

    @property
    def mean_ms(self) -> float:
        """How long a call took on average; 0 without calls."""
        return self.running_ms / self.calls if self.calls else 0.0

    @property
    def p95_ms(self) -> int:
        """A time within which at least 95 of 100 calls ended: an upper end of a class, or the longest call."""
        wanted, found = 0.95 * self.calls, 0
        for number, bound in zip(
            (self.within_100ms, self.within_1s, self.within_10s, self.within_60s), DURATION_BOUNDS, strict=True
        ):
            found += number
            if found >= wanted:
                return min(bound, self.longest_ms)
        return self.longest_ms


DURATION_BOUNDS = (100, 1_000, 10_000, 60_000)
"""The upper ends of the classes of ToolCounts, in milliseconds; the last one has none."""


class RunBucket(Struct, frozen=True):
    """What ended in one time; of one agent or definition, if these are counted apart."""

    counts: RunCounts
    begins_at: datetime | None = None
    """None of a total."""
    agent: AgentRef | None = None
    definition: str = ""


class ToolBucket(Struct, frozen=True):
    """Calls of a tool that ended in one time."""

    counts: ToolCounts
    tool: str
    begins_at: datetime | None = None
    """None of a total."""


def floored(at: datetime, grain: Grain) -> datetime:
    """Return when the minute, hour or day of UTC began that holds this moment."""
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    return at - (at - begin) % STEP[grain]
