from __future__ import annotations

import json
import pickle

import pytest

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
