"""Sources of webhooks that belong to tenants, signed with secrets of theirs."""

from __future__ import annotations

import asyncio
import base64
import dataclasses

import orjson
import pytest
from msgspec.structs import replace

from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.domain.webhook import DeliveryStatus, SecretForm
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.store.queries import DeliveryFilter, RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.webhooks.source_secrets import FRESH_SECONDS, SourceSecrets
from tests.webhooks.conftest import ORDER, SECRET, SHOP, signature

ACME, BETA = TenantId("acme"), TenantId("beta")
OWN = dataclasses.replace(SHOP, secrets=(), tenant=ACME, tenant_secrets=("SHOP_KEY", "SHOP_KEY_OLD"))


@pytest.fixture
async def shop(install):
    """An installation with two tenants, of which both have a secret of that name, and the source is one's."""
    async with install(OWN) as installed:
        for tenant in (ACME, BETA):
            await installed.runtime.tenants.create(LOCAL, tenant)
            await installed.runtime.secrets.set_secret(tenant, "SHOP_KEY", f"{tenant}-signs-1", "ada")
        yield installed


async def send(installed, secret, number=1):
    body = orjson.dumps({**ORDER, "number": number})
    return await installed.send(body, delivery=f"d{number}", **{"X-Signature": signature(body, secret)})


async def deliveries(installed, tenant):
    return await installed.runtime.inbox.deliveries(DeliveryFilter(tenant))


async def test_what_it_sends_triggers_an_agent_of_the_tenant_and_is_seen_by_nobody_else(shop):
    sent = await send(shop, "acme-signs-1")

    assert sent.status_code == 202, sent.text
    found = {tenant: await shop.runtime.runs(RunFilter(tenant)) for tenant in (ACME, BETA, DEFAULT_TENANT)}
    assert [(each.agent.agent_id, each.agent.tenant) for each in found[ACME]] == [("assistant:ada", ACME)]
    assert (found[BETA], found[DEFAULT_TENANT]) == ([], [])
    assert [each.status for each in await deliveries(shop, ACME)] == [DeliveryStatus.TRIGGERED]
    assert [*await deliveries(shop, BETA), *await deliveries(shop, DEFAULT_TENANT)] == []
    listed = {tenant: len(shop.runtime.inbox.sources(tenant)) for tenant in (ACME, BETA, DEFAULT_TENANT)}
    assert listed == {ACME: 1, BETA: 0, DEFAULT_TENANT: 0}


@pytest.mark.parametrize("secret", ["beta-signs-1", SECRET, "SHOP_KEY", ""])
async def test_what_another_one_signed_is_refused_in_the_inbox_of_the_tenant(shop, secret):
    sent = await send(shop, secret)

    assert sent.status_code == 401, sent.text
    assert [each.status for each in await deliveries(shop, ACME)] == [DeliveryStatus.REFUSED]
    assert [*await deliveries(shop, BETA), *await deliveries(shop, DEFAULT_TENANT)] == []
    assert await shop.runtime.runs(RunFilter(ACME)) == []


async def test_a_changed_secret_counts_within_a_second_and_the_one_before_while_it_has_the_other_name(shop):
    assert (await send(shop, "acme-signs-1", 1)).status_code == 202
    await shop.runtime.secrets.set_secret(ACME, "SHOP_KEY_OLD", "acme-signs-1", "ada")
    await shop.runtime.secrets.set_secret(ACME, "SHOP_KEY", "acme-signs-2", "ada")
    await shop.clock.advance(FRESH_SECONDS)

    assert (await send(shop, "acme-signs-2", 2)).status_code == 202
    assert (await send(shop, "acme-signs-1", 3)).status_code == 202
    await shop.runtime.secrets.delete_secret(ACME, "SHOP_KEY_OLD", "ada")
    await shop.clock.advance(FRESH_SECONDS)

    assert (await send(shop, "acme-signs-1", 4)).status_code == 401
    assert (await send(shop, "acme-signs-2", 5)).status_code == 202


async def test_without_any_of_its_secrets_nothing_is_taken_and_the_log_says_what_is_missing(shop, caplog):
    await shop.runtime.secrets.delete_secret(ACME, "SHOP_KEY", "ada")

    sent = [await send(shop, secret) for secret in ("acme-signs-1", "beta-signs-1", "")]

    assert [each.status_code for each in sent] == [401] * 3
    assert all("SHOP_KEY" not in each.text and "acme" not in each.text for each in sent)
    assert caplog.text.count("not checked with secret SHOP_KEY of tenant acme: there is none of that name") == 1
    reasons = {each.reason for each in await deliveries(shop, ACME)}
    assert reasons == {"its secret is not there: the log says which one"}


