"""Signing in to the console at an issuer, which is a real HTTP server: what works, and what attackers try."""

from __future__ import annotations

import base64
import re
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from msgspec.structs import replace

from owlclaw_ray.access.authentication import Authenticator
from owlclaw_ray.access.sessions import SESSION_SECONDS, Sessions
from owlclaw_ray.access.sign_in import FLOW_SECONDS, SignIns
from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.access.tokens import LEEWAY_SECONDS, IssuerTokens
from owlclaw_ray.domain.issuer import Issuer, SignInClient, SignInOptions
from owlclaw_ray.domain.principal import LOCAL, ROLES, PrincipalKind
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.ids import DEFAULT_TENANT, RunId, TenantId
from owlclaw_ray.store.queries import LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from tests.console.conftest import SERVER, Browser
from tests.issuer import RSA, STRANGER, signed
from tests.openid_provider import CLIENT, PERSON, SECRET, OpenIdProvider, serving_provider
from tests.serve.double import MemoryRuntime

ACME = TenantId("acme")
OPTIONS = SignInOptions(SERVER, "what sessions are sealed with, 32+")
FRESH = 5.0
"""Seconds after which an answer about somebody is looked up again."""
SESSION, FLOW = "owlclaw-session-8700", "owlclaw-flow-8700"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def idp(clock):
    with serving_provider(clock) as provider:
        provider.redirect_uris = {f"{SERVER}/console/sign-in/idp/callback"}
        yield provider


@pytest.fixture
def runtime(clock, idp) -> MemoryRuntime:
    return signing_in(MemoryRuntime(clock), clock, trusted(idp))


def trusted(idp: OpenIdProvider, **more: object) -> Issuer:
    said = Issuer(
        name="idp",
        issuer=idp.url,
        audiences=("owlclaw api",),
        kind=PrincipalKind.PERSON,
        tenant_claim="org",
        tenants={"default": DEFAULT_TENANT, "17": ACME},
        scopes_claim="groups",
        roles={"desk": ROLES["operator"], "lead": ROLES["approver"]},
        client=SignInClient(CLIENT, SECRET),
    )
    return replace(said, **more)


def signing_in(runtime: MemoryRuntime, clock, *issuers: Issuer, options: SignInOptions = OPTIONS) -> MemoryRuntime:
    """Have the runtime be a replica, with these settings: of before it keeps the store and nothing else."""
    tokens = IssuerTokens(issuers, clock)
    runtime.authenticator = Authenticator(runtime.schedules, clock, runtime._ids, tokens)
    runtime.sessions = Sessions(
        runtime.schedules, runtime.authenticator, clock, runtime._ids, people=(issuers, options)
    )
    runtime.sign_ins = SignIns(issuers, options, tokens=tokens, sessions=runtime.sessions, clock=clock)
    return runtime


async def leave(browser: Browser, page: str = "/console/sign-in", name: str = "idp") -> str:
    """Open the page, press the issuer's button, and return where it leads."""
    shown = (await browser.get(page)).text
    link = re.search(rf'href="([^"]+)">Sign in at <bdi>{name}<', shown)
    assert link is not None, shown
    led = await browser.get(link[1].replace("&amp;", "&"))
    assert led.status_code == 303
    return led.headers["location"]


async def be_asked(url: str) -> str:
    """Go to the issuer, which has nothing to ask, and return where it sends back to."""
    async with httpx.AsyncClient() as anywhere:
        answer = await anywhere.get(url)
    assert answer.status_code == 302
    return answer.headers["location"]


async def come_back(browser: Browser, page: str = "/console/sign-in", name: str = "idp") -> httpx.Response:
    return await browser.get(await be_asked(await leave(browser, page, name)))


def refused(answer: httpx.Response, said: str) -> bool:
    """Whether nobody is signed in, and they are told why and shown how to."""
    assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8"), answer.text
    assert not any(each.startswith(SESSION) for each in answer.headers.get_list("set-cookie"))
    assert "Sign in at <bdi>idp" in answer.text
    assert said in answer.text, answer.text
    return True


