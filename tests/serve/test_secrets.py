from __future__ import annotations

import base64
import logging

import pytest

from owlclaw_ray.client import ClientError, SyncClient
from owlclaw_ray.errors import NotFoundError, SecretsUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.secrets.keyring import Keyring, new_key, read_keys
from owlclaw_ray.secrets.vault import SecretVault

VALUE = "correct-horse-battery-staple"


async def test_no_answer_has_a_value(http):
    answers = [
        await http.put("/v1/secrets/CRM_TOKEN", json={"value": VALUE, "by": "ada"}),
        await http.get("/v1/secrets"),
        await http.post("/v1/secrets:rotate"),
        await http.get("/v1/secrets/CRM_TOKEN"),
        await http.delete("/v1/secrets/CRM_TOKEN"),
    ]

    assert [each.status_code for each in answers] == [200, 200, 200, 405, 200]
    assert not any(VALUE in each.text for each in answers)
    assert answers[1].json()["secrets"] == [answers[0].json()]
    assert answers[0].json()["created_by"] == "ada"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("hush", "at least 6"),
        (4711471147, "cannot be used"),
        ({"hush": "hush"}, "cannot be used"),
        ("hush" * 20_000, ""),
    ],
)
async def test_a_value_that_is_refused_is_not_repeated(http, caplog, value, said):
    caplog.set_level(logging.DEBUG)
    refused = await http.put("/v1/secrets/CRM_TOKEN", json={"value": value})

    assert refused.status_code in {413, 422}
    assert said in refused.text
    assert "hush" not in refused.text + caplog.text
    assert "4711" not in refused.text + caplog.text


async def test_without_a_master_key_the_answer_names_the_command_that_makes_one(http, runtime):
    store = runtime.schedules
    runtime.secrets = SecretVault(store, store, Keyring(()), TenantRedactors(Redactor), runtime.secrets._clock)

    refused = await http.put("/v1/secrets/CRM_TOKEN", json={"value": VALUE})

    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:owlclaw:problem:secrets-unavailable"
    assert "owlclaw secrets keygen" in refused.json()["detail"]


async def test_secrets_of_another_tenant_are_not_there(http, runtime):
    await runtime.secrets.set_secret(TenantId("globex"), "CRM_TOKEN", VALUE, "eve")

    assert (await http.get("/v1/secrets")).json() == {"secrets": []}
    assert (await http.delete("/v1/secrets/CRM_TOKEN")).status_code == 404
    assert (await http.post("/v1/secrets:rotate")).json() == {"rotated": 0}


async def test_secrets_of_all_tenants_are_rotated_by_who_administers_tenants(http, runtime):
    former = runtime.secrets._keyring
    await runtime.secrets.set_secret(TenantId("globex"), "CRM_TOKEN", VALUE, "eve")
    runtime.secrets._keyring = read_keys(f"{new_key()},{base64.urlsafe_b64encode(b'k' * 32).decode()}")
    assert runtime.secrets._keyring.newest != former.newest

    assert (await http.post("/v1/secrets:rotate-all")).json() == {"rotated": 1}
    assert (await http.post("/v1/secrets:rotate-all")).json() == {"rotated": 0}


def test_the_client_sets_lists_rotates_and_deletes(server, runtime):
    with SyncClient(server) as client:
        made = client.set_secret("CRM_TOKEN", VALUE, by="ada")
        assert client.secrets() == [made]
        assert client.rotate_secrets() == 0
        assert client.rotate_all_secrets() == 0
        assert client.delete_secret("CRM_TOKEN") == made
        with pytest.raises(NotFoundError):
            client.delete_secret("CRM_TOKEN")
        with pytest.raises(ClientError, match="no name of a secret"):
            client.set_secret("1 2", VALUE)
        runtime.secrets._keyring = Keyring(())
        with pytest.raises(SecretsUnavailableError, match="keygen"):
            client.set_secret("CRM_TOKEN", VALUE)
