"""What the Directories of clusters do with the lease of their store, on the working set."""

from __future__ import annotations

from msgspec.structs import replace

from owlclaw_ray.store.commands import (
    ClusterLease,
    EndHandover,
    HandoverEnded,
    HoldLease,
    LeaseElsewhere,
    LeaseHeld,
    LeaseReleased,
    ReleaseLease,
    StaleTerm,
)
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.working_set import WorkingSet


def _need_lease(needs: RowNeeds, _command: HoldLease | ReleaseLease | EndHandover) -> None:
    needs.changes_lease = True


@applies(HoldLease, needs=_need_lease)
def hold(store: WorkingSet, command: HoldLease) -> LeaseHeld | LeaseElsewhere | StaleTerm:
    """Grant the lease, or say who holds it. What an older version wrote has the Directory and the term of before: the cluster decides."""
    lease, own = store.lease, store.lease.cluster == command.cluster
    if own and lease.directory == command.directory:
        lease = replace(lease, beats=lease.beats + 1)
    elif lease.cluster and not own and lease != command.seen:
        return LeaseElsewhere(lease)
    elif command.term <= lease.term:
        return StaleTerm(lease)
    elif own:
        lease = replace(lease, beats=lease.beats + 1, directory=command.directory, term=command.term)
    else:
        leaving = "" if lease.leaving == command.cluster else lease.leaving
        lease = ClusterLease(command.cluster, lease.generation + 1, 0, command.directory, command.term, leaving)
    store.changed_lease(lease)
    return LeaseHeld(lease)


@applies(ReleaseLease, needs=_need_lease)
def release(store: WorkingSet, command: ReleaseLease) -> LeaseReleased | LeaseHeld | LeaseElsewhere:
    """Take the lease from its holder. Its term stays: what the holder sent before is refused from now on."""
    lease = store.lease
    held = (lease.cluster, lease.directory) == (command.cluster, command.directory)
    if command.leaving and lease.leaving != command.cluster:
        if not held:
            return LeaseElsewhere(lease)
        if lease.leaving:
            return LeaseHeld(lease)
        lease = replace(lease, leaving=command.cluster)
    if held:
        store.changed_lease(replace(lease, cluster="", directory=""))
    return LeaseReleased()


@applies(EndHandover, needs=_need_lease)
def end_handover(store: WorkingSet, command: EndHandover) -> HandoverEnded:
    """Free what the cluster's hosts may still have."""
    if command.cluster and store.lease.leaving == command.cluster:
        store.changed_lease(replace(store.lease, leaving=""))
    return HandoverEnded()