async def records(runtime: MemoryRuntime, tenant: TenantId = DEFAULT_TENANT) -> list[dict]:
    return [each.record.data for each in await runtime.schedules.read(LedgerFilter(tenant))]


async def test_who_signs_in_at_the_issuer_has_a_session_there_where_they_wanted_to_go(browser, runtime, idp):
    led = await browser.get("/console/agents?state=idle")
    assert led.headers["location"] == "/console/sign-in?next=/console/agents%3Fstate%3Didle"

    answer = await come_back(browser, led.headers["location"])

    assert (answer.status_code, answer.headers["location"]) == (303, "/console/agents?state=idle")
    page = await browser.get("/console/agents")
    assert (page.status_code, "Ada Lovelace" in page.text, "Sign out" in page.text) == (200, True, True)
    (begun,) = [each for each in await records(runtime) if each["what"] == "session_begun"]
    assert (begun["issuer"], begun["by"]) == ("idp", "person:idp/ada (Ada Lovelace)")
    assert idp.asked["/token"] == 1


async def test_of_two_tabs_the_one_that_began_last_signs_in_whichever_comes_back_first(browser, runtime, idp):
    first = await leave(browser, "/console/sign-in?next=/console/runs")
    second = await leave(browser, "/console/sign-in?next=/console/agents")

    late = await browser.get(await be_asked(first))
    answer = await browser.get(await be_asked(second))

    assert refused(late, "begin again")
    assert 'name="next" value="/console/agents"' in late.text
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/agents")


async def test_scopes_are_mapped_as_those_of_tokens_are(browser, runtime, idp):
    idp.claims = {"groups": ["lead", "unheard-of"]}
    await come_back(browser)

    assert (await browser.get("/console/approvals")).status_code == 200
    denied = await browser.send_form("/console/agents/assistant/triggers", token="any")
    assert (denied.status_code, "runs:write" in denied.text) == (403, True)


async def test_what_is_done_in_the_session_is_done_by_the_person(browser, runtime, idp):
    idp.claims = {"groups": "desk"}
    await come_back(browser)

    sent = await browser.fill("/console/agents/assistant", "/console/agents/assistant/triggers", focus="look")

    run = await runtime.run(DEFAULT_TENANT, RunId(sent.headers["location"].rpartition("/")[2]))
    assert run.trigger.submitters == ("person:idp/ada",)


async def test_the_cookies_are_for_the_console_alone_and_are_no_token_of_the_api(browser, runtime, idp, clock):
    answer = await come_back(browser)
    session = browser.cookies[SESSION]

    (kept,) = [each for each in answer.headers.get_list("set-cookie") if each.startswith(SESSION)]
    for part in ("HttpOnly", "SameSite=lax", "Path=/console", f"Max-Age={SESSION_SECONDS:.0f}"):
        assert part in kept
    person = await runtime.sessions.key_of(session)
    for text in (session, session.partition("~")[2], person.claims.decode(), repr(person), str(person.until)):
        sent = {"Authorization": f"Bearer {text}"}
        for path in ("/v1/runs", "/console/runs"):
            answer = await browser.get(path, headers=sent | {"Accept": "application/json"})
            assert answer.status_code == 401
    assert (await browser.get("/v1/runs", headers={"Cookie": f"{SESSION}={session}"})).status_code == 401
    assert (await browser.get("/console/runs")).status_code == 200
    for secret in ("ada", "desk", SECRET):
        assert secret not in session
        assert secret.encode() not in base64.urlsafe_b64decode(session.partition("~")[2] + "==")


async def test_what_is_asked_of_the_issuer_has_no_secret_and_is_new_each_time(browser, runtime, idp):
    asked = [parse_qs(urlsplit(await leave(browser)).query) for _ in range(2)]

    assert asked[0].keys() == {
        "response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge", "code_challenge_method",
    }  # fmt: skip
    assert asked[0]["scope"] == ["openid profile"]
    for name in ("state", "nonce", "code_challenge"):
        assert asked[0][name] != asked[1][name]
        assert len(asked[0][name][0]) >= 43
    flow = browser.cookies[FLOW]
    for each in asked:
        assert not any(value[0] in flow for value in each.values())


