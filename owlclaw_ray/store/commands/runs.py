"""Commands about runs and the agents that execute them, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.quota import OPEN_RUNS, SUSPENDED, KeyQuota
from owlclaw_ray.domain.run import Run, RunResult
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger
from owlclaw_ray.errors import QuotaReachedError
from owlclaw_ray.ids import ActivationId, DeliveryId, KeyId, RunId, TenantId


class IdempotencyClaim(Struct, frozen=True):
    """A client's Idempotency-Key and the hash of the body that came with it."""

    key: str
    body_hash: str
    expires_at: datetime


_OPEN_RETRY_SECONDS = 1.0
"""After how long somebody whose runs are not over should ask again."""
_HELD_RETRY_SECONDS = 60.0
"""And somebody who has as much as may be of what somebody has to end, or to remove."""


class SubmitRun(Struct, frozen=True):
    """Queue a run, as its `busy` policy says. Outcome: RunAccepted, IdempotencyConflict, AgentBusy, QueueFull or
    QuotaReached.

    - REJECT: AgentBusy while the agent has a running or queued run.
    - COALESCE: a queued run of the agent whose trigger came with this policy and has the same kind and focus, if there is
      one, takes this trigger as its own: the new payload, the higher priority, the later deadline, `merged` grown; a
      trigger_merged entry keeps the old payload. Outcome: RunAccepted of that run, `merged`.
    - INTERRUPT: the running run, if any, gets cancel_requested and interrupted_by.

    A trigger with a lineage binds its agent: every run of the agent that is claimed from then on, whatever triggered it, has that
    lineage, or that of a later trigger, or its own.

    Otherwise the run is queued, unless `queue_limit` runs of the agent are queued already: then QueueFull, and nothing was
    interrupted. The queue's order: interrupts first, then the higher priority, then the order of acceptance. What an
    Idempotency-Key stands for goes before the policy.

    A run that would be one more than the quotas of its tenant or key allow is refused with QuotaReached; a trigger that joins another one
    counts for none. Quotas are those that the tenant had before this transaction.
    """

    run_id: RunId
    agent: AgentRef
    trigger: Trigger
    at: datetime
    idempotency: IdempotencyClaim | None = None
    busy: BusyPolicy = BusyPolicy.ENQUEUE
    priority: int = 0
    deadline: datetime | None = None
    queue_limit: int | None = None
    callback_urls: tuple[str, ...] = ()
    """Who is told of the end of the run that the trigger becomes, or joins."""
    quota: KeyQuota | None = None
    """Of the key that triggers, if it has one."""
    counting_keys: tuple[KeyId, ...] = ()
    """Keys for which the run counts, too, if they have quotas: those that asked for its schedule, or for the runs above it."""


class ActivateAgent(Struct, frozen=True):
    """Take ownership of an agent: its epoch grows by one, whoever had it before is stale. Outcome: AgentActivated, OnStandby, AgentLeaving,
    or StaleTerm if the Directory that wants it was superseded.

    Registers the agent when it is new. With the same activation_id twice the epoch grows once. With `claim` the agent's next
    run is taken too, as ClaimRun does.
    """

    agent: AgentRef
    activation_id: ActivationId
    at: datetime
    claim: bool = False
    term: int = 0
    """Under which the Directory that wants it holds the lease, see HoldLease; 0 where there is none."""


class ClaimRun(Struct, frozen=True):
    """Take the agent's next run: the one that its last owner left (status running), else the first of the queue.

    The run becomes `running` and its journal gets run_started or run_resumed (run_continued, if it has just ceased to wait for
    approvals). Claiming again with the same epoch, while that epoch's run is not finished, returns that run and adds no
    entry. A run that waits blocks its agent's queue. Outcome: RunClaimed, NothingQueued or StaleEpoch.

    NothingQueued too while as many runs of the tenant, or of a key that the run counts for, are executed as the quota `running_runs`
    allows, and this would be another one.
    """

    agent: AgentRef
    epoch: int
    at: datetime


