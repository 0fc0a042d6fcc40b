"""Whose tokens are let in: JWTs of an issuer, which is a real HTTP server, at the real API."""

from __future__ import annotations

import asyncio
import base64
import time
import warnings

import httpx
import orjson
import pytest
from msgspec.structs import replace

from owlclaw_ray.access.authentication import Authenticator
from owlclaw_ray.access.issuer_keys import RETRY_SECONDS, fetch_keys
from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.access.tokens import LEEWAY_SECONDS, MAX_CHARACTERS, IssuerTokens
from owlclaw_ray.domain.issuer import Issuer
from owlclaw_ray.domain.principal import LOCAL, ROLES, PrincipalKind
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.errors import IssuerUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.queries import LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from tests.issuer import AUDIENCE, EC, ED, RSA, STRANGER, IssuerServer, encoded, jwk, part, serving_issuer, signed
from tests.serve.conftest import serving
from tests.serve.double import MemoryRuntime

ACME = TenantId("acme")
NESTED = encoded(b'{"a":' * 2_000)
FRESH = 5.0
"""Seconds after which an answer about a token is looked up again."""


@pytest.fixture
def issuer():
    with serving_issuer() as issuer:
        yield issuer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(clock, issuer) -> MemoryRuntime:
    return trusting(MemoryRuntime(clock), clock, believed(issuer))


def believed(issuer: IssuerServer, **more: object) -> Issuer:
    said = Issuer(
        name="idp",
        issuer=issuer.url,
        audiences=(AUDIENCE, "owlclaw"),
        kind=PrincipalKind.PERSON,
        tenant=DEFAULT_TENANT,
        scopes=ROLES["developer"],
    )
    return replace(said, **more)


def trusting(runtime: MemoryRuntime, clock, *issuers: Issuer) -> MemoryRuntime:
    runtime.authenticator = Authenticator(runtime.schedules, clock, runtime._ids, IssuerTokens(issuers, clock))
    return runtime


@pytest.fixture
def valid(issuer, clock):
    """A token, with claims and headers that are changed as is said."""

    def make(key=RSA, header=None, **claims: object) -> str:
        return signed(issuer.claims(clock.now().timestamp(), **claims), key, **(header or {}))

    return make


async def status(http: httpx.AsyncClient, token: str | None, path: str = "/v1/runs") -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return (await http.get(path, headers=headers)).status_code