@pytest.mark.parametrize("methods", [None, ["client_secret_post"], ["client_secret_basic", "client_secret_post"]])
async def test_the_client_shows_its_secret_as_the_issuer_takes_it(browser, runtime, idp, methods):
    idp.metadata = {"token_endpoint_auth_methods_supported": methods}

    assert (await come_back(browser)).status_code == 303
    assert bool(idp.authorizations[0]) != ("client_secret" in idp.sent[0])


async def test_the_button_is_there_for_each_issuer_with_a_client_and_leads_to_the_public_address(
    browser, runtime, idp, clock
):
    bare = trusted(idp, name="robots", issuer="https://robots.example.org", client=None)
    signing_in(runtime, clock, trusted(idp), bare, options=SignInOptions("https://agents.example.com", "s" * 32))

    page = (await browser.get("/console/sign-in?next=/console/runs%3Fstatus%3Dfailed")).text

    link = "https://agents.example.com/console/sign-in/idp?next=%2Fconsole%2Fruns%3Fstatus%3Dfailed"
    assert f'href="{link}"' in page
    assert "robots" not in page
    for name in ("robots", "nobody", "IDP"):
        assert (await browser.get(f"/console/sign-in/{name}")).status_code == 404
        assert (await browser.get(f"/console/sign-in/{name}/callback?code=x&state=y")).status_code == 404


async def test_without_an_issuer_the_page_has_no_button(browser, runtime, clock, idp):
    signing_in(runtime, clock, trusted(idp, client=None))

    page = await browser.get("/console/sign-in")
    assert (page.status_code, "Sign in at" in page.text, "autofocus" in page.text) == (200, False, True)


def changed(url: str, **parameters: str | None) -> str:
    """The address with other parameters; None: without it."""
    parts = urlsplit(url)
    said = {name: values[0] for name, values in parse_qs(parts.query).items()} | parameters
    return parts._replace(query=urlencode({name: value for name, value in said.items() if value is not None})).geturl()


@pytest.mark.parametrize("state", ["", "guess", "é", None])
async def test_an_answer_with_another_state_signs_nobody_in_and_its_code_is_shown_to_nobody(
    browser, runtime, idp, state
):
    back = await be_asked(await leave(browser))

    assert refused(await browser.get(changed(back, state=state)), "begin again")
    assert idp.asked["/token"] == 0


async def test_a_browser_finishes_only_what_it_has_begun_so_that_nobody_is_signed_in_as_an_attacker(
    browser, runtime, idp, api
):
    async with Browser(api) as attacker:
        back = await be_asked(await leave(attacker))
    assert refused(await browser.get(back), "another browser")

    await leave(browser)  # the victim has begun a sign-in of its own
    assert refused(await browser.get(back), "another browser")
    assert idp.asked["/token"] == 0


@pytest.mark.parametrize("forgetful", [False, True])
async def test_an_answer_signs_in_once_also_if_the_issuer_takes_its_code_again(browser, runtime, idp, clock, forgetful):
    idp.codes_work_again = forgetful
    back = await be_asked(await leave(browser))
    flow = browser.cookies[FLOW]
    first = await browser.get(back)
    assert first.status_code == 303
    assert FLOW not in browser.cookies
    browser.cookies.clear()

    assert refused(await browser.get(back), "begin again")
    await clock.advance(300)
    browser.cookies.set(FLOW, flow, domain="localhost.local", path="/console")
    again = await browser.get(back, headers={"Cookie": f"{FLOW}={flow}"})
    assert refused(again, "begin again" if forgetful else "invalid_grant")
    assert idp.asked["/token"] == 2


