from __future__ import annotations

import pytest

from owlclaw_ray.access.tenant_terms import FRESH_SECONDS, QuotasNow, TenantTerms
from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.quota import NO_QUOTAS, Quotas
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.store.queries import TenantPage
from tests.access.test_keys import World

ACME, OTHER = TenantId("acme"), TenantId("other")


@pytest.fixture
def world():
    world = World()
    world.terms = TenantTerms(world.store, world.clock)
    return world


async def test_a_weight_is_one_until_it_was_read_and_then_what_the_tenant_has(world):
    await world.tenants.create(LOCAL, "acme", weight=3)

    assert world.terms.weight(ACME) == 1.0
    await world.clock.settle()
    assert (world.terms.weight(ACME), world.terms.weight(OTHER), world.terms.weight(DEFAULT_TENANT)) == (3.0, 1.0, 1.0)


async def test_a_weight_that_is_changed_counts_after_a_few_seconds(world):
    await world.tenants.create(LOCAL, "acme", weight=3)
    world.terms.weight(ACME)
    await world.clock.settle()

    await world.tenants.change(LOCAL, ACME, TenantChange(weight=5))
    assert world.terms.weight(ACME) == 3.0
    await world.clock.advance(FRESH_SECONDS)
    world.terms.weight(ACME)
    await world.clock.settle()

    assert world.terms.weight(ACME) == 5.0


async def test_quotas_are_read_before_they_are_first_told_and_again_after_a_few_seconds(world):
    await world.tenants.create(LOCAL, "acme", quotas=Quotas(open_runs=3))
    assert await world.terms.quotas(ACME) == Quotas(open_runs=3)
    assert await world.terms.quotas(OTHER) == await world.terms.quotas(DEFAULT_TENANT) == NO_QUOTAS

    await world.tenants.change(LOCAL, ACME, TenantChange(quotas={"open_runs": 5}))
    assert await world.terms.quotas(ACME) == Quotas(open_runs=3)
    await world.clock.advance(FRESH_SECONDS)

    assert await world.terms.quotas(ACME) == Quotas(open_runs=5)


async def test_the_default_tenant_alone_costs_no_reads_and_others_one_in_a_few_seconds(world):
    reads, read = [], world.store.read

    async def counted(query):
        reads.append(query)
        return await read(query)

    world.store.read = counted
    for _ in range(100):
        world.terms.weight(DEFAULT_TENANT)
    await world.clock.settle()
    assert reads == []

    for _ in range(100):
        world.terms.weight(ACME)
    await world.clock.settle()
    world.terms.weight(ACME)
    await world.clock.settle()
    assert reads == [TenantPage()]


async def test_weights_stay_as_they_were_while_the_store_is_away(world, caplog):
    await world.tenants.create(LOCAL, "acme", weight=3)
    world.terms.weight(ACME)
    await world.clock.settle()
    read = world.store.read

    async def away(query):
        raise StoreUnavailableError("the store is away")

    world.store.read = away
    await world.clock.advance(FRESH_SECONDS)
    world.terms.weight(ACME)
    await world.clock.settle()
    assert world.terms.weight(ACME) == 3.0
    assert "the store is away" in caplog.text

    world.store.read = read
    await world.tenants.change(LOCAL, ACME, TenantChange(weight=4))
    await world.clock.advance(FRESH_SECONDS)
    world.terms.weight(ACME)
    await world.clock.settle()
    assert world.terms.weight(ACME) == 4.0


async def test_all_tenants_are_read_however_many_there_are(world, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.access.tenant_terms._PAGE", 2)
    for number in range(5):
        await world.tenants.create(LOCAL, f"tenant-{number}", weight=number + 1)
    world.terms.weight(ACME)
    await world.clock.settle()

    assert [world.terms.weight(TenantId(f"tenant-{number}")) for number in range(5)] == [1, 2, 3, 4, 5]


async def test_quotas_in_threads_are_read_once_in_a_few_seconds_and_stay_while_they_cannot_be_read(world):
    reads, tenants = [], {}

    def read(query):
        reads.append(query.tenant)
        if tenants is None:
            raise StoreUnavailableError("the store is away")
        return tenants.get(query.tenant)

    quotas = QuotasNow(read, world.clock).quotas
    assert (quotas(DEFAULT_TENANT), quotas(ACME), quotas(ACME)) == (NO_QUOTAS,) * 3
    tenants[ACME] = await world.tenants.create(LOCAL, "acme", quotas=Quotas(open_runs=3))
    assert quotas(ACME) == NO_QUOTAS
    await world.clock.advance(FRESH_SECONDS)
    assert quotas(ACME) == Quotas(open_runs=3)
    tenants = None
    await world.clock.advance(FRESH_SECONDS)

    assert [quotas(ACME), quotas(ACME), quotas(OTHER)] == [Quotas(open_runs=3), Quotas(open_runs=3), NO_QUOTAS]
    assert reads == [ACME, ACME, ACME, OTHER]