class AppendJournal(Struct, frozen=True):
    """Append facts to a running run. Outcome: Appended or StaleEpoch.

    `entries` start at the run's next seq; entries whose seq is there already are the same facts, sent again.
    """

    run_id: RunId
    agent: AgentRef
    epoch: int
    entries: tuple[JournalEntry, ...]
    ledger: tuple[LedgerRecord, ...] = ()
    blobs: Mapping[str, str] = field(default_factory=dict)
    """Texts by the hash of their content; known ones are ignored."""


class IdleHeartbeat(Struct, frozen=True):
    """What is left of a heartbeat that found nothing to do: its run, in the place of the one before, and a time more in the tick of
    that one, if no other time lies between them. Its journal is given up.
    """

    replaces: RunId | None
    """The agent's last idle heartbeat."""
    every_seconds: int


class FinishRun(Struct, frozen=True):
    """Append the last facts, set the result, save the agent's state, give back what the run reserved of budgets, all in one;
    then claim the next run if asked. What is to be told of the run's end is to be sent from then on.

    Where as many runs of the tenant were executed as its quota `running_runs` allows, or of a key that both runs count for, none is
    claimed: RunFinished.admitted says whose turn it is.

    Outcome: RunFinished or StaleEpoch.
    """

    run_id: RunId
    agent: AgentRef
    epoch: int
    entries: tuple[JournalEntry, ...]
    result: RunResult
    state: AgentState
    at: datetime
    ledger: tuple[LedgerRecord, ...] = ()
    blobs: Mapping[str, str] = field(default_factory=dict)
    claim_next: bool = True
    callback_url: str = ""
    """Whom the definition wants told of the end, besides those whom triggers named."""
    deliveries: tuple[DeliveryId, ...] = ()
    """Deliveries that waited for a heartbeat of the agent, and that the run saw. Those that still wait are handled if it completed;
    else the failure counts, and after MAX_FAILURES they are refused.
    """
    idle: IdleHeartbeat | None = None


class AwaitRuns(Struct, frozen=True):
    """Append the last facts of a running run, at least one, and have it wait for the ends of other runs, all in one.

    Whether these runs are over already is not looked at: whoever has a run wait tells the store of them (RunEnded).
    Outcome: RunWaiting; Appended if the run was asked to end: then it does not wait, and is still the activation's; StaleEpoch.
    """

    run_id: RunId
    agent: AgentRef
    epoch: int
    entries: tuple[JournalEntry, ...]
    runs: tuple[RunId, ...]
    ledger: tuple[LedgerRecord, ...] = ()
    blobs: Mapping[str, str] = field(default_factory=dict)


class RunEnded(Struct, frozen=True):
    """Have a run wait for these others no more, because they are over. With the last one it is `running` again, for whoever claims it.

    Changes nothing if it waits for none of them. Outcome: RunReleased.
    """

    agent: AgentRef
    run_id: RunId
    """The run that waits, and its agent."""
    ended: tuple[RunId, ...]


class ReleaseAgent(Struct, frozen=True):
    """End an activation on purpose: the agent has no owner until the next one. Outcome: Released or StaleEpoch."""

    agent: AgentRef
    epoch: int
    state: AgentState
    at: datetime


class CancelRun(Struct, frozen=True):
    """Ask for the end of a run. A queued run is cancelled at once; a running one gets `cancel_requested`. Outcome: CancelOutcome.

    One that waits for approvals gets it too, they are withdrawn, and it is running again for its agent to end it.
    """

    tenant: TenantId
    run_id: RunId
    at: datetime
    by: str = ""
    """The principal that asks for it, which the ledger is told in the same commit if it changes anything; empty: the runtime itself."""


class RunAccepted(Struct, frozen=True, tag=True):
    """The trigger is in the store. `duplicate`: the Idempotency-Key named an earlier run, which run_id and status are of."""

    run_id: RunId
    seq: int
    agent: AgentRef
    duplicate: bool = False
    merged: bool = False
    """The trigger joined this run, which was queued before it."""
    interrupted: RunId | None = None
    """The run that this one interrupted, while it has not ended: it should get a cancel signal."""
    follows: bool = False
    """Another run of the agent was queued, be it behind this one: whoever comes for either takes both, and needs no second wake.

    Never of an interrupt, and known only if the trigger came with a queue_limit.
    """
    scripted: bool = False
    """Whether a script and no model answers this agent. The Runtime knows and says it; stores leave it as it is."""