WRONG = {
    "another nonce": {"nonce": "of another sign-in"},
    "no nonce": {"nonce": None},
    "an empty nonce": {"nonce": ""},
    "another audience": {"aud": "another client"},
    "the audience of the api": {"aud": "owlclaw api"},
    "no audience": {"aud": None},
    "several audiences and nobody it was issued to": {"aud": [CLIENT, "another client"]},
    "issued to another client": {"aud": [CLIENT, "another client"], "azp": "another client"},
    "issued to another client alone": {"azp": "another client"},
    "another issuer": {"iss": "https://evil.example.org"},
    "expired": {"exp": 0},
    "no expiry": {"exp": None},
    "issued in the future": {"iat": 10**11},
    "no subject": {"sub": None},
    "a subject with a line break": {"sub": "ada\nkey:root"},
    "no tenant": {"org": None},
    "a tenant that is not mapped": {"org": "elsewhere"},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_an_id_token_that_is_not_right_signs_nobody_in(browser, runtime, idp, wrong):
    idp.claims = wrong

    assert refused(await come_back(browser), "does not prove")
    assert not [each for each in await records(runtime) if each["what"] == "session_begun"]


FORGED = {
    "a stranger's key": lambda claims: signed(claims, STRANGER),
    "no signature": lambda claims: signed(claims, None, alg="none"),
    "hmac with the secret of the client": lambda claims: signed(claims, SECRET.encode(), alg="HS256"),
    "another type": lambda claims: signed(claims, RSA, typ="logout+jwt"),
    "garbage": lambda _: "a.b.c",
    "nothing": lambda _: "x",
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
async def test_an_id_token_that_the_issuer_has_not_signed_signs_nobody_in(browser, runtime, idp, clock, forge):
    url = await leave(browser)
    now = clock.now().timestamp()
    nonce = parse_qs(urlsplit(url).query)["nonce"][0]
    idp.id_token = forge({"iss": idp.url, "aud": CLIENT, "nonce": nonce, "iat": now, "exp": now + 60, **PERSON})

    assert refused(await browser.get(await be_asked(url)), "does not prove")


async def test_several_audiences_are_right_if_the_token_was_issued_to_this_client(browser, runtime, idp):
    idp.claims = {"aud": [CLIENT, "another client"], "azp": CLIENT}

    assert (await come_back(browser)).status_code == 303


@pytest.fixture
def evil(clock):
    with serving_provider(clock) as provider:
        provider.redirect_uris = {f"{SERVER}/console/sign-in/{name}/callback" for name in ("idp", "evil")}
        yield provider


@pytest.fixture
def both(runtime, idp, evil, clock):
    return signing_in(runtime, clock, trusted(idp), trusted(evil, name="evil", issuer=evil.url))


@pytest.mark.parametrize("iss", ["", "https://elsewhere.example.org", "of the other", None])
async def test_an_answer_that_another_issuer_gave_is_not_taken_for_that_of_the_one_who_was_asked(
    browser, both, idp, evil, iss
):
    back = await be_asked(await leave(browser))

    assert refused(await browser.get(changed(back, iss=evil.url if iss == "of the other" else iss)), "does not prove")
    assert not idp.asked["/token"]
    assert not evil.asked["/token"]


async def test_a_code_of_one_issuer_is_sent_to_no_other_one(browser, both, idp, evil):
    """The mix-up attack: an issuer has the browser sign in at another one, to be sent the code that this one gives."""
    begun = await leave(browser, name="evil")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(begun).query).items()}
    idp.redirect_uris.add(asked["redirect_uri"])  # also if the honest issuer is careless with redirects
    back = await be_asked(f"{idp.url}/authorize?{urlencode(asked)}")

    moved = back.replace("/sign-in/evil/", "/sign-in/idp/")
    assert refused(await browser.get(moved), "begin again")
    assert not evil.asked["/token"]
    assert not idp.asked["/token"]


