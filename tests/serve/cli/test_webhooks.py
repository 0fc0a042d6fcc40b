from __future__ import annotations

import json

import pytest

from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.webhooks.callback_secrets import tenant_secrets
from tests.serve.cli.conftest import Run
from tests.serve.webhook_double import CALLBACK_KEY


def test_sources_are_listed_without_their_secrets(owlclaw: Run):
    output = owlclaw("webhooks", "sources").output

    assert "/v1/webhooks/github" in output
    assert "X-Hub-Signature-256 (sha256)" in output
    assert "Secret" not in output


def test_deliveries_are_listed_with_their_run_or_the_reason(owlclaw: Run):
    output = owlclaw("webhooks", "deliveries").output

    assert "run_1" in output
    assert "the body has nothing at 'issue'" in output
    unmapped = json.loads(owlclaw("webhooks", "deliveries", "--status", "unmapped", "--json").output)
    assert [each["delivery_id"] for each in unmapped] == ["whd_2"]
    assert "nothing came in" in owlclaw("webhooks", "deliveries", "--source", "gitlab").output


def test_callbacks_are_listed_with_what_is_wrong(owlclaw: Run):
    assert "the receiver answered 503" in owlclaw("webhooks", "callbacks", "--status", "dead").output
    waiting = json.loads(owlclaw("webhooks", "callbacks", "--run", "run_1", "--json").output)
    assert [each["status"] for each in waiting] == ["waiting"]
    assert "no callbacks" in owlclaw("webhooks", "callbacks", "--agent", "patient").output


def test_a_delivery_and_a_callback_are_shown(owlclaw: Run):
    assert "价格" in owlclaw("webhooks", "show", "whd_2").output
    assert "https://example.org/" in owlclaw("webhooks", "show", "cb_2").output


def test_a_dead_callback_is_sent_again(owlclaw: Run):
    again = json.loads(owlclaw("webhooks", "redeliver", "cb_2", "--json").output)

    assert (again["status"], again["attempts"]) == ("pending", 0)


def test_what_cannot_be_repeated_says_why(owlclaw: Run):
    for identifier, why in (("cb_1", "its run is not over"), ("whd_1", "its body was not kept")):
        result = owlclaw("webhooks", "redeliver", identifier)
        assert result.exit_code == 1
        assert f"cannot be repeated: {why}" in result.output


def test_the_secrets_of_callbacks_are_shown(owlclaw: Run):
    (secret,) = tenant_secrets([CALLBACK_KEY], DEFAULT_TENANT)

    assert owlclaw("webhooks", "secrets").output == f"{secret}\n"
    assert json.loads(owlclaw("webhooks", "secrets", "--json").output) == [secret]


@pytest.mark.parametrize("command", ["deliveries", "callbacks"])
def test_a_status_that_there_is_not_is_wrong_usage(owlclaw: Run, command: str):
    assert owlclaw("webhooks", command, "--status", "open").exit_code == 2
