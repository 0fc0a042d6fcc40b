"""What is too old goes by the retention of its tenant, and nobody else's does."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import TEXT, Artifact
from owlclaw_ray.domain.callback import CallbackStatus
from owlclaw_ray.domain.retention import Kept, Retention
from owlclaw_ray.domain.tenant import Deletion, Tenant, TenantStatus
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, ArtifactId, DeliveryId, RunId, TenantId
from owlclaw_ray.store.artifacts import ArtifactsOfAgent
from owlclaw_ray.store.commands import CancelRun, ChangeCallback, NoteSweep, PutTenant, ReceiveDelivery
from owlclaw_ray.store.queries import CallbackFilter, DeliveryFilter, DueCallbacks
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.artifact_home import ArtifactExpiry, StoredArtifacts
from owlclaw_ray.webhooks.expiry import WebhookExpiry
from tests.contracts.store_commands import NOW, one, submission

BRIEF, LONG, PLAIN, GOING = map(TenantId, ("acme", "acme-2", "acme0", "going"))
DAY = timedelta(days=1)
AGES = (3, 10)
"""Days: one younger and one older than what the settings say, a week."""
TENANTS = {
    DEFAULT_TENANT: None,
    BRIEF: Retention(artifact_days=1, webhook_days=1),
    LONG: Retention(artifact_days=0, webhook_days=0),
    PLAIN: Retention(memory_days=1),
}


@pytest.fixture
async def store(store_url):
    opened = await open_store(store_url, writer="keeper-1")
    for tenant, retention in TENANTS.items():
        if retention is not None:
            await one(opened, PutTenant(Tenant(tenant, "somebody", NOW, "ada", retention=retention), None))
    await opened.apply([NoteSweep(what, NOW) for what in (Kept.WEBHOOKS, Kept.ARTIFACTS)])
    try:
        yield opened
    finally:
        await opened.close()


def agent_of(tenant):
    return AgentRef.parse("trader:AAPL", tenant)


async def webhooks(store):
    """Put a delivery and a callback of each age into the inbox and the outbox of each tenant."""
    for tenant in TENANTS:
        for age in AGES:
            at, run = NOW - age * DAY, RunId(f"run_{tenant}_{age}")
            await store.apply(
                [
                    ReceiveDelivery(
                        Delivery(
                            DeliveryId(f"whd_{tenant}_{age}"), tenant, "shop", "a", at, DeliveryStatus.IGNORED, "no"
                        )
                    ),
                    replace(submission(run, agent_of(tenant)), callback_urls=("https://example.org/ended",), at=at),
                    CancelRun(tenant, run, at),
                ]
            )
            (due,) = await store.read(DueCallbacks(NOW, 9))
            told = replace(
                due,
                status=CallbackStatus.DELIVERED,
                delivered_at=at,
                next_try_at=None,
                version=due.version + 1,
                changed_by="t",
            )
            await one(store, ChangeCallback(told))


async def left(store):
    """Return the ages of what each tenant has left, of deliveries and of callbacks, which are the same."""
    found = {}
    for tenant in TENANTS:
        deliveries = await store.read(DeliveryFilter(tenant))
        callbacks = await store.read(CallbackFilter(tenant))
        found[tenant] = sorted((NOW - each.received_at).days for each in deliveries)
        assert sorted((NOW - each.delivered_at).days for each in callbacks) == found[tenant]
    return found


@pytest.mark.parametrize(
    ("general", "kept"),
    [
        (7 * DAY, {DEFAULT_TENANT: [3], BRIEF: [], LONG: [3, 10], PLAIN: [3]}),
        (None, {DEFAULT_TENANT: [3, 10], BRIEF: [], LONG: [3, 10], PLAIN: [3, 10]}),
    ],
)
async def test_webhooks_are_kept_as_long_as_their_tenant_says_or_else_the_settings(store, general, kept):
    await webhooks(store)

    removed = await WebhookExpiry(store, general, ManualClock(NOW)).tick()

    assert await left(store) == kept
    assert removed == 2 * sum(2 - len(each) for each in kept.values())
    assert await WebhookExpiry(store, general, ManualClock(NOW)).tick() == 0


def stored_artifacts(store, clock):
    loop = asyncio.get_running_loop()

    def ask(awaitable):
        return asyncio.run_coroutine_threadsafe(awaitable, loop).result(30)

    return StoredArtifacts(
        lambda commands: ask(store.apply(commands)), lambda query: ask(store.read(query)), clock, limit=1_000
    )


@pytest.mark.parametrize(
    ("general", "kept"),
    [
        (7 * DAY, {DEFAULT_TENANT: [0], BRIEF: [], LONG: [0, 1], PLAIN: [0]}),
        (None, {DEFAULT_TENANT: [0, 1], BRIEF: [], LONG: [0, 1], PLAIN: [0, 1]}),
    ],
)
async def test_artifacts_in_the_store_are_kept_as_long_as_their_tenant_says_or_else_the_settings(store, general, kept):
    for number, age in enumerate(AGES):
        home = stored_artifacts(store, ManualClock(NOW - age * DAY))
        for tenant in TENANTS:
            artifact = Artifact(ArtifactId(f"art_{number:026x}"), TEXT, b"x")
            await asyncio.to_thread(home.put, agent_of(tenant), artifact)

    home = stored_artifacts(store, ManualClock(NOW))
    removed = await ArtifactExpiry(home, store, general, ManualClock(NOW)).tick()

    found = {tenant: await store.read(ArtifactsOfAgent(agent_of(tenant), 9)) for tenant in TENANTS}
    assert {tenant: sorted(int(each.artifact_id[4:], 16) for each in all_) for tenant, all_ in found.items()} == kept
    assert removed == sum(2 - len(each) for each in kept.values())


async def test_what_is_being_deleted_is_left_to_its_deletion(store):
    asked = []

    class Home:
        def expire(self, tenant, before):
            asked.append((tenant, NOW - before))
            return 0

    made = Tenant(GOING, "gone", NOW, "ada", TenantStatus.SUSPENDED)
    await one(store, PutTenant(made, None))
    await one(store, PutTenant(replace(made, status=TenantStatus.DELETING, deletion=Deletion("ada", NOW)), made))

    await ArtifactExpiry(Home(), store, 7 * DAY, ManualClock(NOW)).tick()

    assert asked == [(DEFAULT_TENANT, 7 * DAY), (BRIEF, DAY), (PLAIN, 7 * DAY)]


async def test_if_the_tenants_cannot_be_read_nothing_of_them_is_removed(store):
    await webhooks(store)

    class Away:
        apply = store.apply

        async def read(self, query):
            if type(query).__name__ == "TenantPage":
                raise StoreUnavailableError("away")
            return await store.read(query)

    with pytest.raises(StoreUnavailableError):
        await WebhookExpiry(Away(), 7 * DAY, ManualClock(NOW)).tick()

    assert await left(store) == {DEFAULT_TENANT: [3], BRIEF: [3, 10], LONG: [3, 10], PLAIN: [3, 10]}