class IdempotencyConflict(Struct, frozen=True):
    """The key was used for another body."""

    key: str


class AgentBusy(Struct, frozen=True, tag=True):
    """The trigger is refused: the agent executes this run, or, while it executes none, will execute it next."""

    run_id: RunId


class QueueFull(Struct, frozen=True, tag=True):
    """The trigger is refused: the agent has `limit` queued runs or more."""

    limit: int


class QuotaReached(Struct, frozen=True, tag=True):
    """The trigger, or what else would make more, is refused: its tenant, or the key, has what it may have of a quota (see domain.quota)."""

    quota: str
    limit: int
    until: datetime | None = None
    """When there is more; None for a quota of what there is at a time."""
    of_key: bool = False
    """Whether it is the quota of the key."""

    def error(self, now: datetime) -> QuotaReachedError:
        """Return what callers are told."""
        if self.until is not None:
            wait = max(0.0, (self.until - now).total_seconds())
        else:
            wait = _OPEN_RETRY_SECONDS if self.quota in {OPEN_RUNS, SUSPENDED} else _HELD_RETRY_SECONDS
        return QuotaReachedError(self.quota, self.limit, wait, of_key=self.of_key)


class AgentActivated(Struct, frozen=True):
    """The agent is owned under this epoch."""

    epoch: int
    state: AgentState
    claimed: RunClaimed | None = None
    """The run to execute now, if one was asked for and there is one."""


class OnStandby(Struct, frozen=True):
    """Another cluster, or another node of this one, runs the agents of this store: none was activated."""


class AgentLeaving(Struct, frozen=True):
    """The cluster that handed the lease over still holds the agent, for a call that is under way: see ReleaseLease."""


class RunClaimed(Struct, frozen=True):
    """The run to execute now, with its journal so far: the entry of this claim included, trigger_merged entries left out."""

    run: Run
    journal: tuple[JournalEntry, ...]
    blobs: Mapping[str, str] = field(default_factory=dict)
    """The texts that a resumed run's prompt_built entry names; empty for a fresh run."""
    payload_left: int = 0
    """The characters of the trigger's payload where that is left out for its size; RunById has it."""


class NothingQueued(Struct, frozen=True):
    """The agent has no run to execute."""


class StaleEpoch(Struct, frozen=True):
    """Another activation owns the agent, under `current`."""

    agent: AgentRef
    current: int


class Appended(Struct, frozen=True):
    """The facts are durable."""

    cancel_requested: bool = False
    interrupted_by: RunId | None = None
    over: bool = False
    """The run has ended."""


class RunFinished(Struct, frozen=True):
    """The end is durable."""

    next: RunClaimed | None = None
    admitted: tuple[AgentRef, ...] = ()
    """Agents of the tenant that waited for the quota `running_runs` of it or of a key, and whose turn it is now: they should be woken."""


class RunWaiting(Struct, frozen=True):
    """The requests are durable, and the run waits: it must not be executed before it is claimed again."""

    admitted: tuple[AgentRef, ...] = ()
    """As of RunFinished."""


class RunReleased(Struct, frozen=True):
    """What is known is stored. `resumes`: the run goes on because of it, so its agent should be woken."""

    resumes: bool


class Released(Struct, frozen=True):
    """The agent has no owner now. `pending`: it still has queued runs, so it should be activated again."""

    pending: bool = False


class CancelOutcome(Struct, frozen=True):
    """What the cancel found. `run` is None when there is no such run for the tenant; a final run is left as it is."""

    run: Run | None
    waited: bool = False
    """The run waited for approvals until now: its agent should be woken, to end it."""


class CommandBlocked(Struct, frozen=True):
    """Rows of the command are locked by another transaction. It changed nothing, the others of its batch are committed: try it again."""

    message: str


class CommandFailed(Struct, frozen=True):
    """The command could not be applied though the others of its transaction were. `message` says why."""

    message: str
