"""What every Store promises about what model gateways learned of their providers, as tests."""

from __future__ import annotations

from datetime import timedelta

from owlclaw_ray.domain.concurrency_limit import KEPT, ConcurrencyLimit, NotedLimit
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ConcurrencyLimitsNoted, NoteConcurrencyLimits
from owlclaw_ray.store.queries import ConcurrencyLimits
from tests.contracts.store_commands import NOW, one

SECOND = timedelta(seconds=1)
MANY, FEW = ConcurrencyLimit(500), ConcurrencyLimit(12, 9)


class ConcurrencyLimitsContract:
    """Limits, by what is asked and by nodes."""

    async def test_of_each_node_the_last_limit_is_told_with_its_threshold(self, store: Store) -> None:
        assert await one(store, NoteConcurrencyLimits("b", NOW, {"openai": MANY})) == ConcurrencyLimitsNoted()
        await one(store, NoteConcurrencyLimits("a", NOW, {"openai": MANY, "other": MANY}))
        await one(store, NoteConcurrencyLimits("a", NOW + SECOND, {"openai": FEW}))

        found = await store.read(ConcurrencyLimits("openai", NOW))

        assert list(found) == [NotedLimit("a", FEW), NotedLimit("b", MANY)]
        assert list(await store.read(ConcurrencyLimits("openai", NOW + SECOND))) == [NotedLimit("a", FEW)]
        assert list(await store.read(ConcurrencyLimits("nobody", NOW))) == []

    async def test_limits_are_forgotten_when_their_time_is_over(self, store: Store) -> None:
        await one(store, NoteConcurrencyLimits("gone", NOW, {"openai": MANY}))
        await one(store, NoteConcurrencyLimits("there", NOW + SECOND, {"openai": FEW}))
        await one(store, NoteConcurrencyLimits("here", NOW + KEPT + SECOND, {"other": FEW}))

        found = await store.read(ConcurrencyLimits("openai", NOW - KEPT))

        assert list(found) == [NotedLimit("there", FEW)]
