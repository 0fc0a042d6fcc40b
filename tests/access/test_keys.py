from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from owlclaw_ray.access.keys import AccessKeys, KeyRequest
from owlclaw_ray.access.tenants import TenantChange, Tenants
from owlclaw_ray.domain.access_key import read_key
from owlclaw_ray.domain.principal import LOCAL, Principal
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.errors import (
    AccessConflictError,
    AccessDeniedError,
    InvalidAccessError,
    NotFoundError,
    StoreUnavailableError,
)
from owlclaw_ray.ids import DEFAULT_TENANT, KeyId, TenantId
from owlclaw_ray.store.commands import PutKey
from owlclaw_ray.store.queries import KeyById, LedgerFilter
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from tests.world import InlineDatabase

ACME = TenantId("acme")
CI = KeyRequest("ci", ("operator",))


_DATABASE = InlineDatabase()
"""Of one world after another: tables take longer to make than to empty."""


class World:
    def __init__(self) -> None:
        _DATABASE.empty()
        self.store, self.clock, self.ids = SqlStore(_DATABASE, "test"), ManualClock(), SequentialIds()
        self.keys = AccessKeys(self.store, self.clock, self.ids)
        self.tenants = Tenants(self.store, self.clock, self.ids)

    async def told(self, tenant=DEFAULT_TENANT):
        return [each.record.data for each in await self.store.read(LedgerFilter(tenant))]


@pytest.fixture
def world():
    return World()


async def test_a_key_is_valid_for_ninety_days_and_its_secret_is_kept_nowhere(world):
    issued = await world.keys.create(LOCAL, CI)

    key_id, secret_hash = read_key(issued.text)
    stored = await world.keys.key(DEFAULT_TENANT, key_id)
    assert stored == issued.key
    assert (stored.secret_hash, stored.expires_at) == (secret_hash, world.clock.now() + timedelta(days=90))
    assert stored.created_by == "system:local"
    secret = issued.text.split("_")[2]
    assert secret not in str(await world.told())
    assert secret not in repr(world.store._database.tables("SELECT * FROM access_keys"))


async def test_what_becomes_of_a_key_is_in_the_ledger_of_its_tenant(world):
    issued = await world.keys.create(LOCAL, CI)
    by = replace(LOCAL, id="ops")
    await world.keys.rotate(by, issued.key.key_id, 60)
    await world.keys.revoke(by, issued.key.key_id)
    await world.keys.revoke(by, issued.key.key_id)

    told = await world.told()
    assert [(each["what"], each["by"]) for each in told] == [
        ("key_created", "system:local"),
        ("key_rotated", "system:ops"),
        ("key_revoked", "system:ops"),
    ]
    assert told[0]["scopes"] == [*issued.key.scopes]
    assert {each["key_id"] for each in told} == {issued.key.key_id}


async def test_a_rotated_key_has_two_secrets_for_the_grace_and_then_one(world):
    first = await world.keys.create(LOCAL, CI)

    second = await world.keys.rotate(LOCAL, first.key.key_id, 60)

    _, old = read_key(first.text)
    key_id, new = read_key(second.text)
    assert key_id == first.key.key_id
    stored, now = await world.keys.key(DEFAULT_TENANT, key_id), world.clock.now()
    assert [stored.refusal(each, now + timedelta(seconds=59)) for each in (old, new)] == ["", ""]
    assert [stored.refusal(each, now + timedelta(seconds=60)) for each in (old, new)] == ["rotated", ""]

    third = await world.keys.rotate(LOCAL, key_id, 60)

    assert third.key.refusal(old, now) == "unknown"
    assert third.key.refusal(new, now) == ""


async def test_a_revoked_key_stays_so(world):
    issued = await world.keys.create(LOCAL, CI)
    revoked = await world.keys.revoke(LOCAL, issued.key.key_id)
    await world.clock.advance(5)

    assert await world.keys.revoke(LOCAL, issued.key.key_id) == revoked
    with pytest.raises(AccessConflictError, match="is revoked"):
        await world.keys.rotate(LOCAL, issued.key.key_id, 0)


async def test_an_expired_key_gets_no_secret_that_would_be_refused_at_once(world):
    issued = await world.keys.create(LOCAL, replace(CI, days=1))
    await world.clock.advance(86_400)

    with pytest.raises(AccessConflictError, match="is expired"):
        await world.keys.rotate(LOCAL, issued.key.key_id, 60)


async def test_nobody_makes_rotates_or_revokes_a_key_that_can_do_more(world):
    admin = (await world.keys.create(LOCAL, KeyRequest("admin", ("admin",)))).key
    minter = (await world.keys.create(LOCAL, KeyRequest("minter", ("keys:admin", "runs:write")))).key.principal

    for scopes in (("admin",), ("runs:write", "agents:read"), ("tenants:read",)):
        with pytest.raises(AccessDeniedError, match="cannot give what it does not have"):
            await world.keys.create(minter, KeyRequest("more", scopes))
    for change in (world.keys.revoke(minter, admin.key_id), world.keys.rotate(minter, admin.key_id, 0)):
        with pytest.raises(AccessDeniedError):
            await change
    assert (await world.keys.create(minter, KeyRequest("less", ("runs:read",)))).key.created_by == str(minter)


