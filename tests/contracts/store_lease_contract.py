"""What every Store promises about the lease of its clusters, as tests."""

from __future__ import annotations

from msgspec.structs import replace

from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ClusterLease, HoldLease, LeaseElsewhere, LeaseHeld, LeaseReleased, ReleaseLease
from tests.contracts.store_commands import one

EAST, WEST = "east", "west"


class LeaseContract:
    """A store is held by one cluster at a time."""

    async def test_a_lease_that_nobody_holds_is_for_the_first_who_asks_and_stays_hers(self, store: Store) -> None:
        assert await one(store, HoldLease(EAST)) == LeaseHeld(ClusterLease(EAST, 1, 0))
        assert await one(store, HoldLease(EAST)) == LeaseHeld(ClusterLease(EAST, 1, 1))
        assert await one(store, HoldLease(WEST)) == LeaseElsewhere(ClusterLease(EAST, 1, 1))

    async def test_of_two_who_ask_at_once_one_gets_it(self, store: Store) -> None:
        first, second = await store.apply([HoldLease(EAST), HoldLease(WEST)])

        assert first == LeaseHeld(ClusterLease(EAST, 1, 0))
        assert second == LeaseElsewhere(ClusterLease(EAST, 1, 0))

    async def test_one_that_stood_still_is_taken_and_one_that_was_renewed_meanwhile_is_not(self, store: Store) -> None:
        await one(store, HoldLease(EAST))
        seen = ClusterLease(EAST, 1, 0)
        await one(store, HoldLease(EAST))

        assert await one(store, HoldLease(WEST, seen)) == LeaseElsewhere(replace(seen, beats=1))
        assert await one(store, HoldLease(WEST, replace(seen, beats=1))) == LeaseHeld(ClusterLease(WEST, 2, 0))
        assert await one(store, HoldLease(EAST)) == LeaseElsewhere(ClusterLease(WEST, 2, 0))

    async def test_one_that_is_given_back_is_free_and_only_its_holder_can_give_it_back(self, store: Store) -> None:
        await one(store, HoldLease(EAST))

        assert await one(store, ReleaseLease(WEST)) == LeaseReleased()
        assert await one(store, HoldLease(WEST)) == LeaseElsewhere(ClusterLease(EAST, 1, 0))
        assert await one(store, ReleaseLease(EAST)) == LeaseReleased()
        assert await one(store, HoldLease(WEST)) == LeaseHeld(ClusterLease(WEST, 2, 0))
