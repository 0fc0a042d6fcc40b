"""Nothing is stored for a tenant any more once it is being deleted: what its commands come to instead.

A command is for the tenants that it would write rows of. Who commits such commands holds the tenant's lock, together with all others
who do, until the commit; who changes the tenant's status holds it alone. So whoever reads that a tenant is being deleted knows that
no transaction is under way which does not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from owlclaw_ray.domain.quota import SUSPENDED
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AlreadyFired,
    AppendJournal,
    AppendLedger,
    AwaitApprovals,
    AwaitRuns,
    BackfillTick,
    BeginAttempt,
    CancelOutcome,
    CancelRun,
    CancelSchedule,
    ChangeCallback,
    ChangeMemories,
    ClaimRun,
    Command,
    CommandFailed,
    CreateSchedule,
    DecideApproval,
    DeleteSecret,
    EndHandover,
    EndRun,
    ExpireApproval,
    FinishRun,
    FireSchedule,
    ForgetArtifacts,
    ForgetAttempts,
    ForgetEntries,
    ForgetNode,
    ForgetRuns,
    ForgetSchedules,
    ForgetTexts,
    ForgetTicks,
    ForgetWebhooks,
    HoldLease,
    HoldNode,
    JoinNode,
    MarkNode,
    NoteConcurrencyLimits,
    NoteExported,
    NoteKeyUse,
    NoteQueueLengths,
    NoteSweep,
    OnStandby,
    Outcome,
    PauseSchedule,
    PutArtifact,
    PutArtifactPart,
    PutKey,
    PutSecret,
    PutTask,
    PutTenant,
    QuotaReached,
    ReceiveDelivery,
    ReleaseAgent,
    ReleaseLease,
    RemoveTenantRows,
    ReplaceCiphertext,
    ReserveBudget,
    ResumeSchedule,
    RevokeAttempt,
    RunEnded,
    SealTenant,
    SettleBudget,
    StaleEpoch,
    SubmitRun,
)
from owlclaw_ray.store.sql.dialects import Dialect
from owlclaw_ray.store.sql.schema import tenants

_CLOSED = [each.value for each in TenantStatus if each.closed]


def _of_agent(command: Any) -> Iterable[TenantId]:
    return (command.agent.tenant,)


def _of_tenant(command: Any) -> Iterable[TenantId]:
    return (command.tenant,)


def _of_run(command: FireSchedule) -> Iterable[TenantId]:
    """One without a run writes ticks of a schedule that it finds: see tenant_rows.remove_rows."""
    return () if command.run is None else (command.run.agent.tenant,)


def _of_nobody(_command: object) -> Iterable[TenantId]:
    return ()


TENANTS_OF: Mapping[type, Callable[[Any], Iterable[TenantId]]] = {
    **dict.fromkeys(
        (
            SubmitRun,
            ActivateAgent,
            ClaimRun,
            AppendJournal,
            FinishRun,
            AwaitApprovals,
            AwaitRuns,
            RunEnded,
            ReleaseAgent,
            CancelSchedule,
            PauseSchedule,
            ResumeSchedule,
            BackfillTick,
            ReserveBudget,
            SettleBudget,
            ChangeMemories,
            PutArtifactPart,
            PutArtifact,
        ),
        _of_agent,
    ),
    **dict.fromkeys(
        (
            CancelRun,
            DecideApproval,
            ExpireApproval,
            PutSecret,
            ReplaceCiphertext,
            DeleteSecret,
            ForgetRuns,
            ForgetEntries,
            ForgetTicks,
            ForgetSchedules,
            ForgetTexts,
        ),
        _of_tenant,
    ),
    CreateSchedule: lambda command: (command.schedule.agent.tenant,),
    FireSchedule: _of_run,
    PutTask: lambda command: (command.task.owner.tenant,),
    AppendLedger: lambda command: (each.tenant for each in command.records),
    ReceiveDelivery: lambda command: (command.delivery.tenant,),
    ChangeCallback: lambda command: (command.callback.agent.tenant,),
    PutKey: lambda command: (command.key.tenant,),
    NoteKeyUse: lambda command: (each.tenant for each in command.first),
    **dict.fromkeys(
        (
            HoldLease,
            ReleaseLease,
            EndHandover,
            JoinNode,
            HoldNode,
            MarkNode,
            ForgetNode,
            BeginAttempt,
            RevokeAttempt,
            ForgetAttempts,
            ForgetArtifacts,
            ForgetWebhooks,
            NoteConcurrencyLimits,
            NoteExported,
            NoteQueueLengths,
            NoteSweep,
            PutTenant,
            EndRun,
            RemoveTenantRows,
            SealTenant,
        ),
        _of_nobody,
    ),
}
"""Of which tenants each command writes rows that a deletion must not miss; those by which a tenant is deleted are let through."""


class TenantFence:
    """The statements for one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._closed = select(tenants.c.tenant).where(
            dialect.among(tenants.c.tenant, "ids"), tenants.c.status.in_(_CLOSED)
        )

    def close_off(
        self, connection: Connection, commands: Sequence[Command]
    ) -> tuple[dict[int, Outcome], set[TenantId]]:
        """Lock the tenants of these commands; return the outcomes of those that come too late, by their places, and who is locked."""
        written = [{*TENANTS_OF[type(command)](command)} - {DEFAULT_TENANT} for command in commands]
        changed = {command.tenant.tenant for command in commands if isinstance(command, PutTenant)}
        changed |= {command.tenant for command in commands if isinstance(command, SealTenant)}
        asked = set[TenantId]().union(*written)
        if asked or changed:
            self._dialect.lock_tenants(connection, asked - changed, changed)
        if not asked:
            return {}, changed
        closed = set(connection.execute(self._closed, {"ids": self._dialect.ids(sorted(asked))}).scalars())
        refusals = {
            place: _refusal(command, min(late))
            for place, (command, late) in enumerate(zip(commands, (each & closed for each in written), strict=True))
            if late
        }
        return refusals, asked | changed


def _refusal(command: Command, tenant: TenantId) -> Outcome:
    match command:
        case SubmitRun():
            return QuotaReached(SUSPENDED, 0)
        case ActivateAgent():
            return OnStandby()
        case ClaimRun() | AppendJournal() | FinishRun() | AwaitApprovals() | AwaitRuns() | ReleaseAgent():
            return StaleEpoch(command.agent, 0)
        case CancelRun():
            return CancelOutcome(None)
        case FireSchedule():
            return AlreadyFired()
        case _:
            return CommandFailed(f"{type(command).__name__}: tenant {tenant} is deleted, and nothing is stored for it")
