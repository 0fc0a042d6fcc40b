"""What a batch of commands needs to know of the store, found from the commands alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import assert_never

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.schedule import OverlapPolicy
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger
from owlclaw_ray.domain.webhook import DeliveryStatus
from owlclaw_ray.ids import derived_id
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AppendJournal,
    AppendLedger,
    AwaitApprovals,
    AwaitRuns,
    BackfillTick,
    CancelRun,
    CancelSchedule,
    ChangeCallback,
    ClaimRun,
    Command,
    CreateSchedule,
    DecideApproval,
    ExpireApproval,
    FinishRun,
    FireSchedule,
    ForgetWebhooks,
    PauseSchedule,
    PutTask,
    ReceiveDelivery,
    ReleaseAgent,
    ReserveBudget,
    ResumeSchedule,
    RunEnded,
    SettleBudget,
    SubmitRun,
)
from owlclaw_ray.store.sql.codec import agent_key, optional_micros, tenant_key, to_micros

_ANY_EPOCH = -1
"""Of an activation that claims a run: it will be another than the one that claimed the run before."""


class RowNeeds(Struct):
    """Keys of the rows to load. Agents are named by their keys."""

    agents: set[str] = field(default_factory=set)
    """To lock."""
    registered: dict[str, int] = field(default_factory=dict)
    """To make if they are new, with the time of the first command that names them."""
    runs: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    """Runs to cancel: their agents are known only from the store. Those of followed schedules join them when they are found."""
    takes: Counter[str] = field(default_factory=Counter)
    """How many runs the batch may take from the front of each agent's queue."""
    looks: set[str] = field(default_factory=set)
    """Agents whose running run, or whether any is queued, is asked for."""
    merges: set[str] = field(default_factory=set)
    """Agents among whose queued runs one may be merged into, and the merge keys of such."""
    merge_keys: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    """Agents whose queued runs are to be counted, as far as the largest limit matters."""
    queue_limit: int = 0
    claims: dict[str, set[int]] = field(default_factory=dict)
    """The epochs under which runs of each agent are claimed."""
    keys: set[str] = field(default_factory=set)
    submissions: int = 0
    schedules: set[str] = field(default_factory=set)
    fired: set[str] = field(default_factory=set)
    """Schedules to fire: their agents are known only from the store."""
    followed: set[str] = field(default_factory=set)
    """Schedules of which the runs that are not over are asked for."""
    firings: set[str] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    """Agents whose active schedules are to be counted."""
    tasks: set[str] = field(default_factory=set)
    approvals: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)
    """Approvals to settle: their agents and runs are known only from the store."""
    deliveries: set[str] = field(default_factory=set)
    callbacks: set[str] = field(default_factory=set)
    records: set[tuple[str, str]] = field(default_factory=set)
    """Ledger records, each by its run and its own id."""

    accounts: dict[str, int | None] = field(default_factory=dict)
    """Accounts that are claimed of, each with when it expires."""
    charged: set[str] = field(default_factory=set)
    """Accounts that are charged without a reservation, too."""
    reservations: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    """Runs that end: what they reserved is given back."""
    ticked: set[str] = field(default_factory=set)
    """Runs whose ticks are asked for."""

    @property
    def removals(self) -> int:
        """How many runs the batch may take out of any agent's queue at most."""
        return max(self.takes.values(), default=0) + len(self.cancelled)

    def record(self, records: Iterable[LedgerRecord]) -> None:
        """Note ledger records that are to be appended."""
        self.records.update((record.run_id, record.record_id) for record in records)

    def submit(self, command: SubmitRun) -> None:
        """Note what a SubmitRun needs."""
        key = agent_key(command.agent)
        self.agents.add(key)
        self.registered.setdefault(key, to_micros(command.at))
        self.runs.add(command.run_id)
        self.submissions += 1
        if command.idempotency is not None:
            self.keys.add(tenant_key(command.agent.tenant, command.idempotency.key))
        if command.queue_limit is not None:
            self.counted.add(key)
            self.queue_limit = max(self.queue_limit, command.queue_limit)
        match command.busy:
            case BusyPolicy.REJECT | BusyPolicy.INTERRUPT:
                self.looks.add(key)
            case BusyPolicy.COALESCE:
                self.merges.add(key)
                self.merge_keys.add(merge_key(command.trigger))
                self.keys.add(trigger_key(command.run_id))
            case BusyPolicy.ENQUEUE:
                pass

    def claim(self, command: ClaimRun | FinishRun) -> None:
        """Note what the claim of a run needs."""
        key = agent_key(command.agent)
        self.takes[key] += 1
        self.claims.setdefault(key, set()).add(command.epoch)

    def finish(self, command: FinishRun) -> None:
        """Note what the end of a run needs."""
        self.finished.add(command.run_id)
        if command.idle is not None:
            self.ticked.update(filter(None, (command.run_id, command.idle.replaces)))
        if command.claim_next:
            self.claim(command)

    def budget(self, command: ReserveBudget | SettleBudget) -> None:
        """Note what a call's use of budgets needs."""
        self.agents.add(agent_key(command.agent))
        if command.run_id:
            self.runs.add(command.run_id)
        self.reservations.add(command.reservation_id)
        if isinstance(command, ReserveBudget):
            for claim in command.claims:
                self.accounts[claim.account] = optional_micros(claim.expires_at)
        elif not command.run_id:
            self.charged.update(charge.account for charge in command.charges)

    def activate(self, command: ActivateAgent) -> None:
        """Note what an activation needs."""
        key = agent_key(command.agent)
        self.agents.add(key)
        self.registered.setdefault(key, to_micros(command.at))
        if command.claim:
            self.takes[key] += 1
            self.claims.setdefault(key, set()).add(_ANY_EPOCH)

    def put(self, command: PutTask) -> None:
        """Note what a PutTask needs."""
        key = agent_key(command.task.owner)
        self.agents.add(key)
        self.registered.setdefault(key, to_micros(command.at))
        self.tasks.add(command.task.task_id)

    def receive(self, command: ReceiveDelivery) -> None:
        """Note what a ReceiveDelivery needs."""
        delivery = command.delivery
        self.deliveries.add(delivery.delivery_id)
        if delivery.status is DeliveryStatus.WAITING and delivery.agent is not None:
            key = agent_key(delivery.agent)
            self.agents.add(key)
            self.registered.setdefault(key, to_micros(delivery.received_at))
        if command.run is not None:
            self.submit(command.run)

    def fire(self, command: FireSchedule) -> None:
        """Note what a FireSchedule needs."""
        self.schedules.add(command.schedule_id)
        self.fired.add(command.schedule_id)
        if command.overlap is not OverlapPolicy.ENQUEUE:
            self.followed.add(command.schedule_id)
        self.firings.update(tick.firing_id for tick in command.ticks)
        self.runs.update(tick.run_id for tick in command.ticks if tick.run_id is not None)
        if command.run is not None:
            self.submit(command.run)

    def backfill(self, command: BackfillTick) -> None:
        """Note what a BackfillTick needs."""
        self.agents.add(agent_key(command.agent))
        self.schedules.add(command.tick.schedule_id)
        self.firings.add(command.tick.firing_id)
        self.submit(command.run)


