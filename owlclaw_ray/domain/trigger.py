"""Triggers: why a run starts."""

from __future__ import annotations

from enum import Enum

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from owlclaw_ray.domain.json import LARGE, JsonText, JsonValue
from owlclaw_ray.domain.lineage import Lineage
from owlclaw_ray.domain.quota import KeyQuota


class TriggerKind(Enum):
    """Where a trigger comes from."""

    API = "api"
    WEBHOOK = "webhook"
    EVENT = "event"
    SCHEDULE_ONCE = "schedule_once"
    SCHEDULE_CRON = "schedule_cron"
    HEARTBEAT = "heartbeat"
    AGENT = "agent"
    """Another agent asked for the run."""


class Trigger(Struct, frozen=True):
    """Why a run starts, and with what."""

    kind: TriggerKind
    content: JsonValue | JsonText = field(default=None, name="payload")
    """The payload, as text if it is large."""
    focus: str = ""
    source: str = ""
    """What fired: a schedule id, a webhook delivery, a parent run id; empty for a plain request."""
    merged: int = 1
    """How many triggers it stands for: itself, and those whose place it took (BusyPolicy.COALESCE)."""
    lineage: Lineage | None = None
    """Of the kind `agent`: the run that asked for it. Of other kinds, once claimed: the last one that asked its agent for a run."""
    traceparent: str = ""
    """The span that caused it (W3C Trace Context), if the caller named one."""
    task_type: str = ""
    """What kind of work it asks for, if it says so: models may be chosen by it."""
    session: str = ""
    """What its run's trace is grouped with, and for whom it is: as the caller says, empty if he says nothing."""
    user: str = ""
    submitters: tuple[str, ...] = ()
    """The principals that asked for the run, of each trigger that it stands for; none of what comes from outside, or without a key."""

    @property
    def payload(self) -> JsonValue:
        """With what. Parsed at each look, if it is large."""
        return self.content.value() if isinstance(self.content, JsonText) else self.content

    @property
    def asked_by(self) -> Lineage | None:
        """The lineage of a run that another run waits for; None of any other."""
        return self.lineage if self.kind is TriggerKind.AGENT else None

    @property
    def all_submitters(self) -> tuple[str, ...]:
        """The principals that asked for the run, and those that asked for the runs above it."""
        above = () if self.lineage is None else self.lineage.submitters
        return tuple(dict.fromkeys((*self.submitters, *above)))

    def within(self, lineage: Lineage | None) -> Trigger:
        """Return the trigger as a run of an agent of this lineage has it: bound by it, wherever it comes from."""
        return self if lineage is None or self.lineage is not None else replace(self, lineage=lineage)

    def compact(self) -> Trigger:
        """Return the trigger with a large payload as text; raises orjson.JSONEncodeError for what is no JSON."""
        if isinstance(self.content, JsonText):
            return self
        text = orjson.dumps(self.content)
        return replace(self, content=JsonText(text.decode())) if len(text) > LARGE else self


MAX_LABEL_CHARACTERS = 128
"""Characters of a session and of a user, which are visible ASCII and blanks: receivers of traces drop others."""


class BusyPolicy(Enum):
    """What becomes of a trigger whose agent has runs already (S6)."""

    ENQUEUE = "enqueue"
    """It waits for its turn."""
    REJECT = "reject"
    """It is refused while the agent has a running or queued run."""
    COALESCE = "coalesce"
    """It takes the place of a queued trigger of the same kind and focus that came with this policy too, if there is one."""
    INTERRUPT = "interrupt"
    """The running run is cancelled, and this one goes before all that wait but earlier interrupts."""


LOWEST_PRIORITY, HIGHEST_PRIORITY = -10, 10
MAX_TASK_TYPE = 64
MAX_DEADLINE_SECONDS = 604_800.0
"""A week, in seconds."""


class Admission(Struct, frozen=True):
    """How a trigger comes to its agent, and who hears of its end."""

    busy: BusyPolicy = BusyPolicy.ENQUEUE
    priority: int = 0
    """LOWEST_PRIORITY to HIGHEST_PRIORITY. Higher goes first; of the same priority, what was accepted first."""
    deadline: float | None = None
    """Seconds from acceptance, up to MAX_DEADLINE_SECONDS: a run that has not begun by then is skipped, one that has is ended."""
    callback_url: str = ""
    """Who is told of the run's end, by a webhook; empty: nobody but whom the definition names."""
    quota: KeyQuota | None = None
    """Of the key that triggers, if it has one."""

    def __post_init__(self) -> None:
        if not LOWEST_PRIORITY <= self.priority <= HIGHEST_PRIORITY:
            raise ValueError(f"priority {self.priority} is not from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}")
        if self.deadline is not None and not 0 < self.deadline <= MAX_DEADLINE_SECONDS:
            raise ValueError(f"deadline {self.deadline} is not over 0 and up to {MAX_DEADLINE_SECONDS:g} seconds")


ENQUEUED = Admission()
"""The admission of a trigger that says nothing of it."""
