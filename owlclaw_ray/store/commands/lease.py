"""Commands about the lease of a store: which of the clusters that share it runs its agents, and which Directory of that cluster."""

from __future__ import annotations

from msgspec import Struct

EXPIRE_SECONDS = 6.0
"""A lease, or the row of a node, that was watched standing still for that long is nobody's: longer than a holder takes to give up."""


class ClusterLease(Struct, frozen=True):
    """Who runs the agents of a store. A lease that its holder does not renew stands still, which others see."""

    cluster: str = ""
    """Who holds it; empty for nobody."""
    generation: int = 0
    """How often it has changed hands between clusters."""
    beats: int = 0
    """How often its holder has renewed it."""
    directory: str = ""
    """The id of the Directory's process that holds it for the cluster."""
    term: int = 0
    """Goes up whenever another Directory's process takes the lease, of the same cluster or of another one; never down."""
    leaving: str = ""
    """The cluster that handed the lease over and whose agents still have calls under way; empty for none. What its nodes hold is theirs
    until they release it, or are lost."""


class HoldLease(Struct, frozen=True):
    """Take the lease, or renew it. Outcome: LeaseHeld, LeaseElsewhere or StaleTerm.

    Renewed for the Directory that holds it. Of another cluster it is taken only by those who have `seen` it as it still is: they have
    watched it stand still for as long as a lease lasts. So no two clocks are compared. From nobody, from such a cluster, and from another
    Directory of the same cluster it is taken at once, if `term` is later than the lease's. A Directory names one term, the one after the
    lease that it found: who was superseded is refused, however late the command arrives. Under term 0 nothing is ever taken: it asks for
    the lease as it is.
    """

    cluster: str
    directory: str
    term: int
    seen: ClusterLease | None = None


class LeaseHeld(Struct, frozen=True):
    """The Directory holds the lease for its cluster."""

    lease: ClusterLease


class LeaseElsewhere(Struct, frozen=True):
    """Another cluster holds the lease."""

    lease: ClusterLease


class StaleTerm(Struct, frozen=True):
    """The term has passed: another Directory has the lease, or has had it, under this one or a later one."""

    lease: ClusterLease


class ReleaseLease(Struct, frozen=True):
    """Give the lease back, for the next who asks. Outcome: LeaseReleased, also if this Directory does not hold it.

    With `leaving` the cluster's agents stay with their hosts until these release them: whoever has the lease next activates the others.
    That is for one cluster at a time: while another one leaves, nothing is done. Outcome: LeaseReleased, LeaseHeld in that case, or
    LeaseElsewhere if the lease was lost before.
    """

    cluster: str
    directory: str
    leaving: bool = False


class LeaseReleased(Struct, frozen=True):
    """The Directory does not hold the lease."""


class EndHandover(Struct, frozen=True):
    """Say that nothing is held any more by a cluster that was leaving. Outcome: HandoverEnded, also if it was not."""

    cluster: str


class HandoverEnded(Struct, frozen=True):
    """The cluster is not leaving: what its hosts may still have can be taken from them."""
