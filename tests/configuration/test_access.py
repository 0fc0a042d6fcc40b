from __future__ import annotations

import json
import pickle

import msgspec
import pytest

from owlclaw_ray.configuration.access import filled_sign_in
from owlclaw_ray.configuration.placeholders import names_in
from owlclaw_ray.domain.issuer import USUAL_ALGORITHMS
from owlclaw_ray.domain.principal import ROLES, PrincipalKind
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.settings import load_runtime_settings, load_settings
from serve.runtime_plan import plan_of

WHOLE = {
    "issuer": "https://login.example.org/staff",
    "audience": "owlclaw",
    "kind": "person",
    "tenant": "default",
    "scopes": ["operator", "approvals:decide"],
}


def load(tmp_path, *issuers):
    return load_settings(tmp_path, {"OWLCLAW_ACCESS__ISSUERS": json.dumps(issuers)})


def problem_of(tmp_path, *issuers):
    with pytest.raises(ConfigurationError) as raised:
        load(tmp_path, *issuers)
    return str(raised.value)


def test_there_is_no_issuer_unless_one_is_named(tmp_path):
    assert load_settings(tmp_path, {}).issuers == ()


def test_an_issuer_is_what_is_written_and_travels_in_the_plan(tmp_path):
    settings = load(tmp_path, WHOLE)
    [issuer] = settings.issuers

    assert (issuer.name, issuer.issuer, issuer.audiences) == ("login.example.org", WHOLE["issuer"], ("owlclaw",))
    assert (issuer.kind, issuer.tenant, issuer.algorithms) == (PrincipalKind.PERSON, "default", USUAL_ALGORITHMS)
    assert issuer.scopes == ROLES["operator"] | {"approvals:decide"}
    assert pickle.loads(pickle.dumps(plan_of(settings))).issuers == (issuer,)


def test_claims_are_mapped_to_tenants_and_roles(tmp_path):
    mapped = {
        **{name: value for name, value in WHOLE.items() if name not in {"tenant", "scopes"}},
        "audience": ["a", "b"],
        "tenant_claim": "org",
        "tenants": {"1": "acme"},
        "scopes_claim": "roles",
        "roles": {"lead": ["approver"], "all": ["admin"]},
        "jwks_file": "keys.json",
    }
    [issuer] = load(tmp_path, mapped).issuers

    assert (issuer.tenant, issuer.tenants, issuer.audiences) == (None, {"1": "acme"}, ("a", "b"))
    assert issuer.roles == {"lead": ROLES["approver"], "all": frozenset({"*"})}
    assert issuer.jwks_file == str(tmp_path / "keys.json")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"algorithms": ["none"]}, "'none'"),
        ({"algorithms": ["HS256"]}, "'HS256'"),
        ({"algorithms": []}, "algorithms"),
        ({"audience": []}, "audience"),
        ({"audience": ""}, "audience"),
        ({"kind": "key"}, "kind"),
        ({"tenant": "ACME"}, "'ACME'"),
        ({"tenant": None}, "tenant or tenant_claim"),
        ({"tenant_claim": "org"}, "tenant or tenant_claim"),
        ({"tenants": {"1": "acme"}}, "tenants without tenant_claim"),
        ({"scopes": ["runs"]}, "'runs'"),
        ({"scopes": []}, "scopes or scopes_claim"),
        ({"scopes_claim": "roles"}, "scopes or scopes_claim"),
        ({"scopes": [], "scopes_claim": "roles"}, "roles"),
        ({"tenant": "acme", "scopes": ["tenants:admin"]}, "tenants:admin"),
        ({"issuer": "http://login.example.org"}, "https"),
        ({"issuer": "staff"}, "https"),
        ({"jwks_url": "http://login.example.org/keys"}, "https"),
        ({"jwks_url": "file:///etc/passwd"}, "https"),
        ({"jwks_url": "https://a.example.org", "jwks_file": "keys.json"}, "jwks_url and jwks_file"),
        ({"cache_seconds": 1}, "cache_seconds"),
        ({"cache_seconds": 600, "stale_seconds": 60}, "stale_seconds"),
        ({"name": "a\nb"}, "name"),
        ({"secret": "x"}, "secret"),
    ],
    ids=str,
)
def test_an_issuer_that_makes_no_sense_is_a_problem_that_says_where(tmp_path, wrong, said):
    problem = problem_of(tmp_path, {**WHOLE, **wrong})

    assert "issuers" in problem.lower()
    assert said in problem


