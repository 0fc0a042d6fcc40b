"""What clusters do with the lease of their store, on the working set."""

from __future__ import annotations

from msgspec.structs import replace

from owlclaw_ray.store.commands import ClusterLease, HoldLease, LeaseElsewhere, LeaseHeld, LeaseReleased, ReleaseLease
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.working_set import WorkingSet


def _need_lease(needs: RowNeeds, _command: HoldLease | ReleaseLease) -> None:
    needs.changes_lease = True


@applies(HoldLease, needs=_need_lease)
def hold(store: WorkingSet, command: HoldLease) -> LeaseHeld | LeaseElsewhere:
    """Grant the lease, or say who holds it."""
    lease = store.lease
    if lease.cluster == command.cluster:
        lease = replace(lease, beats=lease.beats + 1)
    elif not lease.cluster or lease == command.seen:
        lease = ClusterLease(command.cluster, lease.generation + 1)
    else:
        return LeaseElsewhere(lease)
    store.changed_lease(lease)
    return LeaseHeld(lease)


@applies(ReleaseLease, needs=_need_lease)
def release(store: WorkingSet, command: ReleaseLease) -> LeaseReleased:
    """Take the lease from its holder."""
    if store.lease.cluster == command.cluster:
        store.changed_lease(replace(store.lease, cluster=""))
    return LeaseReleased()