async def test_keys_of_other_tenants_are_not_there(world):
    await world.tenants.create(LOCAL, "acme")
    theirs = (await world.keys.create(LOCAL, replace(CI, tenant=ACME))).key
    ours = (await world.keys.create(LOCAL, CI)).key
    stranger = Principal(ACME, LOCAL.kind, "x", "", frozenset({"*"}))

    for ask in (
        world.keys.key(ACME, ours.key_id),
        world.keys.revoke(stranger, ours.key_id),
        world.keys.rotate(stranger, ours.key_id, 0),
        world.keys.key(DEFAULT_TENANT, theirs.key_id),
        world.keys.revoke(LOCAL, KeyId("nothing")),
    ):
        with pytest.raises(NotFoundError):
            await ask
    assert await world.keys.keys(ACME) == [theirs]


async def test_a_key_of_another_tenant_is_made_by_an_operator_for_one_that_there_is_and_not_over_all(world):
    await world.tenants.create(LOCAL, "acme")
    stranger = Principal(ACME, LOCAL.kind, "x", "", frozenset({"*"}))

    with pytest.raises(AccessDeniedError, match="tenants:admin"):
        await world.keys.create(stranger, replace(CI, tenant=DEFAULT_TENANT))
    with pytest.raises(NotFoundError, match="tenant 'nobody'"):
        await world.keys.create(LOCAL, replace(CI, tenant=TenantId("nobody")))
    with pytest.raises(InvalidAccessError, match="tenants:read are for no tenant"):
        await world.keys.create(LOCAL, KeyRequest("x", ("tenants:read",), tenant=ACME))
    everything = (await world.keys.create(LOCAL, KeyRequest("x", ("admin",), tenant=ACME))).key.principal
    assert not everything.may("tenants:read")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "  "},
        {"name": "a\nb"},
        {"name": "x" * 101},
        {"days": 0},
        {"days": 3_651},
        {"days": float("nan")},
        {"scopes": ("runs",)},
        {"scopes": ()},
        {"agents": ("trader",)},
        {"scopes": ("admin",), "agents": ("agent:trader",)},
    ],
)
async def test_a_key_that_makes_no_sense_is_refused_and_nothing_is_stored(world, wrong):
    with pytest.raises(InvalidAccessError):
        await world.keys.create(LOCAL, replace(CI, **wrong))
    assert await world.keys.keys(DEFAULT_TENANT) == []
    assert await world.told() == []


async def test_a_change_that_meets_another_one_is_made_upon_it(world):
    issued = await world.keys.create(LOCAL, CI)
    apply, met = world.store.apply, []

    async def meeting(commands):
        if not met:
            met.append(await apply([PutKey(replace(issued.key, name="renamed"), issued.key)]))
        return await apply(commands)

    world.store.apply = meeting
    revoked = await world.keys.revoke(LOCAL, issued.key.key_id)

    assert (revoked.name, revoked.revoked_at) == ("renamed", world.clock.now())
    assert await world.store.read(KeyById(issued.key.key_id)) == revoked


async def test_an_id_that_is_taken_is_not_taken_again(world):
    await AccessKeys(world.store, world.clock, world.ids, lambda size: b"\1" * size).create(LOCAL, CI)
    drawn = iter([b"\1", b"\2", b"\3", b"\4"])
    other = AccessKeys(world.store, world.clock, world.ids, lambda size: next(drawn) * size)
    stuck = AccessKeys(world.store, world.clock, world.ids, lambda size: b"\1" * (size - 1) + bytes([size]))

    assert (await other.create(LOCAL, replace(CI, name="other"))).key.name == "other"
    assert len(await world.keys.keys(DEFAULT_TENANT)) == 2
    await stuck.create(LOCAL, CI)
    with pytest.raises(StoreUnavailableError, match="no free key id"):
        await stuck.create(LOCAL, replace(CI, name="third"))


async def test_a_tenant_is_made_once_changed_and_told_of_in_its_own_ledger(world):
    made = await world.tenants.create(LOCAL, "acme", "Acme", 3)
    changed = await world.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))
    await world.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))

    assert changed == replace(made, status=TenantStatus.SUSPENDED)
    assert await world.tenants.tenants() == [changed]
    assert [(each["what"], each["status"]) for each in await world.told(ACME)] == [
        ("tenant_created", "active"),
        ("tenant_changed", "suspended"),
    ]
    for again in ("acme", "default"):
        with pytest.raises(AccessConflictError, match="there is a tenant"):
            await world.tenants.create(LOCAL, again)
    with pytest.raises(NotFoundError):
        await world.tenants.change(LOCAL, TenantId("nobody"), TenantChange(weight=2))


async def test_only_operators_make_and_change_tenants(world):
    await world.tenants.create(LOCAL, "acme")
    for who in (
        Principal(ACME, LOCAL.kind, "x", "", frozenset({"*"})),
        replace(LOCAL, scopes=frozenset({"keys:admin"})),
    ):
        with pytest.raises(AccessDeniedError):
            await world.tenants.create(who, "other")
        with pytest.raises(AccessDeniedError):
            await world.tenants.change(who, ACME, TenantChange(weight=100))


@pytest.mark.parametrize("wrong", [{"name": "a\0b"}, {"name": "x" * 101}, {"weight": 0}, {"weight": 1_001}])
async def test_a_tenant_that_makes_no_sense_is_refused(world, wrong):
    with pytest.raises(InvalidAccessError):
        await world.tenants.create(LOCAL, "acme", **wrong)
    assert await world.tenants.tenants() == []
