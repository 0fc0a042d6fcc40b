"""Callbacks by tenant, on each database: which are sent beside a flood of another tenant, and where they may go."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from sqlalchemy import insert

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import Callback, CallbackRules, CallbackStatus
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.ids import CallbackId, RandomIds, RunId, TenantId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.runs.callback_rules import TenantCallbackRules
from owlclaw_ray.store.commands import CancelRun, PutTenant, TenantStored
from owlclaw_ray.store.queries import TenantById
from owlclaw_ray.store.sql.row_codecs import CALLBACKS
from owlclaw_ray.store.sql.schema import callbacks
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.webhooks.outbox import CallbackDelivery, CallbackOptions
from tests.contracts.store_commands import NOW, one, submission
from tests.webhooks.conftest import KEY
from tests.webhooks.test_callback_fairness import GREEDY, MODEST, SlowReceivers


async def add_due(store, tenant, number, hosts):
    """Have so many callbacks be due of one ended run."""
    agent = AgentRef(tenant, AgentRef.parse("assistant").agent_id)
    run_id = RunId(f"run_{tenant}")
    await store.apply([submission(run_id, agent), CancelRun(tenant, run_id, NOW)])
    rows = []
    for each in range(number):
        url, callback_id = f"https://host-{each % hosts}.example/{tenant}/{each}", CallbackId(f"cb_{tenant}_{each}")
        made = Callback(callback_id, agent, run_id, url, NOW, CallbackStatus.PENDING, next_try_at=NOW)
        rows.append(dict(zip(CALLBACKS.names, CALLBACKS.row(made), strict=True)))
    await store._database.write(lambda connection: connection.execute(insert(callbacks), rows))


@pytest.mark.parametrize("hosts", [7, 10_000])
async def test_beside_ten_thousand_due_ones_of_a_tenant_another_s_is_sent_at_once(store, hosts):
    clock = ManualClock(NOW)
    receivers = SlowReceivers(clock, lambda: 10.0)
    sending = CallbackDelivery(
        CallbackOptions((KEY,), RetryPolicy()),
        store=store,
        sender=receivers,
        clock=clock,
        ids=RandomIds(),
        rules=TenantCallbackRules(CallbackRules(), store),
        jitter=lambda: 0.0,
    )
    await add_due(store, GREEDY, 10_000, hosts)
    assert await sending.tick() == 24

    await add_due(store, MODEST, 1, 1)
    assert await sending.tick() == 1
    while not receivers.asked.get(MODEST):
        await asyncio.sleep(0)
    await sending.stop()


async def test_where_a_tenant_s_callbacks_may_go_is_in_its_row(store):
    general = CallbackRules(("10.0.0.0/8",))
    rules, seen = TenantCallbackRules(general, store), None
    made = Tenant(TenantId("acme"), "Acme", NOW, "ada")
    found = []
    for networks in (None, (), ("192.168.1.0/24", "fd00::/8")):
        stored = replace(made, callback_networks=networks)
        assert await one(store, PutTenant(stored, seen)) == TenantStored()
        seen = await store.read(TenantById(made.tenant))
        assert seen == stored
        found.append(await rules.of(made.tenant))

    assert found == [general, CallbackRules(()), CallbackRules(("192.168.1.0/24", "fd00::/8"))]
    assert await rules.of(TenantId("beta")) == general
