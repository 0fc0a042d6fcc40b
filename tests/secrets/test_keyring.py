import base64

import pytest

from owlclaw_ray.configuration.own_variables import KEYS_VARIABLE
from owlclaw_ray.errors import ConfigurationError, SecretsUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.secrets.keyring import new_key, read_keys, written_keys

ACME, GLOBEX = TenantId("acme"), TenantId("globex")
OLD, NEW = (base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def test_what_one_key_seals_it_opens_again():
    keyring = read_keys(new_key())

    assert keyring.open(ACME, "CRM", keyring.seal(ACME, "CRM", "schlüssel 钥匙")) == "schlüssel 钥匙"


def test_the_same_value_is_never_sealed_in_the_same_way():
    keyring = read_keys(NEW)

    assert keyring.seal(ACME, "CRM", "swordfish").ciphertext != keyring.seal(ACME, "CRM", "swordfish").ciphertext


def test_the_first_key_seals_and_each_opens_what_it_sealed():
    before, both = read_keys(OLD), read_keys(f"{NEW}, {OLD}")
    sealed = before.seal(ACME, "CRM", "swordfish")

    assert both.seal(ACME, "CRM", "swordfish").key_id == both.newest == read_keys(NEW).newest
    assert both.open(ACME, "CRM", sealed) == "swordfish"


def test_a_key_that_is_missing_is_named_by_its_id():
    sealed = read_keys(OLD).seal(ACME, "CRM", "swordfish")

    with pytest.raises(
        SecretsUnavailableError, match=f"CRM was encrypted with the master key {sealed.key_id}, which is missing"
    ):
        read_keys(NEW).open(ACME, "CRM", sealed)


def test_without_a_key_the_error_names_the_command_that_makes_one():
    with pytest.raises(SecretsUnavailableError, match="owlclaw secrets keygen"):
        read_keys("").seal(ACME, "CRM", "swordfish")


@pytest.mark.parametrize(("tenant", "name"), [(GLOBEX, "CRM"), (ACME, "MAIL"), (TenantId("acmeC"), "RM")])
def test_what_was_sealed_for_another_tenant_or_name_is_refused(tenant, name):
    keyring = read_keys(NEW)

    with pytest.raises(SecretsUnavailableError, match=f"secret {name} in the store is not what was encrypted for it"):
        keyring.open(tenant, name, keyring.seal(ACME, "CRM", "swordfish"))


def test_every_changed_byte_is_noticed():
    keyring = read_keys(NEW)
    sealed = keyring.seal(ACME, "CRM", "swordfish")
    for place in range(len(sealed.ciphertext)):
        changed = bytearray(sealed.ciphertext)
        changed[place] ^= 1
        with pytest.raises(SecretsUnavailableError):
            keyring.open(ACME, "CRM", type(sealed)(sealed.key_id, bytes(changed)))
    with pytest.raises(SecretsUnavailableError):
        keyring.open(ACME, "CRM", type(sealed)(sealed.key_id, b""))


@pytest.mark.parametrize("written", ["swordfish", NEW[:-2], f"{OLD} {NEW}x", "=" * 44])
def test_what_is_no_key_is_refused_and_not_repeated(written):
    with pytest.raises(ConfigurationError, match="is no master key") as refused:
        read_keys(written)

    assert written not in str(refused.value)


def test_the_keys_of_the_environment_come_before_those_of_the_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"{OLD}\n")

    assert read_keys(written_keys(file, {KEYS_VARIABLE: NEW})).ids == (read_keys(NEW).newest, read_keys(OLD).newest)
    with pytest.raises(ConfigurationError, match=r"secrets\.key_file: .*missing cannot be read"):
        written_keys(tmp_path / "missing", {})


def test_no_key_is_shown_by_its_keyring():
    assert NEW not in repr(read_keys(NEW)) + str(vars(read_keys(NEW)).keys())
