from __future__ import annotations

import base64
import dataclasses

import pytest

from owlclaw_ray.configuration.webhooks import filled_keys, filled_sources
from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.domain.webhook import BodyForm, DeliverTo
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.settings import load_runtime_settings
from serve.runtime_plan import plan_of

SOURCE = """
webhooks:
  callbacks: {secret: "${OUT}", allowed_networks: [10.1.0.0/16], attempts: 4}
  sources:
    shop:
      secret: ${SHOP}
      previous_secret: ${SHOP_OLD}
      signature: {header: X-Signature, digest_key: v1, timestamp_key: t, signed: "{timestamp}.{body}"}
      body: form
      agent: "assistant:{body.customer}"
      payload: {order: "{body.order}", list: ["{header.X-Event}"]}
      when: {"{header.X-Event}": [paid]}
      dedupe: "{body.id}"
      busy: coalesce
      priority: 3
      callback_url: https://example.org/
"""
KEY = base64.b64encode(bytes(32)).decode()
ENVIRON = {"SHOP": "s3cret-new", "SHOP_OLD": "s3cret-old", "OUT": KEY}


def load(folder, text, environ=ENVIRON):
    (folder / "owlclaw.yaml").write_text(text, encoding="utf-8")
    return load_runtime_settings(folder, environ)


def problems_of(folder, text, environ=ENVIRON):
    with pytest.raises(ConfigurationError) as caught:
        load(folder, text, environ)
    return str(caught.value)


def test_a_source_says_how_it_signs_and_what_it_becomes(tmp_path):
    settings = load(tmp_path, SOURCE)

    (shop,), problems = filled_sources(settings.webhook_sources, ENVIRON)
    assert problems == ()
    assert (shop.name, shop.secrets, shop.body) == ("shop", ("s3cret-new", "s3cret-old"), BodyForm.FORM)
    assert (shop.signature.header, shop.signature.timed, shop.signature.tolerance) == ("X-Signature", True, 300.0)
    assert shop.mapping.when == (("{header.X-Event}", ("paid",)),)
    assert (shop.mapping.admission.busy, shop.mapping.admission.priority) == (BusyPolicy.COALESCE, 3)
    assert settings.callback_rules.allowed_networks == ("10.1.0.0/16",)
    assert settings.callback_options.retry.attempts == 4
    assert filled_keys(settings.callback_options.secrets, ENVIRON) == (KEY,)


def test_a_machine_that_lacks_the_secret_of_a_source_serves_the_others(tmp_path):
    settings = load(tmp_path, SOURCE)
    (shop,) = settings.webhook_sources
    other = dataclasses.replace(shop, name="other", secrets=("${OTHER}",))

    (lacking, whole), (problem,) = filled_sources((shop, other), {"OTHER": "s3cret"})

    assert (lacking.secrets, whole.secrets) == ((), ("s3cret",))
    assert str(problem) == "webhooks.sources.shop: the variable SHOP is not set (set it where the runtime is started)"


def test_a_source_with_a_secret_that_is_not_of_its_form_has_none(tmp_path):
    (shop,) = load(tmp_path, f"{SOURCE}      secret_encoding: base64\n").webhook_sources

    (source,), (problem,) = filled_sources((shop,), ENVIRON | {"SHOP": KEY, "SHOP_OLD": "no base64!"})

    assert source.secrets == ()
    expected = "${SHOP_OLD} is empty, or not of the form that secret_encoding says"
    assert str(problem) == f"webhooks.sources.shop: {expected}"


def test_a_source_that_delivers_to_heartbeats_says_nothing_of_runs(tmp_path):
    source = SOURCE.replace("      busy: coalesce\n      priority: 3\n      callback_url: https://example.org/\n", "")
    settings = load(tmp_path, f"{source}      deliver: heartbeat\n")
    problems = problems_of(tmp_path, f"{SOURCE}      deliver: heartbeat\n      task_type: '{{body.type}}'\n")

    (shop,) = settings.webhook_sources
    assert shop.mapping.deliver is DeliverTo.HEARTBEAT
    assert (
        "has task_type and busy and priority and callback_url, of runs that webhooks trigger, and deliver: heartbeat"
        in problems
    )


def test_webhooks_are_kept_for_ever_unless_they_have_days(tmp_path):
    thirty = SOURCE.replace("webhooks:\n", "webhooks:\n  retention_days: 30\n")

    assert [plan_of(load(tmp_path, text)).webhook_days for text in (SOURCE, thirty)] == [0, 30]


def test_plans_and_settings_hold_no_secrets(tmp_path):
    settings = load(tmp_path, SOURCE)

    shown = repr(settings) + repr(plan_of(settings)) + repr(filled_sources(settings.webhook_sources, ENVIRON))
    assert not any(secret in shown for secret in ENVIRON.values())


@pytest.mark.parametrize("secret", ["hunter2hunter2", "x${SHOP}", "${SHOP", "12345678"])
def test_a_secret_in_the_file_is_refused_without_being_shown(tmp_path, secret):
    said = problems_of(tmp_path, SOURCE.replace("secret: ${SHOP}\n", f"secret: {secret}\n"))

    assert "owlclaw.yaml:6: webhooks.sources.shop.secret: must be ${NAME}" in said
    assert "hunter2" not in said
    assert "12345678" not in said