async def test_an_answer_that_says_it_is_of_another_issuer_is_refused_at_the_one_where_the_browser_began(
    browser, both, idp, evil
):
    begun = await leave(browser, name="evil")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(begun).query).items()}
    idp.redirect_uris.add(asked["redirect_uri"])
    back = await be_asked(f"{idp.url}/authorize?{urlencode(asked)}")

    assert refused(await browser.get(back), "does not prove")
    assert not evil.asked["/token"]


async def test_a_page_to_go_on_with_that_is_too_long_for_a_cookie_is_left_out(browser, runtime, idp):
    place = f"/console/runs?text={'w' * 3_000}"
    begun = await browser.get(f"/console/sign-in/idp?{urlencode({'next': place})}")

    answer = await browser.get(await be_asked(begun.headers["location"]))

    assert len(begun.headers["set-cookie"]) < 4_000
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")


async def test_an_issuer_without_the_parameter_iss_is_believed_if_it_does_not_promise_it(browser, runtime, idp):
    idp.metadata, idp.answer = {"authorization_response_iss_parameter_supported": False}, {"iss": None}

    assert (await come_back(browser)).status_code == 303


@pytest.mark.parametrize(
    "place",
    ["https://evil.example", "//evil.example", "/v1/runs", "/consolex", "javascript:alert(1)", "/console/\\evil"],
)
async def test_signing_in_leads_to_pages_of_the_console_only(browser, runtime, idp, place):
    begun = await browser.get(f"/console/sign-in/idp?{urlencode({'next': place})}")

    answer = await browser.get(await be_asked(begun.headers["location"]))

    assert (answer.status_code, answer.headers["location"]) == (303, "/console")


async def test_who_takes_too_long_at_the_issuer_begins_again(browser, runtime, idp, clock):
    back = await be_asked(await leave(browser))
    await clock.advance(FLOW_SECONDS)

    assert refused(await browser.get(back), "took over 10 minutes")


async def test_a_session_lasts_for_twelve_hours_whatever_the_token_says(browser, runtime, idp, clock):
    await come_back(browser)

    await clock.advance(SESSION_SECONDS - 1)
    assert (await browser.get("/console/runs")).status_code == 200
    await clock.advance(1)
    assert (await browser.get("/console/runs")).status_code == 303


async def test_the_end_of_a_session_ends_what_is_open_by_it(browser, runtime, idp, clock):
    await come_back(browser)
    person = await runtime.sessions.key_of(browser.cookies[SESSION])

    with runtime.authenticator.watching(person) as over:
        await clock.advance(FRESH)
        assert not over.is_set()
        await clock.advance(SESSION_SECONDS)
        await over.wait()


async def test_who_has_an_unknown_tenant_is_not_signed_in(browser, runtime, idp):
    idp.claims = {"org": "17"}

    assert refused(await come_back(browser), "tenant is not active")


async def test_a_tenant_that_is_suspended_ends_its_sessions_within_five_seconds_and_begins_none(
    browser, runtime, idp, clock
):
    await runtime.tenants.create(LOCAL, ACME)
    idp.claims = {"org": "17"}
    await come_back(browser)
    assert (await browser.get("/console/runs")).status_code == 200
    (begun,) = [each for each in await records(runtime, ACME) if each["what"] == "session_begun"]
    assert begun["by"] == "person:idp/ada (Ada Lovelace)"

    await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))
    await clock.advance(FRESH)

    assert (await browser.get("/console/runs")).status_code == 303
    assert refused(await come_back(browser), "tenant is not active")
    await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.ACTIVE))
    await clock.advance(FRESH)
    assert (await browser.get("/console/runs")).status_code == 200


async def test_every_replica_takes_the_session_and_finishes_what_another_one_began(browser, runtime, idp, clock):
    back = await be_asked(await leave(browser))
    signing_in(runtime, clock, trusted(idp))
    assert (await browser.get(back)).status_code == 303
    signing_in(runtime, clock, trusted(idp))

    assert (await browser.get("/console/runs")).status_code == 200