def needs_of(commands: Sequence[Command]) -> RowNeeds:
    """Return what these commands need."""
    needs = RowNeeds()
    for command in commands:
        _note(needs, command)
    return needs


def end_record_id(run_id: str) -> str:
    """Return the id of the ledger record that tells a run's end, the same that the engine gives it."""
    return derived_id("rec", run_id, "run", "end")


def merge_key(trigger: Trigger) -> str:
    """Return what is equal for triggers of one agent that may merge."""
    return derived_id("merge", trigger.kind.value, trigger.focus)


def trigger_key(run_id: str) -> str:
    """Return the Idempotency-Key, which no client can use, of a trigger that was submitted under this id and merged."""
    return f"merged {run_id}"


def _note(needs: RowNeeds, command: Command) -> None:  # noqa: C901, PLR0912, PLR0915 - one case a command
    match command:
        case SubmitRun():
            needs.submit(command)
        case ClaimRun():
            needs.agents.add(agent_key(command.agent))
            needs.claim(command)
        case AppendJournal() | FinishRun() | AwaitRuns():
            needs.agents.add(agent_key(command.agent))
            needs.runs.add(command.run_id)
            needs.record(command.ledger)
            if isinstance(command, FinishRun):
                needs.finish(command)
        case AwaitApprovals():
            needs.agents.add(agent_key(command.agent))
            needs.runs.add(command.run_id)
            needs.approvals.update(each.approval_id for each in command.requests)
            needs.record(command.ledger)
        case RunEnded():
            needs.agents.add(agent_key(command.agent))
            needs.runs.add(command.run_id)
        case PutTask():
            needs.put(command)
        case DecideApproval() | ExpireApproval():
            needs.approvals.add(command.approval_id)
            needs.settled.add(command.approval_id)
        case ActivateAgent():
            needs.activate(command)
        case ReleaseAgent():
            key = agent_key(command.agent)
            needs.agents.add(key)
            needs.looks.add(key)
        case CancelRun():
            needs.runs.add(command.run_id)
            needs.cancelled.add(command.run_id)
            needs.records.add((command.run_id, end_record_id(command.run_id)))
        case CreateSchedule():
            key = agent_key(command.schedule.agent)
            needs.agents.add(key)
            needs.registered.setdefault(key, to_micros(command.schedule.created_at))
            needs.schedules.add(command.schedule.schedule_id)
            needs.limited.add(key)
        case CancelSchedule():
            needs.agents.add(agent_key(command.agent))
            needs.schedules.add(command.schedule_id)
            needs.followed.add(command.schedule_id)
        case PauseSchedule() | ResumeSchedule():
            needs.agents.add(agent_key(command.agent))
            needs.schedules.add(command.schedule_id)
        case BackfillTick():
            needs.backfill(command)
        case FireSchedule():
            needs.fire(command)
        case AppendLedger():
            needs.record(command.records)
            needs.agents.update(agent_key(AgentRef(each.tenant, each.agent_id)) for each in command.records)
        case ReserveBudget() | SettleBudget():
            needs.budget(command)
        case ReceiveDelivery():
            needs.receive(command)
        case ForgetWebhooks():
            pass
        case ChangeCallback():
            needs.callbacks.add(command.callback.callback_id)
        case _:
            assert_never(command)
