"""The part of the store that one batch of commands touches, in memory, and what the batch changes of it.

A batch is loaded with a fixed number of statements, its commands are applied one after another to these objects (so that
each sees what those before it did), and the changes are written with a fixed number of statements. While it lasts, the
rows of its agents are locked: everything loaded stays true until the commit.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum, auto
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from owlclaw_ray.domain.access_key import AccessKey
from owlclaw_ray.domain.approval import Approval, ApprovalStatus
from owlclaw_ray.domain.callback import Callback, CallbackStatus, callback_id_of
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.quota import KeyQuota, Quotas
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.schedule import Schedule, Tick
from owlclaw_ray.domain.task import Task
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.domain.webhook import Delivery
from owlclaw_ray.ids import KeyId, RunId, TenantId
from owlclaw_ray.store.commands import ClusterLease, ClusterNode, NodeState, StaleTerm
from owlclaw_ray.store.queries import LedgerChain
from owlclaw_ray.store.sql.codec import (
    agent_key,
    agent_of,
    blob_key,
    dump,
    from_micros,
    load,
    load_result,
    load_trigger,
    optional_micros,
    optional_time,
    to_micros,
)
from owlclaw_ray.store.sql.queue_order import priority_of

EPOCH_AFTER_WAIT = 0
"""The epoch, which no activation has, of a running run that has just ceased to wait."""

UNLOADED_TRIGGER = Trigger(TriggerKind.API)
"""Stands in a run whose trigger was not loaded; it is replaced before the outcome leaves the store."""


class RunRow(Struct, eq=False):
    """A run. `trigger` is None where it was not loaded; `recorded_calls` counts tool results, None where not counted."""

    seq: int
    run_id: str
    agent: str
    created_at: int
    status: RunStatus
    started_at: int | None = None
    finished_at: int | None = None
    cancel_requested: bool = False
    claimed_epoch: int = 0
    result: str | None = None
    rank: int = 0
    deadline: int | None = None
    merge_key: str | None = None
    interrupted_by: str | None = None
    reserves: bool = False
    awaits: str | None = None
    counts_for: str | None = None
    """The keys of whose quotas it is, see `keys`."""
    last_entry: int = 0
    trigger: str | None = None
    payload: str | None = None
    payload_left: int = 0
    """Its characters if it was not loaded because it is large."""
    recorded_calls: int | None = None

    @property
    def tenant(self) -> TenantId:
        """The tenant of its agent."""
        return agent_of(self.agent).tenant

    @property
    def keys(self) -> tuple[KeyId, ...]:
        """The keys that it counts for as long as it is not over."""
        return keys_of(self.counts_for)

    @property
    def place(self) -> tuple[int, int]:
        """What orders the queue."""
        return self.rank, self.seq

    @property
    def ends(self) -> bool:
        """Whether it is executed, and asked to end."""
        return (
            self.status is RunStatus.RUNNING and self.claimed_epoch != EPOCH_AFTER_WAIT and bool(self.cancel_requested)
        )

    @property
    def is_executed(self) -> bool:
        """Whether some activation executes it, or did and is to be followed by another."""
        return self.status is RunStatus.RUNNING and self.claimed_epoch != EPOCH_AFTER_WAIT

    @property
    def waited(self) -> bool:
        """Whether it goes on after waiting, and nobody claimed it yet."""
        return self.status is RunStatus.RUNNING and self.claimed_epoch == EPOCH_AFTER_WAIT

    def snapshot(self) -> Run:
        """Return the run as it stands now, its trigger UNLOADED_TRIGGER if that was not loaded."""
        return Run(
            RunId(self.run_id),
            self.seq,
            agent_of(self.agent),
            UNLOADED_TRIGGER if self.trigger is None else load_trigger(self.trigger, self.payload),
            self.status,
            from_micros(self.created_at),
            optional_time(self.started_at),
            optional_time(self.finished_at),
            cancel_requested=bool(self.cancel_requested),
            result=load_result(self.result),
            priority=priority_of(self.rank),
            deadline=optional_time(self.deadline),
            interrupted_by=None if self.interrupted_by is None else RunId(self.interrupted_by),
            awaits=awaited_by(self.awaits),
        )


class AgentRow(Struct, eq=False):
    """An agent, with the front of its queue as far as the batch may need it. `queued` is None where it was not counted."""

    agent: str
    epoch: int
    activation_id: str | None
    state: str
    lineage: str | None = None
    """Of the last run that another agent asked it for; None for an agent that nobody started."""
    node_id: str | None = None
    """Where it was activated last; None on a node that holds no row, and for what an older version activated."""
    queue: deque[RunRow] = field(default_factory=deque)
    running: RunRow | None = None
    """The run that it has begun, be it that this waits for approvals."""
    queued: int | None = None
    open_schedules: int = 0
    """Those that are active or paused, where a limit to them matters."""

    def enqueue(self, run: RunRow) -> None:
        """Put a run at its place in the queue."""
        if self.queue and run.place < self.queue[-1].place:
            insort(self.queue, run, key=attrgetter("place"))
        else:
            self.queue.append(run)
        if self.queued is not None:
            self.queued += 1

    def leave(self, run: RunRow) -> None:
        """Take a queued run out of the queue."""
        if self.queue and self.queue[0] is run:
            self.queue.popleft()
        elif run in self.queue:
            self.queue.remove(run)
        if self.queued is not None:
            self.queued -= 1


class KeyRow(Struct):
    """An Idempotency-Key and the run that it stands for."""

    body_hash: str
    run_id: str
    expires_at: int
    seq: int
    agent: str


class AccountRow(Struct, eq=False):
    """The use of a budget. `alerted`: the amount up to which people were told."""

    account: str
    used: int
    reserved: int
    alerted: int


class ReservationRow(Struct, eq=False):
    """What a call reserved of one account."""

    reservation_id: str
    account: str
    run_id: str
    amount: int


class PutRow(Struct, frozen=True):
    """A task, with the times of its making and of its last change."""

    task: Task
    created_at: int
    at: datetime


class MemoryRow(Struct, frozen=True):
    """The memory of an agent: its version, the change that made it, and its documents as JSON."""

    agent: str
    version: int
    change_id: str
    documents: str


LEASE_ROW = 1
"""The id of the one row of the lease."""


class RowChange(IntEnum):
    """What a batch does to rows: the writer has a statement for each. Rows are kept under their keys; tuples are written as they are."""

    NEW_RUN = auto()
    FOCUS_TERM = auto()
    RUN = auto()
    MERGED_RUN = auto()
    """Queued runs that took over a trigger."""
    AGENT = auto()
    ENTRY = auto()
    BLOB = auto()
    KEY = auto()
    NEW_SCHEDULE = auto()
    SCHEDULE = auto()
    TICK = auto()
    REMOVED_TICK = auto()
    FORGOTTEN_TICKS = auto()
    """Schedules, each with the last due time of which a tick is removed because it is old."""
    SCHEDULE_FOUND_OVER = auto()
    """Schedules, each with the time at which it was found to be over, unless that is noted."""
    REMOVED_SCHEDULE = auto()
    """Schedules that are over; those with ticks stay."""
    REMOVED_RUN = auto()
    REMOVED_JOURNAL = auto()
    """Runs whose journals are given up."""
    REMOVED_ENTRIES = auto()
    """Runs, each with the number of the entry up to which its journal is removed."""
    REMOVED_APPROVALS = auto()
    """Runs whose approvals are removed."""
    REMOVED_TERM = auto()
    UNUSED_BLOB = auto()
    """Texts, each with the moment before which it must have been stored last to be removed."""
    USED_BLOB = auto()
    """Texts that count as stored now, each with the moment before which it must have been stored last."""
    SWEEP = auto()
    EXPIRED_KEYS = auto()
    """The moment before which Idempotency-Keys expired that may be removed."""
    REMOVED_AGENT = auto()
    """Agents that were registered for the batch, and that it made no use of."""
    APPROVAL = auto()
    TASK = auto()
    REMOVED_DELIVERY = auto()
    REMOVED_CALLBACK = auto()
    DELIVERY = auto()
    HANDLED_DELIVERY = auto()
    """Deliveries that waited, with the heartbeat that saw to them."""
    FAILED_DELIVERY = auto()
    """Deliveries that waited, with the heartbeat that saw them and failed, and why."""
    NEW_CALLBACK = auto()
    """Those that are there already stay as they are."""
    DUE_CALLBACKS = auto()
    """Runs that are over, with the time: their callbacks that waited are to be sent."""
    CALLBACK = auto()
    ACCOUNT = auto()
    SETTLED = auto()
    """Reservations that are no more."""
    RESERVATION = auto()
    LEASE = auto()
    MEMORY = auto()
    REPLACED_MEMORY_PARTS = auto()
    """Documents of memories that are written as a whole: their parts up to the version before go."""
    NEW_MEMORY_PART = auto()
    REMOVED_ATTEMPT = auto()
    ARTIFACT_PART = auto()
    ARTIFACT = auto()
    REMOVED_ARTIFACT = auto()
    """Artifacts, and before which moment they must have been stored to be removed."""
    EXPORT_POSITION = auto()
    QUEUE_MINUTE = auto()
    OLD_QUEUE_MINUTES = auto()
    """The moment before which minutes began that are to be removed."""
    CONCURRENCY_LIMIT = auto()
    OLD_CONCURRENCY_LIMITS = auto()
    """The moment before which limits were noted that are to be removed."""
    ACCESS_KEY = auto()
    TENANT = auto()
    REMOVED_SECRET = auto()
    SECRET = auto()
    """Secrets that are made, or whose values are set."""
    REPLACED_CIPHERTEXT = auto()
    """Values of secrets as another key encrypts them, if they are what they were."""
    TENANT_USAGE = auto()
    """What is to be added to counts: lists of keys and amounts."""
    AGENT_USAGE = auto()
    TOOL_USAGE = auto()
    REMOVED_NODE = auto()
    NODE = auto()
    FORGOTTEN_NODES = auto()
    """Clusters; lost nodes of all others are removed."""


RowChanges: TypeAlias = defaultdict[RowChange, dict[Any, Any]]


class WorkingSet(Struct):
    """Everything that the commands of a batch may ask for."""

    agents: dict[str, AgentRow] = field(default_factory=dict)
    runs: dict[str, RunRow] = field(default_factory=dict)
    keys: dict[str, KeyRow] = field(default_factory=dict)
    mergeable: dict[tuple[str, str], RunRow] = field(default_factory=dict)
    """Runs that a trigger may join while they are queued, by agent and merge key."""
    schedules: dict[str, Schedule] = field(default_factory=dict)
    firings: set[str] = field(default_factory=set)
    """Firing ids that are in the store already."""
    fired_runs: dict[str, list[str]] = field(default_factory=dict)
    """Runs, by schedule, that were active when the batch began or were queued in it."""
    run_ticks: dict[str | None, Tick] = field(default_factory=dict)
    """Ticks by their runs: of runs whose ticks commands ask for, and those that the batch made."""
    approvals: dict[str, Approval] = field(default_factory=dict)
    """Those that commands name, and all pending ones of runs that wait."""
    tasks: dict[str, PutRow] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    """Those that commands name, without their bodies."""
    callbacks: dict[str, Callback] = field(default_factory=dict)
    """Those that commands name."""
    memories: dict[str, MemoryRow] = field(default_factory=dict)
    """Of those agents whose memories commands name."""
    artifacts: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """The bytes of artifacts that commands name, and when they were stored, where they are counted."""
    access_keys: dict[str, AccessKey] = field(default_factory=dict)
    """Those that commands name."""
    tenants: dict[str, Tenant] = field(default_factory=dict)
    """Those that commands name."""
    suspended: set[str] = field(default_factory=set)
    """Tenants of runs that are submitted or claimed, those that are suspended."""
    removed: dict[TenantId, Mapping[str, int]] = field(default_factory=dict)
    """How many rows of each table this batch removed of tenants that are being deleted."""
    left: dict[TenantId, Mapping[str, int]] = field(default_factory=dict)
    """How many rows of each table are left of tenants whose ledgers are to be sealed."""
    chain_ends: dict[TenantId, Sequence[LedgerChain]] = field(default_factory=dict)
    """The ends of the ledger chains of those tenants."""
    quotas: dict[str, Quotas] = field(default_factory=dict)
    """Of the tenants whose agents commands begin, make or end something of, those that have any."""
    key_quotas: dict[str, KeyQuota] = field(default_factory=dict)
    """Of the keys for which runs count, those that have any; those that trigger runs bring theirs along."""
    freed: set[TenantId] = field(default_factory=set)
    """Tenants with a quota of running runs of which a run is not executed any more."""
    freed_keys: set[tuple[TenantId, KeyId]] = field(default_factory=set)
    """And keys."""
    new_agents: set[str] = field(default_factory=set)
    """Agents of tenants with a quota of agents that were registered for this batch, and that nothing keeps yet."""
    records: set[tuple[str, str]] = field(default_factory=set)
    """Ledger records that are in the store already, each by its run and its own id."""
    accounts: dict[str, AccountRow] = field(default_factory=dict)
    reservations: dict[str, list[ReservationRow]] = field(default_factory=dict)
    """By their ids."""
    attempts: dict[str, float | None] = field(default_factory=dict)
    """How many seconds ago those that commands name began; None for those that never will."""
    free_seqs: deque[int] = field(default_factory=deque)
    lease: ClusterLease = ClusterLease()
    cluster: str = ""
    """Whose commands these are; empty where clusters share no store."""
    oldest_schema: str = ""
    """The oldest schema whose runtimes the database takes, if nodes join."""
    nodes: dict[str, ClusterNode] = field(default_factory=dict)
    """Those that commands name, the one whose commands these are, and those of agents that a cluster which is leaving may have."""
    node_id: str = ""
    """Whose commands these are; empty for one that holds no row."""
    generation: int = 0
    """The generation as which it holds its row."""
    changes: RowChanges = field(default_factory=lambda: defaultdict(dict))
    new_records: list[LedgerRecord] = field(default_factory=list)
    reserved_at: int = 0
    """When something was reserved last."""

    @property
    def on_standby(self) -> bool:
        """Whether agents are not for whose commands these are: another cluster runs those of this store, or none, or its node does
        not hold its row, or is drained.
        """
        return (bool(self.cluster) and self.lease.cluster != self.cluster) or (bool(self.node_id) and not self._serving)

    @property
    def _serving(self) -> bool:
        node = self.nodes.get(self.node_id)
        return node is not None and node.generation == self.generation and node.state is NodeState.ACTIVE

    def is_leaving(self, agent: AgentRow) -> bool:
        """Whether the agent belongs to a host of the cluster that handed the lease over, and to whom it belongs lives."""
        if not self.lease.leaving or agent.activation_id is None or agent.node_id is None:
            return False
        node = self.nodes.get(agent.node_id)
        return node is not None and node.cluster == self.lease.leaving and node.state is not NodeState.LOST

    def stale_term(self, term: int) -> StaleTerm | None:
        """Return what a Directory is told that does not hold the lease under this term any more; 0 is that of one that has no lease."""
        stale = bool(self.cluster) and term and term != self.lease.term
        return StaleTerm(self.lease) if stale else None

    def changed_node(self, node: ClusterNode) -> None:
        """Note that the row of a node is to be written."""
        self.nodes[node.node_id] = node
        self.changes[RowChange.NODE][node.node_id] = node

    def put_key(self, key: AccessKey) -> None:
        """Note that an access key is to be written."""
        self.access_keys[key.key_id] = self.changes[RowChange.ACCESS_KEY][key.key_id] = key

    def put_tenant(self, tenant: Tenant) -> None:
        """Note that a tenant is to be written."""
        self.tenants[tenant.tenant] = self.changes[RowChange.TENANT][tenant.tenant] = tenant

    def forget_node(self, node_id: str) -> None:
        """Note that the row of a node is to be removed."""
        self.nodes.pop(node_id, None)
        self.changes[RowChange.NODE].pop(node_id, None)
        self.changes[RowChange.REMOVED_NODE][node_id] = (node_id,)

    def forget_lost_nodes(self, cluster: str) -> None:
        """Note that the rows of lost nodes of other clusters are to be removed."""
        self.changes[RowChange.FORGOTTEN_NODES][cluster] = (NodeState.LOST.value, cluster)

    def changed_lease(self, lease: ClusterLease) -> None:
        """Note that the lease is to be written."""
        self.lease = lease
        self.changes[RowChange.LEASE][LEASE_ROW] = (*astuple(lease), LEASE_ROW)

    def add_run(self, run: RunRow) -> None:
        """Put a new run into its agent's queue."""
        self.runs[run.run_id] = run
        self.changes[RowChange.NEW_RUN][run.seq] = run
        self.agents[run.agent].enqueue(run)
        if run.merge_key is not None:
            self.mergeable[run.agent, run.merge_key] = run

    def move_up(self, run: RunRow, rank: int) -> None:
        """Give a queued run this rank, if it is the better one."""
        if rank < run.rank:
            agent = self.agents[run.agent]
            agent.leave(run)
            run.rank = rank
            agent.enqueue(run)

    def merged_run(self, run: RunRow) -> None:
        """Note that a queued run's trigger, rank and deadline are to be written."""
        if run.seq not in self.changes[RowChange.NEW_RUN]:
            self.changes[RowChange.MERGED_RUN][run.seq] = run

    def note_key(self, slot: str, row: KeyRow) -> None:
        """Note what an Idempotency-Key stands for from now on."""
        self.keys[slot] = row
        self.changes[RowChange.KEY][slot] = (slot, row.body_hash, row.run_id, row.expires_at)

    def changed_run(self, run: RunRow) -> None:
        """Note that the run is to be written."""
        if run.seq not in self.changes[RowChange.NEW_RUN]:
            self.changes[RowChange.RUN][run.seq] = run

    def changed_agent(self, agent: AgentRow) -> None:
        """Note that the agent is to be written."""
        self.changes[RowChange.AGENT][agent.agent] = agent

    def append(self, run: RunRow, entries: Sequence[JournalEntry]) -> None:
        """Append entries to a run's journal, but those that it has; raises ValueError if one is left out between."""
        written = self.changes[RowChange.ENTRY]
        for entry in entries:
            if entry.seq <= run.last_entry:
                continue
            if entry.seq != run.last_entry + 1:
                raise ValueError(
                    f"entry {entry.seq} of run {run.run_id} does not follow its last entry {run.last_entry}"
                )
            row = (run.run_id, entry.seq, entry.kind.value, to_micros(entry.at), dump(entry.data))
            written[run.run_id, entry.seq] = row
            run.last_entry = entry.seq
            if entry.kind is EntryKind.TOOL_FINISHED and run.recorded_calls is not None:
                run.recorded_calls += 1

    def note(self, run: RunRow, kind: EntryKind, at: int, data: dict[str, Any]) -> None:
        """Append an entry of the store's own."""
        self.append(run, (JournalEntry(run.last_entry + 1, kind, from_micros(at), data),))

    def record(self, records: Sequence[LedgerRecord]) -> None:
        """Append records to the ledger, but those that it has."""
        for record in records:
            key = (record.run_id, record.record_id)
            if key not in self.records:
                self.records.add(key)
                self.new_records.append(record)

    def keep(self, tenant: TenantId, blobs: Mapping[str, str], at: datetime | None) -> None:
        """Store texts of a tenant by their hashes. `at`: the time of the last entry that names them."""
        keys, used_at = {blob_key(tenant, digest): text for digest, text in blobs.items()}, optional_micros(at) or 0
        self.changes[RowChange.BLOB].update((key, (key, dump(text), used_at)) for key, text in keys.items())

    def reserve(self, run: RunRow | None, reservation_id: str, amounts: Mapping[str, int], at: int) -> None:
        """Set amounts aside in accounts."""
        run_id = "" if run is None else run.run_id
        rows = [ReservationRow(reservation_id, account, run_id, amount) for account, amount in amounts.items()]
        self.reservations[reservation_id] = rows
        self.reserved_at = max(at, self.reserved_at)
        for row in rows:
            self.changes[RowChange.RESERVATION][reservation_id, row.account] = row
            self._account(row.account).reserved += row.amount
        if run is not None and not run.reserves:
            run.reserves = True
            self.changed_run(run)

    def settle(self, reservation_id: str, used: Mapping[str, int]) -> list[AccountRow]:
        """Put what was used in the place of a reservation, if it stands; return its accounts."""
        accounts = []
        for row in self.reservations.pop(reservation_id, ()):
            account = self._account(row.account)
            account.reserved -= row.amount
            account.used += used.get(row.account, 0)
            accounts.append(account)
            if self.changes[RowChange.RESERVATION].pop((reservation_id, row.account), None) is None:
                self.changes[RowChange.SETTLED][reservation_id] = (reservation_id,)
        return accounts

    def charge(self, used: Mapping[str, int]) -> list[AccountRow]:
        """Add what was used to accounts that there are, and return these."""
        accounts = [self._account(name) for name in used if name in self.accounts]
        for account in accounts:
            account.used += used[account.account]
        return accounts

    def _account(self, name: str) -> AccountRow:
        account = self.changes[RowChange.ACCOUNT][name] = self.accounts[name]
        return account

    def add_schedule(self, schedule: Schedule) -> None:
        """Store a new schedule."""
        self.schedules[schedule.schedule_id] = schedule
        self.changes[RowChange.NEW_SCHEDULE][schedule.schedule_id] = schedule
        self._agent_of(schedule).open_schedules += 1

    def change_schedule(self, schedule: Schedule) -> None:
        """Put this in the place of a schedule that was active or paused."""
        self.schedules[schedule.schedule_id] = schedule
        self.changes[RowChange.SCHEDULE][schedule.schedule_id] = schedule
        if schedule.status.final:
            self._agent_of(schedule).open_schedules -= 1

    def remove(self, change: RowChange, keys: Iterable[str]) -> None:
        """Note that the rows of these keys are to be removed."""
        self.changes[change].update((key, (key,)) for key in keys)

    def add_ticks(self, ticks: Sequence[Tick]) -> None:
        """Store new ticks."""
        self.changes[RowChange.TICK].update((tick.firing_id, tick) for tick in ticks)
        self.firings.update(tick.firing_id for tick in ticks)
        self.run_ticks |= {tick.run_id: tick for tick in ticks}

    def change_tick(self, tick: Tick) -> None:
        """Put this in the place of a tick."""
        self.changes[RowChange.TICK][tick.firing_id] = tick

    def put_task(self, row: PutRow) -> None:
        """Store a task, new or changed."""
        self.tasks[row.task.task_id] = self.changes[RowChange.TASK][row.task.task_id] = row

    def put_memory(self, row: MemoryRow) -> None:
        """Store the memory of an agent, which is new or changed."""
        self.memories[row.agent] = row
        self.changes[RowChange.MEMORY][row.agent] = (row.version, row.change_id, row.documents, row.agent)

    def add_memory_part(self, agent: str, document: str, version: int, text: bytes, *, replaces: bool) -> None:
        """Put a text at the end of a document, or in its place."""
        new = self.changes[RowChange.NEW_MEMORY_PART]
        if replaces:
            self.changes[RowChange.REPLACED_MEMORY_PARTS][agent, document] = (agent, document)
            for key in [key for key in new if key[:2] == (agent, document)]:
                del new[key]
        new[agent, document, version] = (agent, document, version, text)

    def put_delivery(self, delivery: Delivery) -> None:
        """Store a delivery, in the place of one of the same id."""
        delivery_id = delivery.delivery_id
        self.deliveries[delivery_id] = self.changes[RowChange.DELIVERY][delivery_id] = delivery

    def handled(self, run: RunRow, delivery_ids: Iterable[str]) -> None:
        """Note that a heartbeat saw to deliveries of its agent, as far as they wait."""
        self.changes[RowChange.HANDLED_DELIVERY].update((each, (run.run_id, each, run.agent)) for each in delivery_ids)

    def failed(self, run: RunRow, delivery_ids: Iterable[str], why: str) -> None:
        """Note that a heartbeat saw deliveries of its agent and failed, as far as they wait."""
        reason = dump(why)
        self.changes[RowChange.FAILED_DELIVERY].update(
            (each, (reason, run.run_id, each, run.agent)) for each in delivery_ids
        )

    def call_back(self, run: RunRow, urls: Iterable[str], at: int) -> None:
        """See to it that these addresses are told of the run's end."""
        for url in urls:
            callback_id = callback_id_of(run.run_id, url)
            if callback_id not in self.callbacks:
                callback = Callback(callback_id, agent_of(run.agent), RunId(run.run_id), url, from_micros(at))
                self.callbacks[callback_id] = self.changes[RowChange.NEW_CALLBACK][callback_id] = callback

    def run_over(self, run: RunRow, at: int) -> None:
        """Note that what is to be told of the run can be sent."""
        self.changes[RowChange.DUE_CALLBACKS][run.run_id] = (at, run.run_id)
        waiting = [each for each in self.callbacks.values() if each.run_id == run.run_id]
        for each in waiting:
            if each.status is CallbackStatus.WAITING:
                due = replace(
                    each, status=CallbackStatus.PENDING, next_try_at=from_micros(at), version=each.version + 1
                )
                self.callbacks[each.callback_id] = due
                if each.callback_id in self.changes[RowChange.NEW_CALLBACK]:
                    self.changes[RowChange.NEW_CALLBACK][each.callback_id] = due

    def change_callback(self, callback: Callback) -> None:
        """Put this in the place of a callback."""
        callback_id = callback.callback_id
        self.callbacks[callback_id] = self.changes[RowChange.CALLBACK][callback_id] = callback

    def put_approval(self, approval: Approval) -> None:
        """Store an approval, new or changed."""
        approval_id = approval.request.approval_id
        self.approvals[approval_id] = self.changes[RowChange.APPROVAL][approval_id] = approval

    def pending_approvals_of(self, run: RunRow) -> list[Approval]:
        """Return what a waiting run waits for, by id."""
        of_run = (each for each in self.approvals.values() if each.request.run_id == run.run_id)
        pending = (each for each in of_run if each.status is ApprovalStatus.PENDING)
        return sorted(pending, key=lambda each: each.request.approval_id)

    def active_runs_of(self, schedule: Schedule) -> list[RunRow]:
        """Return the runs of a schedule's firings that are not over, oldest first."""
        owner, fired = agent_key(schedule.agent), self.fired_runs.get(schedule.schedule_id, ())
        runs = {run.seq: run for run in map(self.runs.__getitem__, fired) if run.agent == owner}
        return [run for _, run in sorted(runs.items()) if not run.status.final]

    def _agent_of(self, schedule: Schedule) -> AgentRow:
        return self.agents[agent_key(schedule.agent)]


def keys_of(text: str | None) -> tuple[KeyId, ...]:
    """Return the keys that a column `counts_for` names: between blanks, so that each can be looked for."""
    return () if text is None else tuple(map(KeyId, text.split()))


def counting_for(keys: Iterable[KeyId]) -> str | None:
    """Return these keys as a column `counts_for` names them."""
    names = " ".join(dict.fromkeys(keys))
    return f" {names} " if names else None


def awaited_by(text: str | None) -> tuple[RunId, ...]:
    """Return the runs that a column `awaits` names."""
    return () if text is None else tuple(load(text))