def test_a_secret_that_is_not_set_is_a_problem_of_the_start(tmp_path):
    said = problems_of(tmp_path, SOURCE, {"SHOP": "a"})

    assert "webhooks.sources.shop.previous_secret: needs the variable SHOP_OLD, which is not set" in said
    assert "webhooks.callbacks.secret: needs the variable OUT, which is not set" in said


@pytest.mark.parametrize("key", ["", "short", KEY[:20], "no base64 at all, but long enough for anybody"])
def test_callbacks_are_signed_with_keys_that_nobody_guesses(tmp_path, key):
    settings = load(tmp_path, SOURCE)

    with pytest.raises(ConfigurationError, match="at least 24 bytes in base64") as caught:
        filled_keys(settings.callback_options.secrets, {"OUT": key})
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('agent: "assistant:{body.customer}"', 'agent: "{boddy}"', "has {boddy}: write {body}"),
        ('dedupe: "{body.id}"', 'dedupe: "{body..id}"', "has {body..id}"),
        ('list: ["{header.X-Event}"]', 'list: ["{headers.X}"]', "has {headers.X}"),
        ('when: {"{header.X-Event}": [paid]}', "when: {event: [paid]}", "has 'event', which is always the same"),
        ('signed: "{timestamp}.{body}"', 'signed: "{timestamp}"', "does not have {body} in it"),
        ('signed: "{timestamp}.{body}"', 'signed: "{body}"', "has a time that is not in `signed`"),
        ('signed: "{timestamp}.{body}"', 'signed: "{time}.{body}"', "has {time}"),
        ("timestamp_key: t", "timestamp_key: t, timestamp_header: X", "the time comes from one of them"),
        ("digest_key: v1, ", "", "has timestamp_key without digest_key"),
        ("header: X-Signature", 'header: "X Signature"', "which is no name of a header"),
        ("    shop:", "    Shop Ltd:", "a source's name has at most 32 small letters"),
        ("10.1.0.0/16", "10.1.0.0/8", "which is no network"),
        ('{secret: "${OUT}", ', '{previous_secret: "${OUT}", ', "has previous_secret without secret"),
        ('{secret: "${OUT}", ', "{", "no callbacks.secret to sign with"),
        ("body: form", "body: xml", "'json', 'form' or 'text'"),
        ("priority: 3", "priority: 30", "priority"),
    ],
)
def test_what_is_wrong_with_a_source_is_said(tmp_path, old, new, said):
    assert SOURCE.count(old) == 1
    assert said in problems_of(tmp_path, SOURCE.replace(old, new))


def test_a_definition_with_a_callback_needs_a_secret_to_sign_it(tmp_path):
    from owlclaw_ray.definitions.defaults import Defaults
    from owlclaw_ray.definitions.loader import load_definition
    from owlclaw_ray.errors import DefinitionError
    from tests.definitions.writing import write_definition

    folder = write_definition(tmp_path / "told", agent="callback_url: https://example.org/\n")
    settings = load(tmp_path, SOURCE)

    assert load_definition(folder, settings.defaults).callback_url == "https://example.org/"
    with pytest.raises(DefinitionError, match=r"webhooks\.callbacks\.secret"):
        load_definition(folder, Defaults())
    write_definition(folder, agent="callback_url: http://127.0.0.1/\n")
    with pytest.raises(DefinitionError, match="not a public address"):
        load_definition(folder, settings.defaults)


def test_a_source_belongs_to_a_tenant_whose_secrets_may_sign_it(tmp_path):
    own = SOURCE.replace(
        "      secret: ${SHOP}\n      previous_secret: ${SHOP_OLD}\n",
        "      tenant: acme\n      tenant_secrets: [NEW, OLD]\n",
    )
    (shop,), problems = filled_sources(load(tmp_path, own).webhook_sources, ENVIRON)
    (plain,) = load(tmp_path, SOURCE).webhook_sources

    assert (shop.tenant, shop.tenant_secrets, shop.secrets, problems) == ("acme", ("NEW", "OLD"), (), ())
    assert (plain.tenant, plain.tenant_secrets) == ("default", ())


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("tenant_secrets: [A]\n      secret: ${SHOP}", "has tenant_secrets and a secret of the runtime"),
        ("tenant_secrets: [A]\n      previous_secret: ${SHOP}", "has tenant_secrets and a secret of the runtime"),
        ("tenant: acme", "needs secret, the variable that holds it, or tenant_secrets"),
        ("tenant_secrets: ['a b']", "has 'a b', which is no name of a secret"),
        ("secret: ${SHOP}\n      tenant: Acme!", "is 'Acme!', which is no id of a tenant"),
    ],
)
def test_a_source_is_signed_in_one_way_and_has_a_tenant_that_can_be(tmp_path, said, problem):
    text = SOURCE.replace("      secret: ${SHOP}\n      previous_secret: ${SHOP_OLD}\n", f"      {said}\n")

    assert problem in problems_of(tmp_path, text)
