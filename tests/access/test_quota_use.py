"""What tenants use of their quotas, in a real store."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from owlclaw_ray.access import quota_use
from owlclaw_ray.access.quota_use import TenantQuotaUse, quota_uses
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.commands import PutTenant
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import NOW, submission

ACME, PLAIN, ZETA = TenantId("acme"), TenantId("plain"), TenantId("zeta")


@pytest.fixture
async def store(tmp_path):
    opened = await open_store(f"sqlite:///{tmp_path}/store.db", writer="keeper-1")
    quotas = {ACME: Quotas(open_runs=9, starts_a_minute=4), PLAIN: Quotas(), ZETA: Quotas(agents=2)}
    await opened.apply(
        [PutTenant(Tenant(each, each, NOW, "ada", quotas=given), None) for each, given in quotas.items()]
    )
    yield opened
    await opened.close()


async def test_each_quota_that_a_tenant_has_is_told_with_what_is_used_of_it(store):
    agents = [AgentRef.parse(f"trader:{number}", ACME) for number in range(3)]
    await store.apply([submission(f"run_{number}", agent) for number, agent in enumerate(agents)])
    later = datetime(2031, 1, 1, tzinfo=UTC)

    assert await quota_uses(store, NOW) == [
        TenantQuotaUse(ACME, "open_runs", 3, 9),
        TenantQuotaUse(ACME, "starts_a_minute", 3, 4),
        TenantQuotaUse(ZETA, "agents", 0, 2),
    ]
    assert [each.used for each in await quota_uses(store, later)] == [3, 0, 0]


async def test_of_more_tenants_the_first_ones_are_told(store, monkeypatch):
    monkeypatch.setattr(quota_use, "MOST_TENANTS", 1)

    assert {each.tenant for each in await quota_uses(store, NOW)} == {ACME}
