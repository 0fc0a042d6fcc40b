"""What every Store promises about the lease of its clusters, as tests."""

from __future__ import annotations

from msgspec.structs import replace

from owlclaw_ray.store.api import Store
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
from tests.contracts.store_commands import one

EAST, WEST = "east", "west"
FIRST, SECOND, OTHER = "dir-first", "dir-second", "dir-other"
"""Two Directories of one cluster, and that of another."""
ASK = 0


class LeaseContract:
    """A store is held by one cluster at a time, and for the cluster by one of its Directories."""

    async def test_a_lease_that_nobody_holds_is_for_the_first_who_asks_and_stays_hers(self, store: Store) -> None:
        assert await one(store, HoldLease(EAST, FIRST, 1)) == LeaseHeld(ClusterLease(EAST, 1, 0, FIRST, 1))
        assert await one(store, HoldLease(EAST, FIRST, 1)) == LeaseHeld(ClusterLease(EAST, 1, 1, FIRST, 1))
        assert await one(store, HoldLease(WEST, OTHER, 2)) == LeaseElsewhere(ClusterLease(EAST, 1, 1, FIRST, 1))

    async def test_of_two_who_ask_at_once_one_gets_it(self, store: Store) -> None:
        first, second = await store.apply([HoldLease(EAST, FIRST, 1), HoldLease(WEST, OTHER, 1)])

        assert first == LeaseHeld(ClusterLease(EAST, 1, 0, FIRST, 1))
        assert second == LeaseElsewhere(ClusterLease(EAST, 1, 0, FIRST, 1))

    async def test_one_that_stood_still_is_taken_and_one_that_was_renewed_meanwhile_is_not(self, store: Store) -> None:
        await one(store, HoldLease(EAST, FIRST, 1))
        seen = ClusterLease(EAST, 1, 0, FIRST, 1)
        await one(store, HoldLease(EAST, FIRST, 1))
        stands = replace(seen, beats=1)

        assert await one(store, HoldLease(WEST, OTHER, 2, seen)) == LeaseElsewhere(stands)
        assert await one(store, HoldLease(WEST, OTHER, 2, stands)) == LeaseHeld(ClusterLease(WEST, 2, 0, OTHER, 2))
        assert await one(store, HoldLease(EAST, FIRST, 1)) == LeaseElsewhere(ClusterLease(WEST, 2, 0, OTHER, 2))

    async def test_one_that_is_given_back_is_free_and_only_its_holder_can_give_it_back(self, store: Store) -> None:
        await one(store, HoldLease(EAST, FIRST, 1))

        assert await one(store, ReleaseLease(WEST, OTHER)) == LeaseReleased()
        assert await one(store, HoldLease(WEST, OTHER, 2)) == LeaseElsewhere(ClusterLease(EAST, 1, 0, FIRST, 1))
        assert await one(store, ReleaseLease(EAST, FIRST)) == LeaseReleased()
        assert await one(store, HoldLease(WEST, OTHER, 2)) == LeaseHeld(ClusterLease(WEST, 2, 0, OTHER, 2))

    async def test_who_asks_under_no_term_is_told_of_the_lease_and_takes_it_from_nobody(self, store: Store) -> None:
        assert await one(store, HoldLease(EAST, FIRST, ASK)) == StaleTerm(ClusterLease())
        held = ClusterLease(EAST, 1, 0, FIRST, 1)
        await one(store, HoldLease(EAST, FIRST, 1))

        assert await one(store, HoldLease(EAST, SECOND, ASK)) == StaleTerm(held)
        assert await one(store, HoldLease(WEST, OTHER, ASK)) == LeaseElsewhere(held)

    async def test_another_directory_of_the_cluster_takes_it_at_once_and_the_one_before_is_refused_from_then_on(
        self, store: Store
    ) -> None:
        await one(store, HoldLease(EAST, FIRST, 1))
        taken = ClusterLease(EAST, 1, 1, SECOND, 2)

        assert await one(store, HoldLease(EAST, SECOND, 2)) == LeaseHeld(taken)
        assert await one(store, HoldLease(EAST, FIRST, 1)) == StaleTerm(taken)
        assert await one(store, HoldLease(EAST, FIRST, 2)) == StaleTerm(taken)
        assert await one(store, HoldLease(EAST, SECOND, 2)) == LeaseHeld(replace(taken, beats=2))

    async def test_who_was_superseded_cannot_give_the_lease_back(self, store: Store) -> None:
        await store.apply([HoldLease(EAST, FIRST, 1), HoldLease(EAST, SECOND, 2)])

        assert await one(store, ReleaseLease(EAST, FIRST)) == LeaseReleased()
        assert await one(store, HoldLease(WEST, OTHER, 3)) == LeaseElsewhere(ClusterLease(EAST, 1, 1, SECOND, 2))

    async def test_a_renewal_that_comes_after_the_lease_was_given_back_does_not_take_it_again(
        self, store: Store
    ) -> None:
        await store.apply([HoldLease(EAST, FIRST, 1), ReleaseLease(EAST, FIRST)])

        assert await one(store, HoldLease(EAST, FIRST, 1)) == StaleTerm(ClusterLease("", 1, 0, "", 1))
        assert await one(store, HoldLease(EAST, FIRST, 2)) == LeaseHeld(ClusterLease(EAST, 2, 0, FIRST, 2))

    async def test_one_that_is_handed_over_is_free_at_once_and_says_who_is_leaving_until_that_is_over(
        self, store: Store
    ) -> None:
        await one(store, HoldLease(EAST, FIRST, 1))

        assert await one(store, ReleaseLease(EAST, FIRST, leaving=True)) == LeaseReleased()
        assert await one(store, ReleaseLease(EAST, FIRST, leaving=True)) == LeaseReleased(), "the first answer was lost"
        taken = ClusterLease(WEST, 2, 0, OTHER, 2, leaving=EAST)
        assert await one(store, HoldLease(WEST, OTHER, 2)) == LeaseHeld(taken)
        assert await one(store, ReleaseLease(EAST, FIRST, leaving=True)) == LeaseReleased(), "and it is another's now"
        assert await one(store, HoldLease(WEST, OTHER, 2)) == LeaseHeld(replace(taken, beats=1))

        assert await one(store, EndHandover(WEST)) == HandoverEnded()
        assert await one(store, HoldLease(WEST, OTHER, 2)) == LeaseHeld(replace(taken, beats=2))
        assert await one(store, EndHandover(EAST)) == HandoverEnded()
        assert await one(store, EndHandover(EAST)) == HandoverEnded()
        assert await one(store, HoldLease(WEST, OTHER, 2)) == LeaseHeld(replace(taken, beats=3, leaving=""))

    async def test_who_lost_the_lease_cannot_hand_it_over(self, store: Store) -> None:
        await one(store, HoldLease(EAST, FIRST, 1))
        held = ClusterLease(WEST, 2, 0, OTHER, 2)
        await one(store, HoldLease(WEST, OTHER, 2, ClusterLease(EAST, 1, 0, FIRST, 1)))

        assert await one(store, ReleaseLease(EAST, FIRST, leaving=True)) == LeaseElsewhere(held)
        assert await one(store, HoldLease(EAST, FIRST, 1)) == LeaseElsewhere(held)

    async def test_who_is_to_hand_it_over_while_another_cluster_is_leaving_holds_it_until_that_is_over(
        self, store: Store
    ) -> None:
        await store.apply([HoldLease(EAST, FIRST, 1), ReleaseLease(EAST, FIRST, leaving=True)])
        held = ClusterLease(WEST, 2, 0, OTHER, 2, leaving=EAST)
        await one(store, HoldLease(WEST, OTHER, 2))

        assert await one(store, ReleaseLease(WEST, OTHER, leaving=True)) == LeaseHeld(held)
        assert await one(store, HoldLease(WEST, OTHER, 2)) == LeaseHeld(replace(held, beats=1))
        await one(store, EndHandover(EAST))
        assert await one(store, ReleaseLease(WEST, OTHER, leaving=True)) == LeaseReleased()
        assert await one(store, HoldLease(EAST, FIRST, 3)) == LeaseHeld(
            ClusterLease(EAST, 3, 0, FIRST, 3, leaving=WEST)
        )

    async def test_a_cluster_that_takes_the_lease_again_is_not_leaving(self, store: Store) -> None:
        await store.apply([HoldLease(EAST, FIRST, 1), ReleaseLease(EAST, FIRST, leaving=True)])

        assert await one(store, HoldLease(EAST, SECOND, 2)) == LeaseHeld(ClusterLease(EAST, 2, 0, SECOND, 2))
