"""Commands about the lease of a store: which of the clusters that share it runs its agents."""

from __future__ import annotations

from msgspec import Struct

EXPIRE_SECONDS = 6.0
"""A lease, or the row of a node, that was watched standing still for that long is nobody's: longer than a holder takes to give up."""


class ClusterLease(Struct, frozen=True):
    """Who runs the agents of a store. A lease that its holder does not renew stands still, which others see."""

    cluster: str = ""
    """Who holds it; empty for nobody."""
    generation: int = 0
    """How often it has changed hands."""
    beats: int = 0
    """How often its holder has renewed it."""


class HoldLease(Struct, frozen=True):
    """Take the lease, or renew it. Outcome: LeaseHeld or LeaseElsewhere.

    Granted to its holder, to anyone if nobody holds it, and to those who have `seen` it as it still is: they have watched it stand
    still for as long as a lease lasts. So no two clocks are compared.
    """

    cluster: str
    seen: ClusterLease | None = None


class LeaseHeld(Struct, frozen=True):
    """The cluster holds the lease."""

    lease: ClusterLease


class LeaseElsewhere(Struct, frozen=True):
    """Another cluster holds the lease."""

    lease: ClusterLease


class ReleaseLease(Struct, frozen=True):
    """Give the lease back, for the next who asks. Outcome: LeaseReleased, also if the cluster does not hold it."""

    cluster: str


class LeaseReleased(Struct, frozen=True):
    """The cluster does not hold the lease."""
