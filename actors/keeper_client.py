"""The Keeper, as other processes use it: the store's port over batched actor calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from actors.remote import KEEPER, NamedActor
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Approval
from owlclaw_ray.domain.callback import Callback
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord, NotedHead
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.schedule import Schedule, ScheduleFilter, Tick
from owlclaw_ray.domain.task import Task
from owlclaw_ray.domain.webhook import Delivery
from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.ids import ApprovalId, CallbackId, DeliveryId, RunId, ScheduleId, TaskId, TenantId
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
from owlclaw_ray.store.command_link import CommandLink


class KeeperClient:
    """Implements `Store`. Commands of all callers in this process leave together, see CommandLink."""

    def __init__(self, namespace: str, rest: Callable[[], Awaitable[object]] | None = None, at_once: int = 1) -> None:
        """See CommandLink for `rest` and `at_once`."""
        self._keeper = NamedActor(KEEPER, namespace)
        self._commands = CommandLink(self._send, rest=rest, at_once=at_once)

    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """See CommandLink.apply."""
        return await self._commands.apply(commands)

    async def _send(self, parcels: Sequence[bytes]) -> Sequence[bytes]:
        try:
            return cast("Sequence[bytes]", await self._keeper.ask_packed("apply", parcels))
        except RuntimeUnavailableError as error:
            raise _restarting(error) from error

    async def run(self, tenant: TenantId, run_id: RunId) -> Run | None:
        """See RunStore.run."""
        return cast("Run | None", await self._query("run", tenant, run_id))

    async def runs(self, where: RunFilter) -> Sequence[Run]:
        """See RunStore.runs."""
        return cast("Sequence[Run]", await self._query("runs", where))

    async def journal(self, tenant: TenantId, run_id: RunId, after: int = 0) -> Sequence[JournalEntry]:
        """See RunStore.journal."""
        return cast("Sequence[JournalEntry]", await self._query("journal", tenant, run_id, after))

    async def watched(self, positions: Sequence[JournalPosition]) -> Sequence[RunProgress | None]:
        """See RunStore.watched."""
        return cast("Sequence[RunProgress | None]", await self._query("watched", positions))

    async def moved(self, positions: Sequence[JournalPosition]) -> Sequence[RunId]:
        """See RunStore.moved."""
        return cast("Sequence[RunId]", await self._query("moved", positions))

    async def active_runs(self) -> Mapping[RunStatus, int]:
        """See RunStore.active_runs."""
        return cast("Mapping[RunStatus, int]", await self._query("active_runs"))

    async def agent(self, agent: AgentRef) -> AgentRecord | None:
        """See RunStore.agent."""
        return cast("AgentRecord | None", await self._query("agent", agent))

    async def agents(self, tenant: TenantId, after: str = "", limit: int = 1_000) -> Sequence[AgentRecord]:
        """See RunStore.agents."""
        return cast("Sequence[AgentRecord]", await self._query("agents", tenant, after, limit))

    async def agents_with_work(self, limit: int = 10_000) -> Sequence[AgentRef]:
        """See RunStore.agents_with_work."""
        return cast("Sequence[AgentRef]", await self._query("agents_with_work", limit))

    async def family(
        self, tenant: TenantId, definition: str, key_prefix: str, limit: int = 1_000
    ) -> Sequence[AgentRecord]:
        """See RunStore.family."""
        return cast("Sequence[AgentRecord]", await self._query("family", tenant, definition, key_prefix, limit))

    async def agents_of(self, definition: str, limit: int = 1_000) -> Sequence[AgentRef]:
        """See RunStore.agents_of."""
        return cast("Sequence[AgentRef]", await self._query("agents_of", definition, limit))

    async def released_runs(self, limit: int = 1_000) -> Sequence[RunEnded]:
        """See RunStore.released_runs."""
        return cast("Sequence[RunEnded]", await self._query("released_runs", limit))

    async def task(self, tenant: TenantId, task_id: TaskId) -> Task | None:
        """See TaskStore.task."""
        return cast("Task | None", await self._query("task", tenant, task_id))

    async def tasks(self, owner: AgentRef, limit: int = 100) -> Sequence[Task]:
        """See TaskStore.tasks."""
        return cast("Sequence[Task]", await self._query("tasks", owner, limit))

    async def due_schedules(self, now: datetime, limit: int = 500) -> Sequence[Schedule]:
        """See ScheduleStore.due_schedules."""
        return cast("Sequence[Schedule]", await self._query("due_schedules", now, limit))

    async def next_due(self) -> datetime | None:
        """See ScheduleStore.next_due."""
        return cast("datetime | None", await self._query("next_due"))

    async def upcoming_schedules(self, limit: int) -> Mapping[ScheduleId, datetime]:
        """See ScheduleStore.upcoming_schedules."""
        return cast("Mapping[ScheduleId, datetime]", await self._query("upcoming_schedules", limit))

    async def schedule(self, tenant: TenantId, schedule_id: ScheduleId) -> Schedule | None:
        """See ScheduleStore.schedule."""
        return cast("Schedule | None", await self._query("schedule", tenant, schedule_id))

    async def schedules(self, where: ScheduleFilter) -> Sequence[Schedule]:
        """See ScheduleStore.schedules."""
        return cast("Sequence[Schedule]", await self._query("schedules", where))

    async def schedules_named(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Schedule]:
        """See ScheduleStore.schedules_named."""
        return cast("Sequence[Schedule]", await self._query("schedules_named", schedule_ids))

    async def paused_heartbeats(self, limit: int = 1_000) -> Sequence[Schedule]:
        """See DeliveryStore.paused_heartbeats."""
        return cast("Sequence[Schedule]", await self._query("paused_heartbeats", limit))

    async def ticks(
        self, schedule_id: ScheduleId, before: datetime | None = None, limit: int = 1_000
    ) -> Sequence[Tick]:
        """See ScheduleStore.ticks."""
        return cast("Sequence[Tick]", await self._query("ticks", schedule_id, before, limit))

    async def approval(self, tenant: TenantId, approval_id: ApprovalId) -> Approval | None:
        """See ApprovalStore.approval."""
        return cast("Approval | None", await self._query("approval", tenant, approval_id))

    async def approvals(self, where: ApprovalFilter) -> Sequence[Approval]:
        """See ApprovalStore.approvals."""
        return cast("Sequence[Approval]", await self._query("approvals", where))

    async def expired_approvals(self, now: datetime, limit: int = 500) -> Sequence[Approval]:
        """See ApprovalStore.expired_approvals."""
        return cast("Sequence[Approval]", await self._query("expired_approvals", now, limit))

    async def delivery(self, tenant: TenantId, delivery_id: DeliveryId) -> Delivery | None:
        """See DeliveryStore.delivery."""
        return cast("Delivery | None", await self._query("delivery", tenant, delivery_id))

    async def deliveries(self, where: DeliveryFilter) -> Sequence[Delivery]:
        """See DeliveryStore.deliveries."""
        return cast("Sequence[Delivery]", await self._query("deliveries", where))

    async def waiting_deliveries(self, agent: AgentRef, limit: int = 100) -> Sequence[Delivery]:
        """See DeliveryStore.waiting_deliveries."""
        return cast("Sequence[Delivery]", await self._query("waiting_deliveries", agent, limit))

    async def old_deliveries(self, before: datetime, limit: int = 500) -> Sequence[DeliveryId]:
        """See DeliveryStore.old_deliveries."""
        return cast("Sequence[DeliveryId]", await self._query("old_deliveries", before, limit))

    async def callback(self, tenant: TenantId, callback_id: CallbackId) -> Callback | None:
        """See CallbackStore.callback."""
        return cast("Callback | None", await self._query("callback", tenant, callback_id))

    async def callbacks(self, where: CallbackFilter) -> Sequence[Callback]:
        """See CallbackStore.callbacks."""
        return cast("Sequence[Callback]", await self._query("callbacks", where))

    async def due_callbacks(self, now: datetime, per_host: int, limit: int = 500) -> Sequence[Callback]:
        """See CallbackStore.due_callbacks."""
        return cast("Sequence[Callback]", await self._query("due_callbacks", now, per_host, limit))

    async def old_callbacks(self, before: datetime, limit: int = 500) -> Sequence[CallbackId]:
        """See CallbackStore.old_callbacks."""
        return cast("Sequence[CallbackId]", await self._query("old_callbacks", before, limit))

    async def pending_callbacks(self) -> int:
        """See CallbackStore.pending_callbacks."""
        return cast("int", await self._query("pending_callbacks"))

    async def ledger(self, where: LedgerFilter) -> Sequence[ChainedRecord]:
        """See LedgerStore.ledger."""
        return cast("Sequence[ChainedRecord]", await self._query("ledger", where))

    async def verify_ledger(self, tenant: TenantId, noted: Sequence[NotedHead] = ()) -> Sequence[ChainBreak]:
        """See LedgerStore.verify_ledger."""
        return cast("Sequence[ChainBreak]", await self._query("verify_ledger", tenant, noted))

    async def missing_guards(self) -> Sequence[str]:
        """See LedgerStore.missing_guards."""
        return cast("Sequence[str]", await self._query("missing_guards"))

    async def ledger_chains(self, tenant: TenantId) -> Sequence[LedgerChain]:
        """See LedgerStore.ledger_chains."""
        return cast("Sequence[LedgerChain]", await self._query("ledger_chains", tenant))

    async def check_writable(self) -> None:
        """See Store.check_writable."""
        await self._ask("ready")

    async def close(self) -> None:
        """Nothing to release: the Keeper keeps the connections."""

    async def _query(self, query: str, *arguments: object) -> Any:
        return await self._ask("query", query, arguments)

    async def _ask(self, method: str, *arguments: object) -> Any:
        try:
            return await self._keeper.ask(method, *arguments)
        except RuntimeUnavailableError as error:
            raise _restarting(error) from error


def _restarting(error: RuntimeUnavailableError) -> StoreUnavailableError:
    return StoreUnavailableError(f"the Keeper is being restarted ({error})")
