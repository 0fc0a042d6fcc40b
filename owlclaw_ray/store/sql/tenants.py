"""Deleting a tenant, on the working set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import asdict, replace

from owlclaw_ray.domain.ledger import access_record
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.tenant import Deletion, Tenant, TenantStatus
from owlclaw_ray.ids import TenantId, derived_id
from owlclaw_ray.store.commands import (
    EndRun,
    RemoveTenantRows,
    RunIsOver,
    SealTenant,
    TenantLeft,
    TenantRowsRemoved,
    TenantSealed,
)
from owlclaw_ray.store.sql.cancellation import end_at_once, end_record_id
from owlclaw_ray.store.sql.codec import agent_key, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.working_set import WorkingSet


def _need_end(needs: RowNeeds, command: EndRun) -> None:
    needs.agent(command.agent)
    needs.runs.add(command.run_id)
    needs.cancelled.add(command.run_id)
    needs.finished.add(command.run_id)
    needs.records.add((command.run_id, end_record_id(command.run_id)))


@applies(EndRun, needs=_need_end)
def end_run(store: WorkingSet, command: EndRun) -> RunIsOver:
    """End the run under another epoch of its agent."""
    run = store.runs.get(command.run_id)
    if run is not None and run.agent == agent_key(command.agent) and not run.status.final:
        end_at_once(store, run, to_micros(command.at))
    return RunIsOver()


def _need_removal(needs: RowNeeds, command: RemoveTenantRows) -> None:
    needs.tenants.add(command.tenant)
    needs.emptied.add(command.tenant)


@applies(RemoveTenantRows, needs=_need_removal)
def remove_tenant_rows(store: WorkingSet, command: RemoveTenantRows) -> TenantRowsRemoved:
    """Count what was removed while the batch was loaded."""
    tenant = store.tenants.get(command.tenant)
    if tenant is None or tenant.deletion is None or tenant.status is not TenantStatus.DELETING:
        return TenantRowsRemoved({})
    removed = store.removed.pop(command.tenant, {})
    if removed or command.files:
        total = Counter(tenant.deletion.removed)
        total.update(removed)
        total.update(command.files)
        store.put_tenant(replace(tenant, deletion=replace(tenant.deletion, removed=dict(sorted(total.items())))))
    return TenantRowsRemoved(removed)


def _need_seal(needs: RowNeeds, command: SealTenant) -> None:
    needs.tenants.add(command.tenant)
    needs.seals.add(command.tenant)
    needs.records.add(("", _last_record_id(command.tenant)))


@applies(SealTenant, needs=_need_seal)
def seal_tenant(store: WorkingSet, command: SealTenant) -> TenantSealed | TenantLeft:
    """Write the last record, if nothing is left."""
    tenant = store.tenants.get(command.tenant)
    if tenant is None or tenant.deletion is None or not tenant.status.closed:
        raise ValueError(f"tenant {command.tenant} is not being deleted")
    if tenant.status is TenantStatus.DELETED:
        return TenantSealed()
    left = {**store.left[command.tenant], **{name: number for name, number in command.left.items() if number}}
    deletion = replace(tenant.deletion, checked_at=command.at, left=left, unreached=command.unreached)
    if left:
        store.put_tenant(replace(tenant, deletion=deletion))
        return TenantLeft(left)
    _seal(store, tenant, replace(deletion, deleted_at=command.at))
    return TenantSealed()


def _seal(store: WorkingSet, tenant: Tenant, deletion: Deletion) -> None:
    assert deletion.deleted_at is not None
    ends = [asdict(each) for each in store.chain_ends[tenant.tenant]]
    said = {
        "tenant": tenant.tenant,
        "by": deletion.by,
        "requested_at": deletion.requested_at.isoformat(),
        "removed": _counts(deletion.removed),
        "left": _counts(deletion.left),
        "unreached": [*deletion.unreached],
        "chains": ends,
    }
    store.record(
        (access_record(_last_record_id(tenant.tenant), tenant.tenant, "tenant_deleted", deletion.deleted_at, said),)
    )
    store.put_tenant(replace(tenant, status=TenantStatus.DELETED, quotas=Quotas(), deletion=deletion))


def _counts(numbers: Mapping[str, int]) -> list[dict[str, str | int]]:
    """Return them not as names with values: what stands under the name `secrets` is hidden in the ledger."""
    return [{"of": name, "number": number} for name, number in sorted(numbers.items())]


def _last_record_id(tenant: TenantId) -> str:
    return derived_id("rec", tenant, "tenant", "deleted")
