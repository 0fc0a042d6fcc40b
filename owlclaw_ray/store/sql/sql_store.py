"""The Store over a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias, TypeVar, TypeVarTuple

from sqlalchemy import Connection

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Approval
from owlclaw_ray.domain.callback import Callback
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord, NotedHead
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.schedule import Schedule, ScheduleFilter, Tick
from owlclaw_ray.domain.task import Task
from owlclaw_ray.domain.webhook import Delivery
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import ApprovalId, CallbackId, DeliveryId, RunId, ScheduleId, TaskId, TenantId
from owlclaw_ray.ledger.chain import ChainHead
from owlclaw_ray.ledger.redaction import Redactor
from owlclaw_ray.store.api import (
    AgentRecord,
    ApprovalFilter,
    CallbackFilter,
    Command,
    DeliveryFilter,
    JournalPosition,
    LedgerChain,
    LedgerFilter,
    Outcome,
    RunEnded,
    RunFilter,
    RunProgress,
)
from owlclaw_ray.store.run_ends import Chain, EndedRuns, RunFacts
from owlclaw_ray.store.sql import queries, run_ends
from owlclaw_ray.store.sql.batch import Applier
from owlclaw_ray.store.sql.databases import Database
from owlclaw_ray.store.sql.failures import FAILURES, FailureAction, explain, failure_of
from owlclaw_ray.store.sql.ledger_guard import missing_guards

_RACES = 5
_WRITABLE_SECONDS = 1.0
"""For how long after a commit the store counts as one that can be written."""
Heard: TypeAlias = Callable[[Iterable[RunId], Iterable[ScheduleId]], None]
_Args = TypeVarTuple("_Args")
_T = TypeVar("_T")


class SqlStore:
    """A Store on a database whose schema is up to date. Many may use one PostgreSQL database; one writes at a time here."""

    def __init__(
        self,
        database: Database,
        writer: str,
        redactor: Redactor | None = None,
        restored_guards: tuple[str, ...] = (),
    ) -> None:
        self.restored_guards = restored_guards
        """What the database had lost of the ledger's guards when it was opened."""
        self._database, self._writer = database, writer
        self._applier = Applier(database.dialect, database.engine_dialect, writer, redactor or Redactor())
        self._facts = run_ends.RunFactReader(database.dialect)
        self._journals = queries.JournalReader(database.dialect)
        self._heard: Heard | None = None
        self._turn, self._probing = asyncio.Lock(), asyncio.Lock()
        self._writable_until = 0.0

    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """As CommandStore.apply: in one transaction, whose number of statements does not grow with the commands.

        A command that cannot be applied has the outcome CommandFailed, and the others stand.
        """
        if not commands:
            return ()
        async with self._turn:
            outcomes = await self._apply(commands)
            news = self._applier.committed()
            self._note_commit()
        if self._heard is not None:
            self._heard(*news)
        return outcomes

    def tell(self, heard: Heard) -> None:
        """Call `heard` after every commit with the runs whose journals grew by it, or were given up with the run's end, and
        the schedules that it made or changed.
        """
        self._heard = heard

    async def _apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        apply, races = self._applier.together, 0
        while True:
            try:
                return await self._database.write(apply, commands)
            except Exception as error:
                failure = failure_of(error)
                if failure is FailureAction.COMMAND and apply != self._applier.one_by_one:
                    apply = self._applier.one_by_one
                    continue
                if failure is FailureAction.LOST_RACE and races < _RACES:
                    races += 1
                    continue
                self._writable_until = 0.0
                raise StoreUnavailableError(f"the store did not commit: {explain(error)}") from error

    async def check_writable(self) -> None:
        """As Store.check_writable: by a commit of its own where there was no other."""
        async with self._probing:
            if asyncio.get_running_loop().time() < self._writable_until:
                return
            try:
                await self._database.write(self._applier.probe)
            except FAILURES as error:
                raise StoreUnavailableError(f"the store cannot be written: {explain(error)}") from error
            self._note_commit()

    def _note_commit(self) -> None:
        self._writable_until = asyncio.get_running_loop().time() + _WRITABLE_SECONDS

    async def _read(self, query: Callable[[Connection, *_Args], _T], *args: *_Args) -> _T:
        try:
            return await self._database.read(query, *args)
        except FAILURES as error:
            raise StoreUnavailableError(f"the store cannot be read: {explain(error)}") from error

    async def run(self, tenant: TenantId, run_id: RunId) -> Run | None:
        """As RunStore.run."""
        return await self._read(queries.read_run, tenant, run_id)

    async def runs(self, where: RunFilter) -> Sequence[Run]:
        """As RunStore.runs."""
        return await self._read(queries.read_runs, where)

    async def journal(self, tenant: TenantId, run_id: RunId, after: int = 0) -> Sequence[JournalEntry]:
        """As RunStore.journal."""
        return await self._read(queries.read_journal, tenant, run_id, after)

    async def agent(self, agent: AgentRef) -> AgentRecord | None:
        """As RunStore.agent."""
        return await self._read(queries.read_agent, agent)

    async def watched(self, positions: Sequence[JournalPosition]) -> Sequence[RunProgress | None]:
        """As RunStore.watched."""
        return await self._read(self._journals.watched, positions)

    async def moved(self, positions: Sequence[JournalPosition]) -> Sequence[RunId]:
        """As RunStore.moved."""
        return await self._read(self._journals.moved, positions)

    async def agents(self, tenant: TenantId, after: str = "", limit: int = 1_000) -> Sequence[AgentRecord]:
        """As RunStore.agents."""
        return await self._read(queries.read_agents, tenant, after, limit)

    async def agents_with_work(self, limit: int = 10_000) -> Sequence[AgentRef]:
        """As RunStore.agents_with_work."""
        return await self._read(queries.read_agents_with_work, limit)

    async def family(
        self, tenant: TenantId, definition: str, key_prefix: str, limit: int = 1_000
    ) -> Sequence[AgentRecord]:
        """As RunStore.family."""
        return await self._read(queries.read_family, tenant, definition, key_prefix, limit)

    async def agents_of(self, definition: str, limit: int = 1_000) -> Sequence[AgentRef]:
        """As RunStore.agents_of."""
        return await self._read(queries.read_agents_of, definition, limit)

    async def released_runs(self, limit: int = 1_000) -> Sequence[RunEnded]:
        """As RunStore.released_runs."""
        return await self._read(queries.read_released_runs, limit)

    async def task(self, tenant: TenantId, task_id: TaskId) -> Task | None:
        """As TaskStore.task."""
        return await self._read(queries.read_task, tenant, task_id)

    async def tasks(self, owner: AgentRef, limit: int = 100) -> Sequence[Task]:
        """As TaskStore.tasks."""
        return await self._read(queries.read_tasks, owner, limit)

    async def due_schedules(self, now: datetime, limit: int = 500) -> Sequence[Schedule]:
        """As ScheduleStore.due_schedules."""
        return await self._read(queries.read_due_schedules, now, limit)

    async def next_due(self) -> datetime | None:
        """As ScheduleStore.next_due."""
        return await self._read(queries.read_next_due)

    async def upcoming_schedules(self, limit: int) -> Mapping[ScheduleId, datetime]:
        """As ScheduleStore.upcoming_schedules."""
        return await self._read(queries.read_upcoming_schedules, limit)

    async def schedule(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule | None:
        """As ScheduleStore.schedule."""
        return await self._read(queries.read_schedule, tenant, schedule_id)

    async def schedules(self, where: ScheduleFilter) -> Sequence[Schedule]:
        """As ScheduleStore.schedules."""
        return await self._read(queries.read_schedules, where)

    async def schedules_named(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Schedule]:
        """As ScheduleStore.schedules_named."""
        return await self._read(queries.read_schedules_named, schedule_ids)

    async def paused_heartbeats(self, limit: int = 1_000) -> Sequence[Schedule]:
        """As DeliveryStore.paused_heartbeats."""
        return await self._read(queries.read_paused_heartbeats, limit)

    async def ticks(
        self, schedule_id: ScheduleId, before: datetime | None = None, limit: int = 1_000
    ) -> Sequence[Tick]:
        """As ScheduleStore.ticks."""
        return await self._read(queries.read_ticks, schedule_id, before, limit)

    async def approval(self, tenant: TenantId, approval_id: ApprovalId) -> Approval | None:
        """As ApprovalStore.approval."""
        return await self._read(queries.read_approval, tenant, approval_id)

    async def approvals(self, where: ApprovalFilter) -> Sequence[Approval]:
        """As ApprovalStore.approvals."""
        return await self._read(queries.read_approvals, where)

    async def expired_approvals(self, now: datetime, limit: int = 500) -> Sequence[Approval]:
        """As ApprovalStore.expired_approvals."""
        return await self._read(queries.read_expired_approvals, now, limit)

    async def delivery(self, tenant: TenantId, delivery_id: DeliveryId) -> Delivery | None:
        """As DeliveryStore.delivery."""
        return await self._read(queries.read_delivery, tenant, delivery_id)

    async def deliveries(self, where: DeliveryFilter) -> Sequence[Delivery]:
        """As DeliveryStore.deliveries."""
        return await self._read(queries.read_deliveries, where)

    async def waiting_deliveries(self, agent: AgentRef, limit: int = 100) -> Sequence[Delivery]:
        """As DeliveryStore.waiting_deliveries."""
        return await self._read(queries.read_waiting_deliveries, agent, limit)

    async def old_deliveries(self, before: datetime, limit: int = 500) -> Sequence[DeliveryId]:
        """As DeliveryStore.old_deliveries."""
        return await self._read(queries.read_old_deliveries, before, limit)

    async def callback(self, tenant: TenantId, callback_id: CallbackId) -> Callback | None:
        """As CallbackStore.callback."""
        return await self._read(queries.read_callback, tenant, callback_id)

    async def callbacks(self, where: CallbackFilter) -> Sequence[Callback]:
        """As CallbackStore.callbacks."""
        return await self._read(queries.read_callbacks, where)

    async def due_callbacks(self, now: datetime, per_host: int, limit: int = 500) -> Sequence[Callback]:
        """As CallbackStore.due_callbacks."""
        return await self._read(queries.read_due_callbacks, self._database.dialect, now, per_host, limit)

    async def old_callbacks(self, before: datetime, limit: int = 500) -> Sequence[CallbackId]:
        """As CallbackStore.old_callbacks."""
        return await self._read(queries.read_old_callbacks, before, limit)

    async def pending_callbacks(self) -> int:
        """As CallbackStore.pending_callbacks."""
        return await self._read(queries.read_pending_callbacks)

    async def ledger(self, where: LedgerFilter) -> Sequence[ChainedRecord]:
        """As LedgerStore.ledger."""
        return await self._read(queries.read_ledger, where)

    async def verify_ledger(self, tenant: TenantId, noted: Sequence[NotedHead] = ()) -> Sequence[ChainBreak]:
        """As LedgerStore.verify_ledger, on one moment of the store; it reads every record of the tenant, in pages."""
        return await self._read(queries.read_chain_breaks, tenant, noted)

    async def missing_guards(self) -> Sequence[str]:
        """As LedgerStore.missing_guards."""
        return await self._read(missing_guards)

    async def ledger_chains(self, tenant: TenantId) -> Sequence[LedgerChain]:
        """As LedgerStore.ledger_chains."""
        return await self._read(queries.read_ledger_chains, tenant)

    async def own_heads(self) -> Sequence[ChainHead]:
        """Return the ends of the chains that this store writes, of all tenants."""
        return await self._read(queries.read_own_heads, self._writer)

    async def chains(self) -> Mapping[Chain, int]:
        """As RunEnds.chains."""
        return await self._read(run_ends.read_chains)

    async def ended(self, chain: Chain, after: int, most: int) -> EndedRuns:
        """As RunEnds.ended."""
        return await self._read(run_ends.read_ended, chain, after, most)

    async def backlog(self, chain: Chain, after: int) -> int:
        """As RunEnds.backlog."""
        return await self._read(run_ends.read_backlog, chain, after)

    async def facts(self, runs: Sequence[RunId]) -> Sequence[RunFacts]:
        """As RunEnds.facts."""
        return await self._read(self._facts.read, runs)

    async def active_runs(self) -> Mapping[RunStatus, int]:
        """As RunStore.active_runs."""
        return await self._read(queries.read_active_runs)

    async def close(self) -> None:
        """As Store.close."""
        await self._database.close()