async def test_a_secret_that_is_not_of_its_form_signs_nothing(install):
    source = dataclasses.replace(OWN, secret_form=SecretForm.BASE64)
    async with install(source) as installed:
        await installed.runtime.tenants.create(LOCAL, ACME)
        await installed.runtime.secrets.set_secret(ACME, "SHOP_KEY", "no base64 at all!", "ada")
        assert (await send(installed, "no base64 at all!")).status_code == 401

        key = b"bytes of a secret"
        await installed.runtime.secrets.set_secret(ACME, "SHOP_KEY", base64.b64encode(key).decode(), "ada")
        await installed.clock.advance(FRESH_SECONDS)
        assert (await send(installed, key.decode())).status_code == 202


async def test_many_webhooks_within_a_second_read_a_secret_once(shop, monkeypatch):
    asked, ask = [], shop.runtime.inbox._secrets._ask

    async def counted(tenant, name):
        asked.append(name)
        return await ask(tenant, name)

    monkeypatch.setattr(shop.runtime.inbox._secrets, "_ask", counted)
    for number in range(5):
        await send(shop, "somebody else's", number)

    assert asked == ["SHOP_KEY", "SHOP_KEY_OLD"]


async def test_a_tenant_that_does_not_exist_yet_gets_it_when_it_is_sent_again(install):
    async with install(dataclasses.replace(SHOP, tenant=ACME)) as installed:
        early = await send(installed, SECRET)
        await installed.runtime.tenants.create(LOCAL, ACME)
        late = await send(installed, SECRET)

        assert (early.status_code, late.status_code) == (503, 202)
        assert len(await installed.runtime.runs(RunFilter(ACME))) == 1


@pytest.mark.parametrize("headers", [{}, {"X-Signature": signature(b"another", "another")}])
async def test_who_has_not_signed_does_not_learn_of_a_source_by_its_tenant_that_is_not_there(install, headers):
    async with install(dataclasses.replace(SHOP, tenant=ACME)) as installed:
        here, nowhere = [
            await installed.http.post(f"/v1/webhooks/{source}", json=ORDER, headers=headers)
            for source in ("shop", "nobody")
        ]

        assert (here.status_code, here.text.replace("shop", "nobody")) == (401, nowhere.text)
        assert await deliveries(installed, ACME) == []


async def test_of_a_suspended_tenant_it_is_refused_and_triggers_nothing(shop):
    await shop.runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))

    sent = await send(shop, "acme-signs-1")

    assert sent.status_code in {403, 429}, sent.text
    assert [each.status for each in await deliveries(shop, ACME)] == [DeliveryStatus.REFUSED]
    assert await shop.runtime.runs(RunFilter(ACME)) == []


async def test_what_came_for_one_tenant_is_not_delivered_again_for_another(install):
    never = dataclasses.replace(SHOP, tenant=ACME, mapping=replace(SHOP.mapping, agent="nobody"))
    async with install(never) as installed:
        await installed.runtime.tenants.create(LOCAL, ACME)
        assert (await send(installed, SECRET)).status_code == 422
        (delivery,) = await deliveries(installed, ACME)
        for tenant in (BETA, DEFAULT_TENANT):
            with pytest.raises(NotFoundError, match="delivery"):
                await installed.runtime.inbox.redeliver(tenant, delivery.delivery_id)
    async with install(SHOP) as installed:  # the source is another tenant's by now
        with pytest.raises(NotFoundError, match="webhook source"):
            await installed.runtime.inbox.redeliver(ACME, delivery.delivery_id)
        assert await installed.runtime.runs(RunFilter(ACME)) == []


async def test_webhooks_that_come_together_ask_for_a_secret_once():
    asked, gate = [], asyncio.Event()

    async def ask(tenant, name):
        asked.append((tenant, name))
        await gate.wait()
        return f"{name}-value"

    secrets = SourceSecrets(ask, ManualClock())
    leaving, *staying = [asyncio.create_task(secrets.filled(OWN)) for _ in range(50)]
    while not asked:
        await asyncio.sleep(0)
    leaving.cancel()
    gate.set()
    filled = await asyncio.gather(*staying)
    await secrets.filled(OWN)

    assert asked == [(ACME, "SHOP_KEY"), (ACME, "SHOP_KEY_OLD")]
    assert {each.secrets for each in filled} == {("SHOP_KEY-value", "SHOP_KEY_OLD-value")}


async def test_a_secret_that_is_not_answered_holds_up_the_webhooks_of_a_few_seconds_alone():
    clock, asked = ManualClock(), []

    async def ask(tenant, name):
        asked.append(name)
        await asyncio.Event().wait()

    secrets = SourceSecrets(ask, clock)
    waiting = asyncio.create_task(secrets.filled(dataclasses.replace(OWN, tenant_secrets=("SHOP_KEY",))))
    while not asked:
        await asyncio.sleep(0)
    await clock.advance(5)

    assert (await waiting).secrets == ()
    assert asked == ["SHOP_KEY"]
