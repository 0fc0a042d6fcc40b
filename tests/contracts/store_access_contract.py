"""What every Store promises about access keys and tenants, as tests."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.access_key import AccessKey
from owlclaw_ray.domain.ledger import LedgerKind, access_record
from owlclaw_ray.domain.tenant import Tenant, TenantStatus
from owlclaw_ray.ids import DEFAULT_TENANT, KeyId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    KeyChanged,
    KeyStored,
    KeyUseNoted,
    NoteKeyUse,
    PutKey,
    PutTenant,
    TenantChanged,
    TenantStored,
)
from owlclaw_ray.store.queries import (
    IsAccessControlled,
    KeyById,
    KeysOfTenant,
    LedgerBreaks,
    LedgerFilter,
    TenantById,
    TenantPage,
)
from tests.contracts.store_commands import NOW, one

ACME = TenantId("acme")
KEY = AccessKey(
    KeyId("4fT0aQ1z"),
    DEFAULT_TENANT,
    "看门人",
    "ab" * 32,
    ("runs:read", "runs:write"),
    ("agent:trader:*",),
    NOW,
    "system:local",
    NOW + timedelta(days=90),
)
TENANT = Tenant(ACME, "Acme", NOW, "system:local", weight=3)


def record(record_id: str, tenant: TenantId = DEFAULT_TENANT):
    return access_record(record_id, tenant, "key_created", NOW, {"key_id": KEY.key_id})


class AccessContract:
    """Rows of keys and tenants are written by who has seen them as they are."""

    async def test_a_key_is_read_as_it_was_stored_with_its_record_in_the_ledger(self, store: Store) -> None:
        assert await one(store, PutKey(KEY, None, (record("rec_1"),))) == KeyStored()

        assert await store.read(KeyById(KEY.key_id)) == KEY
        assert await store.read(KeyById(KeyId("other"))) is None
        (told,) = await store.read(LedgerFilter(DEFAULT_TENANT))
        assert (told.record.kind, told.record.data) == (
            LedgerKind.ACCESS,
            {"what": "key_created", "key_id": KEY.key_id},
        )
        assert await store.read(LedgerBreaks(DEFAULT_TENANT)) == []

    async def test_a_key_that_is_stored_again_is_there_once_and_told_of_once(self, store: Store) -> None:
        command = PutKey(KEY, None, (record("rec_1"),))

        assert await store.apply([command, command]) == [KeyStored(), KeyStored()]
        assert await one(store, command) == KeyStored()
        assert len(await store.read(LedgerFilter(DEFAULT_TENANT))) == 1

    async def test_of_two_who_change_a_key_that_both_have_seen_the_second_changes_nothing(self, store: Store) -> None:
        await one(store, PutKey(KEY))
        revoked, renamed = replace(KEY, revoked_at=NOW), replace(KEY, name="another")

        assert await one(store, PutKey(revoked, KEY)) == KeyStored()
        assert await one(store, PutKey(renamed, KEY, (record("rec_2"),))) == KeyChanged(revoked)
        assert await one(store, PutKey(renamed)) == KeyChanged(revoked)
        assert await store.read(KeyById(KEY.key_id)) == revoked
        assert await store.read(LedgerFilter(DEFAULT_TENANT)) == []

    async def test_the_use_of_a_key_moves_on_and_stands_in_nobodys_way(self, store: Store) -> None:
        await one(store, PutKey(KEY))
        later = NOW + timedelta(minutes=5)

        assert await one(store, NoteKeyUse(KEY.key_id, later, (record("first"),))) == KeyUseNoted()
        assert await one(store, NoteKeyUse(KEY.key_id, NOW, (record("second"),))) == KeyUseNoted()
        assert await one(store, NoteKeyUse(KeyId("other"), NOW, (record("third"),))) == KeyUseNoted()
        assert await one(store, PutKey(replace(KEY, revoked_at=NOW), KEY)) == KeyStored()

        assert await store.read(KeyById(KEY.key_id)) == replace(KEY, revoked_at=NOW, last_used_at=later)
        assert [each.record.record_id for each in await store.read(LedgerFilter(DEFAULT_TENANT))] == ["first"]

    async def test_keys_are_listed_by_tenant_in_pages(self, store: Store) -> None:
        keys = [replace(KEY, key_id=KeyId(name)) for name in ("B2345678", "a2345678", "b2345678")]
        theirs = replace(KEY, key_id=KeyId("A2345678"), tenant=ACME)
        await store.apply([PutKey(each) for each in (*keys, theirs)])

        assert await store.read(KeysOfTenant(DEFAULT_TENANT, limit=2)) == keys[:2]
        assert await store.read(KeysOfTenant(DEFAULT_TENANT, "a2345678")) == keys[2:]
        assert await store.read(KeysOfTenant(ACME)) == [theirs]

    async def test_of_two_who_change_a_tenant_that_both_have_seen_the_second_changes_nothing(
        self, store: Store
    ) -> None:
        suspended = replace(TENANT, status=TenantStatus.SUSPENDED)

        assert await one(store, PutTenant(TENANT, None, (record("rec_1", ACME),))) == TenantStored()
        assert await one(store, PutTenant(TENANT, None, (record("rec_1", ACME),))) == TenantStored()
        assert await one(store, PutTenant(suspended, TENANT)) == TenantStored()
        assert await one(store, PutTenant(replace(TENANT, weight=1), TENANT)) == TenantChanged(suspended)

        assert await store.read(TenantById(ACME)) == suspended
        assert await store.read(TenantById(DEFAULT_TENANT)) is None
        assert await store.read(TenantPage()) == [suspended]
        assert await store.read(TenantPage("acme")) == []
        assert await store.read(TenantPage(status=suspended.status)) == [suspended]
        assert await store.read(TenantPage(status=TenantStatus.ACTIVE)) == []
        assert len(await store.read(LedgerFilter(ACME))) == 1

    async def test_access_is_controlled_from_the_first_key_on_for_good(self, store: Store) -> None:
        assert await store.read(IsAccessControlled()) is False

        await one(store, PutKey(replace(KEY, revoked_at=NOW)))

        assert await store.read(IsAccessControlled()) is True

    async def test_access_is_controlled_from_the_first_tenant_on(self, store: Store) -> None:
        await one(store, PutTenant(TENANT))

        assert await store.read(IsAccessControlled()) is True