async def principal(runtime, token):
    return await runtime.authenticator.principal_of(token)


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(("key", "alg", "kid"), [(RSA, "RS256", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed")])
async def test_a_token_of_the_issuer_is_let_in(http, valid, key, alg, kid):
    assert await status(http, valid(key, {"alg": alg, "kid": kid})) == 200


async def test_where_an_issuer_is_configured_nobody_is_let_in_without_a_token_or_key(http, runtime, valid):
    assert await status(http, None) == 401
    assert await status(http, "owl_nonsense") == 401
    key = (await runtime.keys.create(LOCAL, KeyRequest("ci", ("viewer",)))).text
    assert await status(http, key) == 200
    assert await status(http, valid(), "/healthz") == 200


REFUSED = {
    "another audience": lambda issuer, now: signed(issuer.claims(now, aud="https://other.example.org")),
    "another audience beside others": lambda issuer, now: signed(issuer.claims(now, aud=["a", "b"])),
    "no audience": lambda issuer, now: signed(issuer.claims(now, aud=None)),
    "an empty list of audiences": lambda issuer, now: signed(issuer.claims(now, aud=[])),
    "another issuer": lambda issuer, now: signed(issuer.claims(now, iss="https://evil.example.org")),
    "the issuer with a slash": lambda issuer, now: signed(issuer.claims(now, iss=f"{issuer.url}/")),
    "no issuer": lambda issuer, now: signed(issuer.claims(now, iss=None)),
    "another key": lambda issuer, now: signed(issuer.claims(now), STRANGER),
    "another key of an unknown id": lambda issuer, now: signed(issuer.claims(now), STRANGER, kid="stranger"),
    "another key without an id": lambda issuer, now: signed(issuer.claims(now), STRANGER, kid=None),
    "no key id where there are several keys": lambda issuer, now: signed(issuer.claims(now), kid=None),
    "expired": lambda issuer, now: signed(issuer.claims(now, exp=now - LEEWAY_SECONDS)),
    "no expiry": lambda issuer, now: signed(issuer.claims(now, exp=None)),
    "an expiry that is a text": lambda issuer, now: signed(issuer.claims(now, exp=str(now + 600))),
    "an expiry that is true": lambda issuer, now: signed(issuer.claims(now, exp=True)),
    "not valid yet": lambda issuer, now: signed(issuer.claims(now, nbf=now + LEEWAY_SECONDS + 1)),
    "issued in the future": lambda issuer, now: signed(issuer.claims(now, iat=now + LEEWAY_SECONDS + 1)),
    "no subject": lambda issuer, now: signed(issuer.claims(now, sub=None)),
    "an empty subject": lambda issuer, now: signed(issuer.claims(now, sub="")),
    "a subject with a line break": lambda issuer, now: signed(issuer.claims(now, sub="ada\nkey:root")),
    "a subject with a blank": lambda issuer, now: signed(issuer.claims(now, sub="ada (root)")),
    "a subject that is long": lambda issuer, now: signed(issuer.claims(now, sub="a" * 256)),
    "a subject that is a number": lambda issuer, now: signed(issuer.claims(now, sub=1)),
    "alg none": lambda issuer, now: signed(issuer.claims(now), None, alg="none"),
    "alg none without an id": lambda issuer, now: signed(issuer.claims(now), None, alg="none", kid=None),
    "alg none with the signature of another token": lambda issuer, now: (
        f"{part({'alg': 'none', 'kid': 'rsa'})}.{part(issuer.claims(now))}.{signed(issuer.claims(now)).split('.')[2]}"
    ),
    "an algorithm that is not allowed": lambda issuer, now: signed(issuer.claims(now), alg="RS384"),
    "an algorithm that is not the key's": lambda issuer, now: signed(issuer.claims(now), alg="RS256", kid="ec"),
    "another type": lambda issuer, now: signed(issuer.claims(now), typ="logout+jwt"),
    "an unknown extension": lambda issuer, now: signed(issuer.claims(now), crit=["kid"]),
    "an empty list of extensions": lambda issuer, now: signed(issuer.claims(now), crit=[]),
    "no signature": lambda issuer, now: signed(issuer.claims(now)).rpartition(".")[0] + ".",
    "claims of another token": lambda issuer, now: ".".join(
        [
            *signed(issuer.claims(now)).split(".")[:1],
            part(issuer.claims(now, sub="root")),
            *signed(issuer.claims(now)).split(".")[2:],
        ]
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_token_is_refused_that_is(http, issuer, clock, what):
    now = clock.now().timestamp()
    refused = await http.get("/v1/runs", headers={"Authorization": f"Bearer {REFUSED[what](issuer, now)}"})

    assert (refused.status_code, refused.json()["type"]) == (401, "urn:owlclaw:problem:unauthenticated")


@pytest.mark.parametrize("form", ["pem", "der", "jwk", "n"])
async def test_a_public_key_is_no_secret_to_sign_by(http, issuer, valid, form):
    secret = {
        "pem": RSA.as_pem(private=False),
        "der": RSA.as_der(private=False),
        "jwk": orjson.dumps(issuer.keys[0]),
        "n": base64.urlsafe_b64decode(f"{issuer.keys[0]['n']}=="),
    }[form]

    assert await status(http, valid(secret, {"alg": "HS256"})) == 401
    assert await status(http, valid()) == 200


async def test_a_symmetric_key_in_the_jwks_verifies_nothing(http, issuer, valid):
    secret = b"s" * 32
    issuer.keys.append({"kty": "oct", "k": encoded(secret), "kid": "shared", "use": "sig", "alg": "HS256"})

    assert await status(http, valid(secret, {"alg": "HS256", "kid": "shared"})) == 401


@pytest.mark.parametrize("header", ["jku", "x5u", "jwk"])
async def test_what_a_token_says_of_where_its_key_is_is_ignored(http, issuer, valid, header):
    with serving_issuer() as evil:
        evil.keys = [jwk(STRANGER, "rsa")]
        said = jwk(STRANGER, "rsa") if header == "jwk" else f"{evil.url}/keys"

        assert await status(http, valid(STRANGER, {header: said})) == 401
        assert await status(http, valid(RSA, {header: said})) == 200
        assert not evil.asked


@pytest.mark.parametrize(
    "garbage",
    [
        "..",
        "a.b.c",
        "====.====.====",
        f"{part({})}.{part({})}.AA",
        f"{part([])}.{part([])}.AA",
        f"{part({'alg': 1})}.{part({})}.AA",
        f"{part({'alg': 'RS256'})}.bm8.AA",
        f"{part({'alg': 'RS256'})}..AA",
        "\x7f.\x7f.\x7f",
        "é.é.é",
        f"{NESTED}.e30.AA",
        f"{part({'alg': 'RS256'})}.{NESTED}.AA",
        "x" * 20_000 + ".y.z",
    ],
)
async def test_garbage_in_the_form_of_a_token_is_refused_without_asking_the_issuer(http, issuer, garbage):
    refused = await http.get("/v1/runs", headers=[(b"Authorization", f"Bearer {garbage}".encode("latin-1"))])

    assert refused.status_code == 401
    assert not issuer.asked


async def test_a_token_that_is_huge_is_refused_though_it_is_valid(http, valid):
    short = next(each for each in range(3) if len(valid(pad="x" * each)) % 4 == MAX_CHARACTERS % 4)
    least = valid(pad="x" * short)
    most = valid(pad="x" * (short + (MAX_CHARACTERS - len(least)) // 4 * 3))

    assert len(most) == MAX_CHARACTERS
    assert await status(http, most) == 200
    assert await status(http, valid(pad="x" * (short + (MAX_CHARACTERS - len(least)) // 4 * 3 + 1))) == 401


async def test_clocks_may_differ_a_little(http, valid, clock):
    now = clock.now().timestamp()

    assert await status(http, valid(nbf=now + LEEWAY_SECONDS, iat=now + LEEWAY_SECONDS)) == 200
    assert await status(http, valid(exp=now - LEEWAY_SECONDS + 1)) == 200


@pytest.mark.parametrize("typ", [None, "jwt", "at+jwt", "application/at+jwt"])
async def test_access_tokens_and_those_of_no_type_are_let_in(http, valid, typ):
    assert await status(http, valid(RSA, {"typ": typ})) == 200


async def test_a_token_is_refused_when_its_time_is_over(http, valid, clock):
    token = valid(exp=clock.now().timestamp() + 60)
    assert await status(http, token) == 200

    await clock.advance(60 + LEEWAY_SECONDS - 0.5)
    assert await status(http, token) == 200
    await clock.advance(0.5)
    assert await status(http, token) == 401


async def test_an_event_stream_ends_with_its_token(http, valid, clock):
    headers = {"Authorization": f"Bearer {valid(exp=clock.now().timestamp() + 60)}"}
    run_id = (await http.post("/v1/agents/patient/triggers", headers=headers)).json()["run_id"]
    stream = asyncio.create_task(http.get(f"/v1/runs/{run_id}/events", headers=headers))
    await clock.wait_for_sleepers()
    await clock.advance(60 + LEEWAY_SECONDS - FRESH)
    assert not stream.done()

    await clock.advance(2 * FRESH)

    assert "event: end" not in (await stream).text


async def test_a_new_key_is_taken_up_and_a_withdrawn_one_refused(http, issuer, valid, clock):
    old, new = valid(exp=9e9), valid(STRANGER, {"kid": "new"}, exp=9e9)
    assert [await status(http, each) for each in (old, new)] == [200, 401]

    issuer.keys = [jwk(STRANGER, "new")]
    await clock.advance(RETRY_SECONDS)
    assert await status(http, new) == 200
    assert await status(http, old) == 401

    issuer.keys = [jwk(RSA, "rsa")]
    await clock.advance(290)
    assert await status(http, new) == 200
    await until(lambda: issuer.asked["/keys"] == 3)
    while await status(http, old) != 200:
        await asyncio.sleep(0)  # until the answer is there: time that passed before would be its sender's silence
    await clock.advance(10)
    assert await status(http, new) == 401
    assert await status(http, old) == 200


async def test_a_withdrawn_key_is_refused_when_its_time_is_over_though_nobody_asked_before(http, issuer, valid, clock):
    token = valid(exp=9e9)
    assert await status(http, token) == 200
    issuer.keys = []

    await clock.advance(300)

    assert await status(http, token) == 401


async def test_unknown_key_ids_have_the_issuer_asked_no_more_often_than_every_few_seconds(http, issuer, valid, clock):
    for number in range(50):
        assert await status(http, valid(STRANGER, {"kid": f"unknown-{number}"})) == 401
    assert issuer.asked["/keys"] == 1

    await clock.advance(RETRY_SECONDS)
    for number in range(50):
        assert await status(http, valid(STRANGER, {"kid": f"unknown-{number}"})) == 401
    assert issuer.asked["/keys"] == 2


async def test_all_who_come_together_ask_the_issuer_once_and_nobody_else_waits(http, runtime, issuer, valid):
    key = (await runtime.keys.create(LOCAL, KeyRequest("ci", ("viewer",)))).text
    issuer.go_on.clear()
    waiting = [asyncio.create_task(status(http, valid(sub=f"u{number}"))) for number in range(20)]
    await until(lambda: issuer.asked)

    assert await status(http, key) == 200
    assert not any(each.done() for each in waiting)
    issuer.go_on.set()

    assert await asyncio.gather(*waiting) == [200] * 20
    assert issuer.asked["/keys"] == 1


async def test_an_issuer_that_is_out_is_outlived_for_a_while_without_waiting_for_it(http, issuer, valid, clock):
    token = valid(exp=9e9)
    assert await status(http, token) == 200
    issuer.status = 500

    await clock.advance(300)
    assert await status(http, token) == 200
    issuer.go_on.clear()
    await clock.advance(3_000)
    assert await status(http, token) == 200
    issuer.go_on.set()
    await until(lambda: issuer.asked["/.well-known/openid-configuration"] == 3)
    await clock.advance(300)
    refused = await http.get("/v1/runs", headers={"Authorization": f"Bearer {token}"})
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:owlclaw:problem:issuer-unavailable")
    assert refused.headers["retry-after"]

    issuer.status = 200
    await clock.advance(RETRY_SECONDS)
    assert await status(http, token) == 200


async def test_an_issuer_that_does_not_answer_is_waited_for_no_longer_than_a_few_seconds(http, issuer, valid, clock):
    issuer.go_on.clear()
    asking = asyncio.create_task(status(http, valid()))
    await until(lambda: issuer.asked)

    await clock.advance(5)

    assert await asking == 503


@pytest.mark.parametrize(
    "wrong",
    [
        {"body": b"{"},
        {"body": b"[]"},
        {"body": b'{"keys": 1}'},
        {"body": b'{"keys": ' + b"[" * 100_000},
        {"status": 404},
        {"discovered": {"issuer": "https://evil.example.org"}},
        {"discovered": {"jwks_uri": "file:///etc/passwd"}},
    ],
    ids=lambda wrong: str(wrong)[:60],
)
async def test_an_issuer_whose_answer_makes_no_sense_is_one_that_is_out(http, issuer, valid, wrong):
    for name, value in wrong.items():
        setattr(issuer, name, value)

    assert await status(http, valid()) == 503


async def test_a_jwks_that_is_huge_is_not_read(http, runtime, issuer, valid, clock):
    issuer.body = orjson.dumps({"keys": issuer.keys, "pad": "x" * 1024 * 1024})
    trusting(runtime, clock, believed(issuer, jwks_url=f"{issuer.url}/keys"))

    assert await status(http, valid()) == 503


async def test_keys_of_an_issuer_with_tls_do_not_come_without(monkeypatch, clock):
    said = {"issuer": "https://login.example.org", "jwks_uri": "http://login.example.org/keys"}
    asked = []

    async def download(url):
        asked.append(url)
        return orjson.dumps(said)

    monkeypatch.setattr("owlclaw_ray.access.issuer_requests.download", download)
    issuer = Issuer("idp", said["issuer"], (AUDIENCE,), PrincipalKind.PERSON, tenant=DEFAULT_TENANT)

    with pytest.raises(IssuerUnavailableError, match="https"):
        await fetch_keys(issuer, clock)
    assert asked == ["https://login.example.org/.well-known/openid-configuration"]


async def test_keys_are_not_fetched_from_where_the_issuer_is_redirected_to(http, issuer, valid):
    with serving_issuer() as evil:
        issuer.status, issuer.location = 302, f"{evil.url}/keys"

        assert await status(http, valid()) == 503
        assert not evil.asked


async def test_keys_that_are_for_something_else_or_too_weak_verify_nothing(http, issuer, valid, clock, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weak = type(RSA).generate_key(1024)
        issuer.keys = [
            {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
            {"kty": "RSA", "kid": "rsa", "n": "A" * 342},
            {"kty": 1},
            jwk(weak, "weak"),
            jwk(RSA, "enc", use="enc"),
            jwk(RSA, "wrap", key_ops=["wrapKey"]),
            jwk(RSA, "rs512", alg="RS512"),
            jwk(RSA, "good", alg="RS256"),
        ]
        for kid, key in (("weak", weak), ("enc", RSA), ("wrap", RSA), ("rs512", RSA)):
            assert await status(http, valid(key, {"kid": kid})) == 401
        assert await status(http, valid(RSA, {"kid": "good"})) == 200


async def test_a_token_without_a_key_id_is_verified_where_there_is_one_key(http, issuer, valid):
    issuer.keys = [jwk(RSA, "rsa")]

    assert await status(http, valid(RSA, {"kid": None})) == 200


async def test_keys_come_from_a_file_or_a_url_if_one_is_named(http, runtime, issuer, valid, clock, tmp_path):  # noqa: PLR0917
    file = tmp_path / "jwks.json"
    file.write_bytes(orjson.dumps({"keys": issuer.keys}))
    trusting(runtime, clock, believed(issuer, jwks_file=str(file)))
    assert await status(http, valid()) == 200
    assert not issuer.asked
    file.unlink()
    trusting(runtime, clock, believed(issuer, jwks_file=str(file)))
    assert await status(http, valid(sub="b")) == 503

    trusting(runtime, clock, believed(issuer, jwks_url=f"{issuer.url}/jwks"))
    assert await status(http, valid(sub="c")) == 200
    assert dict(issuer.asked) == {"/jwks": 1}


async def test_a_token_is_its_principal(runtime, valid, issuer, clock):
    found = await principal(runtime, valid(sub="auth0|5f", name=" Ada Lovelace "))
    assert (found.kind, found.id, found.name) == (PrincipalKind.PERSON, "idp/auth0|5f", "Ada Lovelace")
    assert (found.tenant, found.scopes, found.patterns) == (DEFAULT_TENANT, ROLES["developer"], ())

    trusting(runtime, clock, believed(issuer, kind=PrincipalKind.SYSTEM, name_claim="azp"))
    found = await principal(runtime, valid(azp="two\nlines"))
    assert (str(found), found.name) == ("system:idp/ada", "")


async def test_a_token_may_do_what_its_claim_is_mapped_to_and_nothing_else(http, runtime, valid, issuer, clock):
    roles = {"reader": ROLES["viewer"], "ops": frozenset({"runs:write"})}
    trusting(runtime, clock, believed(issuer, scopes=frozenset(), scopes_claim="realm_access.roles", roles=roles))

    for claims, scopes in (
        ({"realm_access": {"roles": ["reader", "ops", "admin", "*", 1]}}, ROLES["viewer"] | {"runs:write"}),
        ({"realm_access": {"roles": "ops admin"}}, {"runs:write"}),
        ({"realm_access": {"roles": {"ops": True}}}, set()),
        ({"realm_access": []}, set()),
        ({"realm_access.roles": ["ops"], "realm_access": {"roles": ["reader"]}}, {"runs:write"}),
        ({}, set()),
    ):
        assert (await principal(runtime, valid(**claims))).scopes == scopes
    assert await status(http, valid(realm_access={"roles": ["admin"]})) == 403


async def test_a_token_is_of_the_tenant_that_its_claim_is_mapped_to(http, runtime, valid, issuer, clock):
    await runtime.tenants.create(LOCAL, "acme")
    trusting(
        runtime,
        clock,
        believed(issuer, tenant=None, tenant_claim="org", tenants={"org_1": ACME, "org_2": TenantId("gone")}),
    )

    assert (await principal(runtime, valid(org="org_1"))).tenant == ACME
    for org in ("org_2", "acme", "default", None, 1, ["org_1"]):
        assert await status(http, valid(org=org)) == 401


async def test_without_a_mapping_the_claim_is_the_tenant_but_never_the_default_one(http, runtime, valid, issuer, clock):
    await runtime.tenants.create(LOCAL, "acme")
    trusting(runtime, clock, believed(issuer, tenant=None, tenant_claim="org", scopes=ROLES["admin"]))

    assert (await principal(runtime, valid(org="acme"))).tenant == ACME
    assert await status(http, valid(org="acme"), "/v1/tenants") == 403
    for org in ("default", "other", "ACME", "", None):
        assert await status(http, valid(org=org)) == 401


async def test_a_token_of_a_suspended_tenant_is_refused_and_its_ledger_told(http, runtime, valid, issuer, clock):
    await runtime.tenants.create(LOCAL, "acme")
    trusting(runtime, clock, believed(issuer, tenant=ACME))
    token = valid(exp=9e9)
    assert await status(http, token) == 200

    await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))
    await clock.advance(FRESH)

    assert await status(http, token) == 401
    await clock.settle()
    told = [each.record.data for each in await runtime.schedules.read(LedgerFilter(ACME))]
    assert told[-1] == {"what": "token_refused", "by": "person:idp/ada", "why": "suspended"}
    await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.ACTIVE))
    await clock.advance(FRESH)
    assert await status(http, token) == 200


async def test_a_token_is_narrowed_to_the_agents_of_its_claim_and_without_it_refused(
    http, runtime, valid, issuer, clock
):
    trusting(runtime, clock, believed(issuer, agents_claim="agents"))

    for given in (["agent:patient"], "agent:patient"):
        assert await status(http, valid(agents=given), "/v1/agents/patient") == 200
        assert await status(http, valid(agents=given), "/v1/agents/assistant") == 403
    for given in (None, [], "", ["patient"], ["agent:patient", 1], {"agent:patient": 1}, 1):
        assert await status(http, valid(agents=given), "/v1/agents/patient") == 401


async def test_issuers_are_told_apart(http, runtime, issuer, valid, clock):
    with serving_issuer() as other:
        other.keys = [jwk(STRANGER, "rsa")]
        trusting(runtime, clock, believed(issuer), believed(other, name="other"))
        now = clock.now().timestamp()

        theirs = signed(other.claims(now), STRANGER)
        assert str(await principal(runtime, theirs)) == "person:other/ada"
        assert str(await principal(runtime, valid())) == "person:idp/ada"
        assert await status(http, signed(other.claims(now), RSA)) == 401
        assert await status(http, signed(issuer.claims(now), STRANGER)) == 401


async def test_why_a_token_is_refused_is_logged_once_a_minute_without_the_token(http, issuer, valid, clock, caplog):
    caplog.set_level("INFO", logger="owlclaw_ray.access.tokens")
    token = valid(aud="someone", email="ada@example.org")

    for _ in range(3):
        refused = await http.get("/v1/runs", headers={"Authorization": f"Bearer {token}"})
        await clock.advance(FRESH)

    assert [each.getMessage() for each in caplog.records] == [
        f"a token of {issuer.url} was refused: its audience is another one"
    ]
    assert "audience" not in refused.text


async def test_over_a_real_socket_a_token_is_let_in_and_a_forged_one_is_not(api, runtime, issuer):
    now = time.time()  # noqa: TID251 - of the system's clock, on which this server runs
    trusting(runtime, SystemClock(), believed(issuer))
    with serving(api) as url:
        async with httpx.AsyncClient(base_url=url) as http:
            assert await status(http, signed(issuer.claims(now))) == 200
            assert await status(http, signed(issuer.claims(now), STRANGER)) == 401
            assert await status(http, None) == 401
