"""What a batch of commands needs to know of the store, found from the commands alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import BudgetWindow
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.sql.codec import agent_key, to_micros


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
    starts: dict[str, set[BudgetWindow]] = field(default_factory=dict)
    """Tenants of which runs are submitted, and the minutes in which."""
    counting_keys: dict[str, set[BudgetWindow]] = field(default_factory=dict)
    """Keys for which runs that are submitted count, and the minutes in which."""
    key_quotas: dict[str, KeyQuota] = field(default_factory=dict)
    """Of those of them whose quotas commands bring along."""
    counts: set[str] = field(default_factory=set)
    """Agents of whose tenants something begins, is made or ends that quotas may count."""
    claims_agents: bool = False
    """Whether agents or runs are claimed, which is for the cluster that holds the lease."""
    changes_lease: bool = False
    nodes: set[str] = field(default_factory=set)
    """To lock."""
    joins: bool = False
    """Whether nodes join, which those of a schema may not that the database does not take any more."""
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
    memories: set[str] = field(default_factory=set)
    """Agents whose memories are to be locked, and made if they are new."""
    artifacts: set[tuple[str, str]] = field(default_factory=set)
    """Artifacts, each by its agent and its id, whose sizes are asked for where they are counted."""
    access_keys: set[str] = field(default_factory=set)
    """To lock."""
    tenants: set[str] = field(default_factory=set)
    """To lock."""
    locked: set[TenantId] = field(default_factory=set)
    """Tenants that are locked already."""
    emptied: set[TenantId] = field(default_factory=set)
    """Tenants that are being deleted, of which some rows are to be removed."""
    seals: set[TenantId] = field(default_factory=set)
    """Tenants that are being deleted, whose ledgers are to be sealed if no rows are left."""
    records: set[tuple[str, str]] = field(default_factory=set)
    """Ledger records, each by its run and its own id."""

    attempts: dict[str, bool] = field(default_factory=dict)
    """Attempts to make if they are new, each with whether the first command that names it begins it."""
    accounts: dict[str, int | None] = field(default_factory=dict)
    """Accounts that are claimed of, each with when it expires."""
    charged: set[str] = field(default_factory=set)
    """Accounts that are charged without a reservation, too."""
    reservations: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    """Runs that end: what they reserved is given back."""
    waits: bool = False
    """Whether runs are to wait for people, or for others."""
    ticked: set[str] = field(default_factory=set)
    """Runs whose ticks are asked for."""

    @property
    def removals(self) -> int:
        """How many runs the batch may take out of any agent's queue at most."""
        return max(self.takes.values(), default=0) + len(self.cancelled)

    def agent(self, agent: AgentRef, made_at: datetime | None = None) -> str:
        """Note an agent, to be made at this time if it is new and a time is given; return its key."""
        key = agent_key(agent)
        self.agents.add(key)
        if made_at is not None:
            self.registered.setdefault(key, to_micros(made_at))
        return key

    def claim(self, key: str, epoch: int) -> None:
        """Note the claim of a run of an agent."""
        self.takes[key] += 1
        self.counts.add(key)
        self.claims_agents = True
        self.claims.setdefault(key, set()).add(epoch)

    def record(self, records: Iterable[LedgerRecord]) -> None:
        """Note ledger records that are to be appended."""
        self.records.update((record.run_id, record.record_id) for record in records)
