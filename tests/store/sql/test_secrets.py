"""Secrets of tenants in real databases."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.errors import NotFoundError, SecretsUnavailableError, UserError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.secrets.keyring import new_key, read_keys
from owlclaw_ray.secrets.vault import SecretVault
from owlclaw_ray.store.commands import AppendLedger, DeleteSecret, PutSecret, ReplaceCiphertext
from owlclaw_ray.store.queries import LedgerBreaks, LedgerFilter
from owlclaw_ray.store.secrets import SecretByName
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.schema import secrets
from owlclaw_ray.testing.clock import ManualClock

ACME, GLOBEX = TenantId("acme"), TenantId("globex")
OLD, NEW = (base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in (1, 2))
VALUE = "correct-horse-battery-staple"
T0, T1, T2 = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))


def vault_on(store, keys=NEW, clock=None, redactors=None):
    return SecretVault(store, store, read_keys(keys), redactors or TenantRedactors(Redactor), clock or ManualClock())


@pytest.fixture
def vault(store):
    return vault_on(store)


async def test_a_secret_that_was_set_is_read_by_its_tenant_alone(vault):
    set_ = await vault.set_secret(ACME, "CRM", VALUE, "ada")

    assert await vault.secret(ACME, "CRM") == VALUE
    assert [set_] == [*await vault.secrets(ACME)]
    assert (set_.name, set_.created_by) == ("CRM", "ada")
    assert [*await vault.secrets(GLOBEX)] == []
    with pytest.raises(NotFoundError):
        await vault.secret(GLOBEX, "CRM")
    with pytest.raises(NotFoundError):
        await vault.delete_secret(GLOBEX, "CRM", "ada")


async def test_a_value_that_is_set_again_keeps_who_made_the_secret_and_when(store):
    clock = ManualClock()
    vault = vault_on(store, clock=clock)
    first = await vault.set_secret(ACME, "CRM", "first-value", "ada")
    await clock.advance(60)

    again = await vault.set_secret(ACME, "CRM", VALUE, "bob")

    assert await vault.secret(ACME, "CRM") == VALUE
    assert (again.created_at, again.created_by) == (first.created_at, "ada")
    assert (again.rotated_at - first.rotated_at).total_seconds() == 60


async def test_the_ledger_of_the_tenant_is_told_who_sets_rotates_and_deletes_a_secret_and_never_its_value(store):
    old = read_keys(OLD).newest
    await vault_on(store, OLD).set_secret(ACME, "CRM", VALUE, "key:4fT0aQ1z (ci)")
    vault = vault_on(store, f"{NEW},{OLD}")
    await vault.rotate_secrets(ACME, "ada")
    await vault.rotate_secrets(ACME, "nobody")
    await vault.delete_secret(ACME, "CRM", "bob")

    told = await store.read(LedgerFilter(ACME))
    new = read_keys(NEW).newest
    assert sorted((each.record.data for each in told), key=lambda data: data["what"]) == [
        {"what": "secret_deleted", "by": "bob", "name": "CRM"},
        {"what": "secret_set", "by": "key:4fT0aQ1z (ci)", "name": "CRM", "key_id": old},
        {"what": "secrets_rotated", "by": "ada", "key_id": new, "count": 1},
    ]
    assert await store.read(LedgerFilter(GLOBEX)) == []
    assert await store.read(LedgerBreaks(ACME)) == []


async def test_a_deleted_secret_is_gone(vault):
    await vault.set_secret(ACME, "CRM", VALUE, "ada")

    await vault.delete_secret(ACME, "CRM", "ada")

    assert [*await vault.secrets(ACME)] == []
    with pytest.raises(NotFoundError):
        await vault.secret(ACME, "CRM")


@pytest.mark.parametrize(
    ("name", "value"), [("1ST", VALUE), ("A B", VALUE), ("", VALUE), ("CRM", "short"), ("CRM", "x" * 70_000)]
)
async def test_what_could_not_be_redacted_or_named_is_refused_and_not_repeated(vault, name, value):
    with pytest.raises(UserError) as refused:
        await vault.set_secret(ACME, name, value, "ada")

    assert value not in str(refused.value)


async def test_no_file_of_the_database_has_a_value(sqlite_url, tmp_path):
    store = await open_store(sqlite_url, writer="keeper-1")
    await vault_on(store).set_secret(ACME, "CRM_TOKEN", VALUE, "ada")
    contents = [each.read_bytes() for each in tmp_path.glob("owlclaw.db*")]
    await store.close()
    contents += [each.read_bytes() for each in tmp_path.glob("owlclaw.db*")]

    assert any(b"CRM_TOKEN" in each for each in contents)
    assert not any(VALUE.encode() in each or NEW.encode() in each for each in contents)


@pytest.mark.parametrize(
    ("tenant", "name"), [(GLOBEX, "CRM"), (ACME, "MAIL")], ids=["of another tenant", "of another name"]
)
async def test_a_ciphertext_that_was_moved_to_another_row_is_refused_there(store, vault, tenant, name):
    await vault.set_secret(ACME, "CRM", VALUE, "ada")
    await vault.set_secret(tenant, name, "another-value", "eve")
    stolen = (await store.read(SecretByName(ACME, "CRM"))).ciphertext

    def move(connection):
        connection.execute(
            update(secrets).where(secrets.c.tenant == tenant, secrets.c.name == name).values(ciphertext=stolen)
        )

    await store._database.write(move)

    with pytest.raises(SecretsUnavailableError, match="is not what was encrypted for it"):
        await vault.secret(tenant, name)
    assert await vault.secret(ACME, "CRM") == VALUE


async def test_rotation_leaves_nothing_that_needs_the_old_key(store):
    await vault_on(store, OLD).set_secret(ACME, "CRM", VALUE, "ada")
    await vault_on(store, OLD).set_secret(GLOBEX, "CRM", "another-value", "eve")

    assert await vault_on(store, f"{NEW},{OLD}").rotate_secrets(ACME, "ada") == 1
    assert await vault_on(store, f"{NEW},{OLD}").rotate_secrets(ACME, "ada") == 0

    assert await vault_on(store, NEW).secret(ACME, "CRM") == VALUE
    with pytest.raises(SecretsUnavailableError, match="which is missing"):
        await vault_on(store, NEW).secret(GLOBEX, "CRM")


async def test_rotation_of_all_tenants_leaves_nothing_that_needs_the_old_key(store):
    await vault_on(store, OLD).set_secret(ACME, "CRM", VALUE, "ada")
    await vault_on(store, OLD).set_secret(GLOBEX, "CRM", "another-value", "eve")

    assert await vault_on(store, f"{NEW},{OLD}").rotate_all_secrets("root") == 2
    assert await vault_on(store, f"{NEW},{OLD}").rotate_all_secrets("root") == 0

    assert await vault_on(store, NEW).secret(ACME, "CRM") == VALUE
    assert await vault_on(store, NEW).secret(GLOBEX, "CRM") == "another-value"


async def test_a_tenant_whose_key_is_missing_is_named_and_keeps_no_other_from_being_rotated(store):
    lost = new_key()
    await vault_on(store, lost).set_secret(ACME, "CRM", VALUE, "ada")
    await vault_on(store, OLD).set_secret(GLOBEX, "CRM", "another-value", "eve")

    with pytest.raises(SecretsUnavailableError, match=f"tenant {ACME}: .*missing"):
        await vault_on(store, f"{NEW},{OLD}").rotate_all_secrets("root")

    assert await vault_on(store, NEW).secret(GLOBEX, "CRM") == "another-value"


async def test_a_secret_can_be_read_all_the_time_while_its_key_is_rotated(store):
    names = [f"NAME_{number}" for number in range(20)]
    for name in names:
        await vault_on(store, OLD).set_secret(ACME, name, f"{VALUE}-{name}", "ada")
    rotating, reading = vault_on(store, f"{NEW},{OLD}"), vault_on(store, f"{NEW},{OLD}")
    rotation = asyncio.create_task(rotating.rotate_secrets(ACME, "ada"))
    reads = 0
    while not rotation.done() or reads < len(names):
        name = names[reads % len(names)]
        assert await reading.secret(ACME, name) == f"{VALUE}-{name}"
        reads += 1

    assert await rotation == len(names)


async def test_a_value_that_is_set_during_a_rotation_stands(store):
    old = read_keys(OLD).seal(ACME, "CRM", "first-value")
    both = read_keys(f"{NEW},{OLD}")
    rotated, fresh = both.seal(ACME, "CRM", "first-value"), both.seal(ACME, "CRM", VALUE)
    await store.apply([PutSecret(ACME, "CRM", old.key_id, old.ciphertext, "ada", T0)])

    # what a rotation read before the value was set comes after it, in a batch of its own and in the same one
    put = PutSecret(ACME, "CRM", fresh.key_id, fresh.ciphertext, "ada", T1)
    late = ReplaceCiphertext(ACME, "CRM", old.ciphertext, rotated.key_id, rotated.ciphertext, T2)
    await store.apply([put])
    await store.apply([late])
    assert await vault_on(store).secret(ACME, "CRM") == VALUE

    await store.apply([late, put])
    assert await vault_on(store).secret(ACME, "CRM") == VALUE
    await store.apply([put, late])
    assert await vault_on(store).secret(ACME, "CRM") == VALUE


async def test_of_one_batch_the_last_command_about_a_secret_counts(store):
    sealed = read_keys(NEW).seal(ACME, "CRM", VALUE)
    put, delete = PutSecret(ACME, "CRM", sealed.key_id, sealed.ciphertext, "ada", T0), DeleteSecret(ACME, "CRM")

    await store.apply([put, delete])
    assert await store.read(SecretByName(ACME, "CRM")) is None

    await store.apply([put])
    await store.apply([delete, put])
    assert await vault_on(store).secret(ACME, "CRM") == VALUE


async def test_a_rotation_rotates_what_it_can_and_says_which_key_is_missing(store):
    other = base64.urlsafe_b64encode(b"3" * 32).decode()
    await vault_on(store, other).set_secret(ACME, "A", VALUE, "ada")
    await vault_on(store, OLD).set_secret(ACME, "B", VALUE, "ada")

    with pytest.raises(SecretsUnavailableError, match=read_keys(other).newest):
        await vault_on(store, f"{NEW},{OLD}").rotate_secrets(ACME, "ada")

    assert await vault_on(store, NEW).secret(ACME, "B") == VALUE


def printed(tenant, what):
    return LedgerRecord(
        f"rec_{tenant}_{len(what)}",
        tenant,
        "worker",
        f"run_{tenant}",
        LedgerKind.TOOL_CALL,
        T0,
        {"error": f"it printed {what}"},
    )


async def ledger_of(store, tenant):
    return str([each.record.data for each in await store.read(LedgerFilter(tenant))])


async def test_what_another_keeper_set_is_taken_out_of_the_tenants_ledger_and_of_no_others(store_url, store):
    await vault_on(store).set_secret(ACME, "CRM", VALUE, "ada")
    redactors = TenantRedactors(Redactor)
    keeper = await open_store(store_url, writer="keeper-2", redactors=redactors)
    vault = vault_on(keeper, redactors=redactors)

    await vault.learn()
    await keeper.apply([AppendLedger((printed(ACME, VALUE), printed(GLOBEX, VALUE)))])

    assert "[redacted:CRM]" in await ledger_of(keeper, ACME)
    assert VALUE not in await ledger_of(keeper, ACME)
    assert VALUE in await ledger_of(keeper, GLOBEX)

    await vault_on(store).set_secret(ACME, "CRM", "the-second-value", "ada")
    await vault_on(store).delete_secret(ACME, "CRM", "ada")
    await vault_on(store).set_secret(ACME, "CRM", "the-third-value", "ada")
    await vault.learn()
    await keeper.apply([AppendLedger((printed(ACME, f"{VALUE} and the-third-value"),))])

    assert VALUE not in await ledger_of(keeper, ACME)
    assert "third" not in await ledger_of(keeper, ACME)
    await keeper.close()


async def test_a_secret_that_cannot_be_decrypted_keeps_nobody_from_learning_the_others(store, caplog):
    await vault_on(store, OLD).set_secret(ACME, "A", "a-lost-value", "ada")
    await vault_on(store, NEW).set_secret(ACME, "B", VALUE, "ada")
    redactors = TenantRedactors(Redactor)

    await vault_on(store, NEW, redactors=redactors).learn()

    assert redactors.of(ACME).redact({"error": VALUE}) == {"error": "[redacted:B]"}
    assert f"the master key {read_keys(OLD).newest}, which is missing" in caplog.text