SETTINGS = {
    "the issuer is gone": lambda idp: ((), OPTIONS),
    "nobody signs in at the issuer": lambda idp: ((trusted(idp, client=None),), OPTIONS),
    "the name is another issuer's": lambda idp: ((trusted(idp, issuer="https://other.example.org"),), OPTIONS),
    "the secret is another one": lambda idp: ((trusted(idp),), SignInOptions(SERVER, "x" * 32)),
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
async def test_sessions_end_with_the_settings_that_they_began_by(browser, runtime, idp, clock, settings):
    """The store is the same: who has it, or a copy, can neither open nor make a session without the secret of the settings."""
    await come_back(browser)
    issuers, options = settings(idp)

    signing_in(runtime, clock, *issuers, options=options)

    assert (await browser.get("/console/runs")).status_code == 303


async def test_roles_are_read_by_the_settings_as_they_are(browser, runtime, idp, clock):
    await come_back(browser)

    signing_in(runtime, clock, trusted(idp, roles={"desk": ROLES["viewer"]}))

    assert (await browser.get("/console/runs")).status_code == 200
    denied = await browser.send_form("/console/agents/assistant/triggers", token="any")
    assert (denied.status_code, "runs:write" in denied.text) == (403, True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"code": None, "error": "access_denied", "error_description": "<b>Call +1 900 EVIL</b>"}, "access_denied"),
        ({"code": None, "error": "<script>alert(1)</script>"}, "no code"),
        ({"error": "server_error"}, "server_error"),
        ({"code": None}, "no code"),
    ],
)
async def test_an_issuer_that_does_not_sign_in_says_so_in_words_that_are_ours(browser, runtime, idp, answer, said):
    idp.answer = answer

    page = await come_back(browser)

    assert refused(page, said)
    assert "EVIL" not in page.text
    assert "<script>alert" not in page.text
    assert FLOW not in browser.cookies
    assert idp.asked["/token"] == 0


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ((400, b'{"error": "invalid_grant"}'), 401, "invalid_grant"),
        ((401, b'{"error": "<b>x"}'), 401, "status 401"),
        ((401, b"{}"), 401, "status 401"),
        ((500, b""), 503, "log says why"),
        ((302, b""), 503, "nobody can sign in"),
        ((200, b"{}"), 503, "nobody can sign in"),
        ((200, b'{"id_token": "' + b"x" * 1024 * 1024 + b'"}'), 503, "nobody can sign in"),
    ],
)
async def test_a_code_for_which_there_is_no_token_signs_nobody_in(browser, idp, answer, status, said):
    idp.token_answer = answer

    page = await come_back(browser)

    assert (page.status_code, said in page.text, "<b>x" in page.text) == (status, True, False)
    assert SESSION not in browser.cookies


BROKEN = {
    "another issuer's": {"issuer": "https://evil.example.org"},
    "no authorization endpoint": {"authorization_endpoint": None},
    "an authorization endpoint that is a script": {"authorization_endpoint": "javascript:alert(1)"},
    "no token endpoint": {"token_endpoint": None},
    "a token endpoint that is a file": {"token_endpoint": "file:///etc/passwd"},
}


@pytest.mark.parametrize("metadata", BROKEN.values(), ids=BROKEN)
async def test_an_issuer_that_says_nonsense_of_itself_signs_nobody_in_and_is_asked_again_later(
    browser, runtime, idp, clock, metadata
):
    idp.metadata = metadata

    answers = [await browser.get("/console/sign-in/idp") for _ in range(3)]
    assert {each.status_code for each in answers} == {503}
    assert idp.asked["/.well-known/openid-configuration"] == 1
    idp.metadata = {}
    await clock.advance(10)
    assert (await browser.get("/console/sign-in/idp")).status_code == 303
    assert (await browser.get("/console/sign-in/idp")).status_code == 303
    assert idp.asked["/.well-known/openid-configuration"] == 2


