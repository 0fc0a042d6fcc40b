"""Tools, as the run loop calls them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import Enum
from typing import Protocol, TypeAlias

from msgspec import Struct

from owlclaw_ray.domain.agent import EVERY_STATE, AgentRef, StateChoice
from owlclaw_ray.domain.embedding import EmbeddedCall, used_by
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.lineage import Lineage
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.tool import Effect, ToolClass, ToolResult
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import RunId, ToolCallId


class Stage(Enum):
    """How far a worker goes with a call."""

    RUN = "run"
    """Hooks before it, the tool, hooks after it."""
    CHECK = "check"
    """Arguments and hooks before it only: what a person is to be asked about. The tool does not run."""
    APPROVED = "approved"
    """The tool and the hooks after it: those before it had their say, and nobody may change what was approved."""
    EDITED = "edited"
    """As APPROVED, with arguments that a person wrote: the hooks before it see these, and may deny, not change them."""

    @property
    def approved(self) -> bool:
        """Whether a person allowed the call."""
        return self in {Stage.APPROVED, Stage.EDITED}


CONFIRM_SECONDS = 2.0
"""For how long a host takes a run for its own after the store has last said so, before a call begins: a cluster takes over within seconds
what a lost machine had."""


class Ownership(Struct, frozen=True):
    """When the store last took something from a host that it takes from a run's owner alone."""

    epoch: int
    """Of the host's activation."""
    at: float
    """Seconds of the monotonic clock…"""
    machine: str
    """…of the machine with this boot id."""


class ToolInvocation(Struct, frozen=True):
    """All that a worker needs to execute one call, wherever it runs."""

    call_id: ToolCallId
    tool: str
    """Canonical name."""
    arguments: str
    """JSON text, not yet validated."""
    agent: AgentRef
    run_id: RunId
    trigger: TriggerKind
    effect: Effect
    tool_class: ToolClass
    timeout: float
    """Seconds that the call may take once it runs."""
    idempotency_key: str
    """The same for every attempt at this call: derived from run_id and call_id."""
    active_schedules: int = 100
    """Limit T18, as the definition sets it."""
    timezone: str = "UTC"
    """The agent's, as the definition sets it."""
    stage: Stage = Stage.RUN
    lineage: Lineage | None = None
    """Of the calling run, if another run started it."""
    deadline: datetime | None = None
    """Of the calling run, if it has one."""
    approved_target: str = ""
    """What the approved call acts on. Acting on anything else is not approved; the empty text stands for what a person wrote."""
    session: str = ""
    """What the run's trace is grouped with, and for whom it is: the runs that the call starts are of the same."""
    user: str = ""
    traceparent: str = ""
    """The call's span (W3C Trace Context), for the services that the tool asks."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables for the programs of the call, from the skills of its run."""
    withheld_skills: tuple[tuple[str, str], ...] = ()
    """Skills that the run must not read, each with the reason; only for the call that reads skills."""
    no_embedding: str = ""
    """Why no provider may be asked for vectors for the call: a budget of its run is spent. Empty: one may."""
    key_quotas: tuple[KeyQuota, ...] = ()
    """Quotas of the keys that the calling run counts for; only for the call that may have vectors made."""
    states: StateChoice = EVERY_STATE
    """Which states the definition lets its agents query; only for the call that does."""
    submitters: tuple[str, ...] = ()
    """The principals that asked for the run, and for those above it: what the call starts or schedules is asked for by them."""
    owned: Ownership | None = None
    """What is known of who has the run, for who begins the call later; None: nobody needs to ask."""


class CheckedCall(Struct, frozen=True):
    """A call that may be put before a person."""

    arguments: str
    """JSON text, valid: as the call came, or as a hook changed it."""
    target: str
    """What the call acts on, in its normal form."""
    cwd: str = ""
    reason: str = ""
    """Why the tool itself wants it approved; empty if it was asked to check."""


class ToolOutcome(Struct, frozen=True):
    """What one call gave, and what is to be committed with it."""

    result: ToolResult
    duration_ms: int
    records: tuple[LedgerRecord, ...] = ()
    """Ledger records that the tool itself makes (a decision); the host commits them together with the result."""
    embeddings: tuple[EmbeddedCall, ...] = ()
    """Calls for vectors that were made for it: they count as the run's own."""
    hooks: tuple[JsonObject, ...] = ()
    """What hooks did, in order: {hook, stage, verdict, …}."""
    arguments: str | None = None
    """What the tool got, if hooks changed it."""
    checked: CheckedCall | None = None
    """Of a CHECK that found nothing wrong, and of a RUN whose tool will not act without an approval: then `result` means nothing."""
    started: RunId | None = None
    """The run of another agent that the call started and that is not over: then `result` means nothing, and the call is made
    again when it is."""

    @property
    def usage(self) -> Usage:
        """What models used for the call."""
        return used_by(self.embeddings)


async def nothing_to_confirm() -> None:
    """What is awaited for calls that anybody may make."""


Confirm: TypeAlias = Callable[[], Awaitable[Ownership | None]]
"""What is awaited before a call begins: it returns what is known of who has the run, None if that does not matter."""


class ToolRunner(Protocol):
    """Executes tool calls outside the run loop."""

    async def run(self, invocation: ToolInvocation, confirm: Confirm = nothing_to_confirm, /) -> ToolOutcome:
        """Execute the call, as far as its stage, and return its outcome; failures of the tool are outcomes too, never exceptions.

        Arguments are validated against the tool's schema before its handler runs (`invalid_arguments`). The call has
        `invocation.timeout` seconds from when it begins to run; what does not stop then is killed and the outcome is a
        `timeout` error. When the worker dies, a pure or idempotent call is run again once; a `once` call gives an
        `uncertain` error. A call that had not begun is run again whatever its effect. Cancelling the awaiting task
        stops the tool within a second.

        `confirm` is awaited when the call has got its slot, and before each further start; what it raises is raised, and the call does not
        begin: another process may have taken the run over while it waited. A call that begins CONFIRM_SECONDS or longer after what it
        returned asks the store itself, and is not made if the run has another owner.
        """
        ...
