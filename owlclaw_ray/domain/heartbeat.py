"""Heartbeats: an agent looks now and then whether something waits for it, and thinks only if so (R7)."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

SUBMITTERS = "submitters"
"""In what a heartbeat is told of a webhook: who had it delivered again."""
PENDING_EVENTS = "internal.pending_events"
"""The call, of the runtime's own and unknown to models, that asks the sources of a heartbeat."""


class EventSourceKind(Enum):
    """Where something may wait for an agent."""

    INBOX = "inbox"
    """Webhooks whose source delivers to heartbeats, and that no heartbeat has seen to yet."""
    QUEUE = "queue"
    """Triggers that wait behind the heartbeat. Their runs come anyway, so a look at them is worth a model call to few."""
    SCHEDULES = "schedules"
    """Schedules of the agent that are due and have not fired. They fire anyway."""
    DATABASE = "database"
    """Rows of a SQL query."""
    EVENTS = "events"
    """What the application's event sources say."""


class Heartbeat(Struct, frozen=True):
    """When a definition's agents look for events, where, and how often at most these wake them."""

    every_seconds: int = 300
    sources: tuple[EventSourceKind, ...] = (
        EventSourceKind.INBOX,
        EventSourceKind.EVENTS,
    )
    focus: str = "see to what is pending"
    max_per_day: int | None = None
    """Runs with a model a day (UTC); None: no limit."""
    pause_after_idle_days: float | None = 30.0
    """After so many days in which nothing happened heartbeats stop until the agent has another run; None: never."""
    query: str = ""
    """Of the source `database`: the SQL whose rows are pending."""
    url_variable: str = ""
    """Of the source `database`: the environment variable of the tool workers that holds the database's URL."""


class HeartbeatState(Struct, frozen=True):
    """What an agent remembers of its heartbeats."""

    fingerprint: str = ""
    """Of the pending state that it dealt with last; empty when nothing was pending since."""
    active_at: float = 0.0
    """When something happened last, in seconds since 1970; 0 if not known."""
    day: str = ""
    woken: int = 0
    """How many heartbeats had a model on that day."""
    paused: str = ""
    """The schedule that was paused because nothing happened for long."""
    idle: str = ""
    """Why the last look was idle; empty if it was not."""
    idle_run: str = ""
    """The last idle look, which the next one replaces."""


class HeartbeatSkipReason(Enum):
    """Why a heartbeat ends without a model."""

    NO_EVENTS = "no_events"
    UNCHANGED = "unchanged"
    """What is pending is what the agent dealt with before."""
    DAILY_LIMIT = "daily_limit"
    DISABLED = "disabled"
    """The definition has no such heartbeats any more."""
    CHECK_FAILED = "check_failed"
    """No source said that something is pending, and at least one could not be asked."""