async def test_what_an_issuer_says_of_somebody_fits_into_a_cookie_or_nobody_is_signed_in(browser, runtime, idp, clock):
    many = [f"agent:{number}{'x' * 60}" for number in range(60)]
    signing_in(runtime, clock, trusted(idp, agents_claim="agents"))
    idp.claims = {"agents": many}
    assert refused(await come_back(browser), "too long for a cookie")

    idp.claims = {"agents": many[:2], "groups": ["desk", *(f"group {number}" for number in range(500))]}
    assert (await come_back(browser)).status_code == 303
    assert max(len(each) for each in browser.cookies.values()) < 1_000


async def test_signing_out_has_the_browser_forget_the_session(browser, runtime, idp):
    await come_back(browser)

    left = await browser.fill("/console/agents", "/console/sign-out")

    assert (left.status_code, left.headers["location"]) == (303, "/console/sign-in")
    assert (await browser.get("/console/runs")).status_code == 303


async def test_over_tls_the_cookies_are_bound_to_the_host(api, runtime, idp, clock):
    secure = "https://localhost:8700"
    signing_in(runtime, clock, trusted(idp), options=SignInOptions(secure, OPTIONS.session_secret))
    idp.redirect_uris = {f"{secure}/console/sign-in/idp/callback"}
    async with Browser(api) as browser:
        browser.base_url = httpx.URL(secure)
        begun = await browser.get("/console/sign-in/idp")
        ended = await browser.get(await be_asked(begun.headers["location"]))

    assert ended.status_code == 303
    kept = [*begun.headers.get_list("set-cookie"), *ended.headers.get_list("set-cookie")]
    assert {each.partition("=")[0] for each in kept} == {"__Host-owlclaw-flow", "__Host-owlclaw-session"}
    for each in kept:
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=lax"} <= {part.strip() for part in each.split(";")}


async def test_behind_a_proxy_that_ends_tls_the_public_address_of_now_binds_the_session_to_the_host(
    browser, runtime, idp, clock
):
    async def session_cookie() -> str:
        browser.cookies.clear()
        ended = await come_back(browser)
        return next(each for each in ended.headers.get_list("set-cookie") if "-session" in each)

    assert "Secure" not in await session_cookie(), "the API is built, and its public address is plain"

    secure = SERVER.replace("http://", "https://")
    signing_in(runtime, clock, trusted(idp), options=SignInOptions(secure, OPTIONS.session_secret))
    idp.redirect_uris = {f"{secure}/console/sign-in/idp/callback"}
    browser.cookies.clear()
    begun = await browser.get("/console/sign-in/idp")
    flow = begun.headers["set-cookie"].partition(";")[0]
    returned = urlsplit(await be_asked(begun.headers["location"]))
    ended = await browser.get(f"{returned.path}?{returned.query}", headers={"Cookie": flow})
    session = next(each for each in ended.headers.get_list("set-cookie") if "-session" in each)

    assert session.startswith("__Host-owlclaw-session=")
    assert {"Secure", "HttpOnly", "Path=/"} <= {part.strip() for part in session.split(";")}
    kept = {"Cookie": session.partition(";")[0]}
    assert (await browser.get("/console/runs", headers=kept)).status_code == 200
    elsewhere = kept | {"Host": "127.0.0.1:8700"}
    assert (await browser.get("/console/runs", headers=elsewhere)).status_code == 303, (
        "by another name it is plain HTTP"
    )


async def test_the_sign_in_works_from_a_link_of_the_issuer_as_browsers_say_where_it_comes_from(browser, runtime, idp):
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    back = await be_asked(await leave(browser))

    assert (await browser.get(back, headers=foreign | {"Sec-Fetch-Dest": "iframe"})).status_code == 403
    assert (await browser.get(back, headers=foreign | {"Sec-Fetch-Mode": "no-cors"})).status_code == 403
    assert (await browser.get(back, headers=foreign)).status_code == 303


async def test_leeway_is_as_for_tokens(browser, runtime, idp, clock):
    idp.claims = {"exp": clock.now().timestamp() - LEEWAY_SECONDS + 1}

    assert (await come_back(browser)).status_code == 303