def test_two_issuers_need_two_names(tmp_path):
    other = {**WHOLE, "issuer": "https://login.example.org/customers"}

    assert "another name" in problem_of(tmp_path, WHOLE, other)
    assert "another issuer" in problem_of(tmp_path, WHOLE, {**WHOLE, "name": "b"})
    assert [each.name for each in load(tmp_path, WHOLE, {**other, "name": "b"}).issuers] == ["login.example.org", "b"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/keys", "http://localhost/keys", "http://[::1]/keys"])
def test_keys_may_come_from_this_machine_without_tls(tmp_path, url):
    assert load(tmp_path, {**WHOLE, "jwks_url": url}).issuers[0].jwks_url == url


def test_a_runtime_needs_the_file_of_keys(tmp_path):
    issuers = json.dumps([{**WHOLE, "jwks_file": "keys.json"}])

    with pytest.raises(ConfigurationError, match=r"keys\.json is no file"):
        load_runtime_settings(tmp_path, {"OWLCLAW_ACCESS__ISSUERS": issuers})


SIGN_IN = {"client_id": "console", "client_secret": "${IDP_SECRET}"}
CONSOLE = {
    "OWLCLAW_ACCESS__SIGN_IN__PUBLIC_URL": "https://agents.example.org",
    "OWLCLAW_ACCESS__SIGN_IN__SESSION_SECRET": "${CONSOLE_SECRET}",
}
SECRETS = {"IDP_SECRET": "of the client", "CONSOLE_SECRET": "s" * 32}


def signing_in(tmp_path, issuer=WHOLE, **more):
    issuers = json.dumps([{**issuer, "sign_in": SIGN_IN | more}])
    return load_settings(tmp_path, {"OWLCLAW_ACCESS__ISSUERS": issuers, **CONSOLE})


def test_a_client_and_the_secret_of_sessions_travel_as_placeholders_and_are_filled_in_where_people_sign_in(tmp_path):
    settings = signing_in(tmp_path, scopes=["profile", "groups"])
    plan = pickle.loads(pickle.dumps(plan_of(settings)))

    (issuer,), options, problems = filled_sign_in(plan.issuers, plan.sign_in, SECRETS)

    assert not any(secret in repr(plan) for secret in SECRETS.values())
    assert (issuer.client.client_id, issuer.client.secret) == ("console", "of the client")
    assert issuer.client.scopes == ("profile", "groups")
    assert (options.public_url, options.session_secret, problems) == ("https://agents.example.org", "s" * 32, ())
    assert not any(secret in repr((issuer, options)) for secret in SECRETS.values())
    assert {"IDP_SECRET", "CONSOLE_SECRET"} <= {*names_in(msgspec.json.encode(plan, enc_hook=str).decode())}


@pytest.mark.parametrize(
    ("environ", "client", "options", "said"),
    [
        ({"CONSOLE_SECRET": "s" * 32}, False, True, "IDP_SECRET"),
        ({"CONSOLE_SECRET": "s" * 32, "IDP_SECRET": ""}, False, True, "IDP_SECRET"),
        ({"IDP_SECRET": "x"}, False, False, "CONSOLE_SECRET"),
        ({"IDP_SECRET": "x", "CONSOLE_SECRET": "s" * 31}, False, False, "32 characters"),
    ],
)
def test_nobody_signs_in_without_the_secrets_and_tokens_are_let_in_all_the_same(
    tmp_path, environ, client, options, said
):
    settings = signing_in(tmp_path)

    (issuer,), found, (problem,) = filled_sign_in(settings.issuers, settings.access.sign_in_options, environ)

    assert (issuer.client is not None, found is not None) == (client, options)
    assert said in str(problem)
    assert issuer.issuer == WHOLE["issuer"]


@pytest.mark.parametrize(
    ("issuer", "more", "said"),
    [
        ({"kind": "system"}, {}, "person"),
        ({"name": "Our staff"}, {}, "in the address"),
        ({"name": "a/b"}, {}, "in the address"),
        ({"name": "codes"}, {}, "in the address"),
        ({"name": ".."}, {}, "in the address"),
        ({"issuer": "http://login.example.org", "jwks_url": "https://login.example.org/keys"}, {}, "https"),
        ({}, {"client_secret": "hunter2hunter2"}, "must be ${NAME}"),
        ({}, {"client_id": ""}, "client_id"),
        ({}, {"scopes": ["a b"]}, "scopes"),
        ({}, {"secret": "${X}"}, "secret"),
    ],
)
def test_a_client_that_makes_no_sense_is_a_problem(tmp_path, issuer, more, said):
    with pytest.raises(ConfigurationError) as raised:
        signing_in(tmp_path, WHOLE | issuer, **more)

    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("https://agents.example.org/", True),
        ("http://127.0.0.1:8700", True),
        ("http://localhost:8700", True),
        ("http://agents.example.org", False),
        ("https://agents.example.org/console", False),
        ("https://agents.example.org?x=1", False),
        ("https://user@agents.example.org", False),
        ("agents.example.org", False),
        ("javascript:alert(1)", False),
    ],
)
def test_the_public_address_is_an_origin_that_nobody_on_the_way_can_be(tmp_path, url, right):
    environ = {**CONSOLE, "OWLCLAW_ACCESS__SIGN_IN__PUBLIC_URL": url}
    if right:
        assert load_settings(tmp_path, environ).access.sign_in_options.public_url == url.rstrip("/")
    else:
        with pytest.raises(ConfigurationError, match="PUBLIC_URL"):
            load_settings(tmp_path, environ)


def test_a_client_needs_to_be_told_where_the_console_is(tmp_path):
    assert "session_secret" in problem_of(tmp_path, {**WHOLE, "sign_in": SIGN_IN})


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ({"IDP_SECRET": None}, "IDP_SECRET"),
        ({"CONSOLE_SECRET": None}, "CONSOLE_SECRET"),
        ({"CONSOLE_SECRET": "short"}, "32"),
    ],
)
def test_a_runtime_does_not_start_without_the_secrets(tmp_path, lacking, said):
    issuers = json.dumps([{**WHOLE, "sign_in": SIGN_IN}])
    environ = {"OWLCLAW_ACCESS__ISSUERS": issuers, **CONSOLE, **SECRETS}
    load_runtime_settings(tmp_path, environ)

    environ = {name: value for name, value in {**environ, **lacking}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=said) as raised:
        load_runtime_settings(tmp_path, environ)
    assert "short" not in str(raised.value)
