"""Callbacks of several tenants: each signed with secrets of its own, and sent where its tenant's may go."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import socket

import orjson
import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.client import verify_callback
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.signing import key_of, signed_callback
from owlclaw_ray.domain.webhook import SecretForm
from owlclaw_ray.errors import StoreUnavailableError, WebhookRefusedError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.store.queries import CallbackFilter, RunFilter, TenantById
from owlclaw_ray.testing.ids import SequentialIds
from owlclaw_ray.webhooks.callback_secrets import tenant_secrets
from owlclaw_ray.webhooks.outbox import WebhookOutbox
from tests.definitions.writing import write_definition
from tests.webhooks.conftest import KEY, OPTIONS, START

ACME, BETA = TenantId("acme"), TenantId("beta")
OLD_KEY = base64.b64encode(bytes(range(32, 64))).decode()
LOOPBACK = ["127.0.0.0/8"]


class Tenants:
    """An installation with two tenants beside the default one, each with a key that may do everything of it."""

    def __init__(self, installed):
        self.installed, self.runtime, self.keys = installed, installed.runtime, {}

    async def make(self, **networks):
        for tenant in (ACME, BETA):
            await self.runtime.tenants.create(LOCAL, tenant, callback_networks=networks.get(tenant))
        for tenant in (ACME, BETA, DEFAULT_TENANT):
            self.keys[tenant] = await self.key(tenant, "*")
        return self

    async def key(self, tenant, *scopes, **more):
        issued = await self.runtime.keys.create(LOCAL, KeyRequest("ci", scopes, days=1, tenant=tenant, **more))
        return {"Authorization": f"Bearer {issued.text}"}

    async def get(self, path, key):
        return await self.installed.http.get(path, headers=key)

    async def trigger(self, tenant, url, agent="assistant"):
        answer = await self.installed.http.post(
            f"/v1/agents/{agent}/triggers", json={"callback_url": url} if url else {}, headers=self.keys[tenant]
        )
        if answer.status_code == 202:
            run_id = answer.json()["run_id"]
            while not (await self.runtime.run(tenant, run_id)).status.final:
                await asyncio.sleep(0)
        return answer

    async def problems(self, tenant):
        found = await self.runtime.outbox.callbacks(CallbackFilter(tenant))
        return [each.problem for each in found]


@pytest.fixture
async def tenants(install):
    async with install() as installed:
        yield await Tenants(installed).make()


def verified(received, secrets, tenant):
    return verify_callback(received.headers, received.body, secrets, START, tenant=tenant)["data"]["tenant"]


def forged(body, secret):
    """A callback that somebody with that secret makes up."""
    at = int(START.timestamp())
    signature = signed_callback("cb_1", at, body, key_of(secret, SecretForm.BASE64))
    return {"webhook-id": "cb_1", "webhook-timestamp": str(at), "webhook-signature": signature}, body


async def test_each_tenant_s_callbacks_are_signed_with_a_secret_of_its_own(tenants, receiver):
    everybody = (ACME, BETA, DEFAULT_TENANT)
    secrets = {}
    for tenant in everybody:
        shown = await tenants.get("/v1/callback-secrets", tenants.keys[tenant])
        assert (shown.status_code, shown.json()["tenant"]) == (200, tenant)
        assert shown.headers["cache-control"] == "no-store"
        secrets[tenant] = shown.json()["secrets"]
        await tenants.trigger(tenant, f"{receiver.url}/{tenant}")
    await tenants.installed.tell()

    assert len({secret for each in secrets.values() for secret in each} | {f"whsec_{KEY}"}) == 4
    received = {each.path.rpartition("/")[2]: each for each in receiver.received}
    for tenant in everybody:
        assert verified(received[tenant], secrets[tenant], tenant) == tenant
        for other in (*(secrets[each] for each in everybody if each != tenant), [KEY]):
            with pytest.raises(WebhookRefusedError, match="the signature does not match"):
                verified(received[tenant], other, tenant)


def test_who_has_the_secret_of_one_tenant_forges_nothing_of_another():
    (own,), (other,) = tenant_secrets([KEY], ACME), tenant_secrets([KEY], BETA)
    body = orjson.dumps({"type": "run.finished", "data": {"tenant": BETA, "run_id": "run_1"}})

    with pytest.raises(WebhookRefusedError, match="the signature does not match"):
        verify_callback(*forged(body, own), [other], START, tenant=BETA)
    with pytest.raises(WebhookRefusedError, match="not of the tenant acme"):
        verify_callback(*forged(body, own), [own], START, tenant=ACME)
    with pytest.raises(WebhookRefusedError, match="not of the tenant default"):
        verify_callback(*forged(body, own), [own], START)
    assert verify_callback(*forged(body, other), [other], START, tenant=BETA)["data"]["run_id"] == "run_1"


def test_the_secret_of_a_tenant_is_the_same_in_every_version():
    assert tenant_secrets([KEY, f"whsec_{OLD_KEY}"], ACME) == (
        "whsec_9PTdjmb7HP085oSsS4OnIVFfqU6JBJT/Od/wTcBbw10=",
        "whsec_ni8NBak0jt7tjOVWZZHIIMfRdV4ATOJ4qo3e8xe0oNc=",
    )


async def test_while_the_runtime_changes_over_receivers_check_by_the_old_secret_or_the_new_one(install, receiver):
    async with install(options=dataclasses.replace(OPTIONS, secrets=(KEY, OLD_KEY))) as installed:
        tenants = await Tenants(installed).make()
        await tenants.trigger(ACME, receiver.url)
        await installed.tell()
        shown = (await tenants.get("/v1/callback-secrets", tenants.keys[ACME])).json()["secrets"]

    assert shown == [*tenant_secrets([KEY], ACME), *tenant_secrets([OLD_KEY], ACME)]
    for secret in shown:
        assert verified(receiver.received[0], [secret], ACME) == ACME


async def test_secrets_are_for_those_who_may_set_secrets(tenants):
    may = await tenants.key(ACME, "secrets:write")
    reads = await tenants.key(ACME, "viewer", "operator", "secrets:read")
    narrowed = await tenants.key(ACME, "webhooks:write", agents=("agent:assistant",))

    statuses = [(await tenants.get("/v1/callback-secrets", key)).status_code for key in (may, reads, narrowed, {})]

    assert statuses == [200, 403, 403, 401]


async def test_where_there_are_no_callbacks_there_are_no_secrets(install):
    async with install(options=None) as installed:
        assert (await installed.http.get("/v1/callback-secrets")).status_code == 404

        installed.runtime.outbox = WebhookOutbox(installed.runtime.store, installed.clock, SequentialIds(), None)
        lacking = await installed.http.get("/v1/callback-secrets")
        assert (lacking.status_code, "webhooks.callbacks.secret" in lacking.text) == (503, True)


async def test_a_network_of_one_tenant_is_reached_by_no_other(install, receiver, monkeypatch):
    async with install(networks=()) as installed:
        tenants = await Tenants(installed).make(acme=LOOPBACK)
        for tenant, status in ((ACME, 202), (BETA, 422), (DEFAULT_TENANT, 422)):
            assert (await tenants.trigger(tenant, receiver.url)).status_code == status
        real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", lambda _, port, **options: real("127.0.0.1", port, **options))
        named = f"http://internal.example:{receiver.port}/named"
        for tenant in (ACME, BETA, DEFAULT_TENANT):
            assert (await tenants.trigger(tenant, f"{named}/{tenant}")).status_code == 202
        await installed.tell()

        refused = [*await tenants.problems(BETA), *await tenants.problems(DEFAULT_TENANT)]

    assert sorted(each.path for each in receiver.received) == ["/ended", "/named/acme"]
    assert [each.partition(" (")[0] for each in refused] == [
        "internal.example leads to 127.0.0.1, which is not a public address"
    ] * 2


async def test_networks_of_a_tenant_stand_in_the_place_of_the_general_ones(install, receiver):
    async with install(networks=LOOPBACK) as installed:
        tenants = await Tenants(installed).make(acme=[])

        assert (await tenants.trigger(ACME, receiver.url)).status_code == 422
        assert (await tenants.trigger(BETA, receiver.url)).status_code == 202
        await tenants.runtime.tenants.change(LOCAL, BETA, TenantChange(callback_networks=["10.0.0.0/8"]))
        await installed.tell()
        assert receiver.received == []
        assert "not a public address" in (await tenants.problems(BETA))[0]

        await tenants.runtime.tenants.change(LOCAL, BETA, TenantChange(callback_networks=None))
        await installed.tell(5)
        assert len(receiver.received) == 1


async def test_nothing_is_sent_while_it_cannot_be_read_where_a_tenant_s_callbacks_may_go(
    tenants, receiver, monkeypatch
):
    assert (await tenants.trigger(ACME, receiver.url)).status_code == 202
    store, real = tenants.runtime.store, tenants.runtime.store.read

    async def read(query):
        if isinstance(query, TenantById):
            raise StoreUnavailableError("the disk is gone")
        return await real(query)

    with monkeypatch.context() as patch:
        patch.setattr(store, "read", read)
        await tenants.installed.tell()
    assert receiver.received == []

    await tenants.installed.tell(60)
    assert len(receiver.received) == 1


async def test_a_definition_of_a_tenant_may_name_an_address_in_a_network_of_its_own(install, receiver, tmp_path):
    agent = f"model: scripted:echo\ncallback_url: {receiver.url}\n"
    write_definition(tmp_path / "agents" / "@acme" / "told", agent=agent)
    write_definition(tmp_path / "agents" / "@beta" / "told", agent=agent)
    write_definition(tmp_path / "agents" / "shared", agent=agent)
    async with install(networks=()) as installed:
        tenants = await Tenants(installed).make(acme=LOOPBACK)
        answers = [
            await tenants.trigger(*each) for each in ((ACME, "", "told"), (BETA, "", "told"), (ACME, "", "shared"))
        ]
        await installed.tell()
        runs = await tenants.runtime.runs(RunFilter(BETA))

    assert [each.status_code for each in answers] == [202, 422, 409]
    assert "not a public address" in answers[2].text
    assert (len(receiver.received), runs) == (1, [])
