"""Who is let in: every operation of the API, with every kind of key and without one."""

from __future__ import annotations

import asyncio
import base64
import re

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from msgspec.structs import replace
from starlette.routing import Route, WebSocketRoute
from starlette.types import Message

from owlclaw_ray.access.authentication import FRESH_SECONDS
from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.access_key import make_key, make_secret, read_key
from owlclaw_ray.domain.principal import LOCAL, SCOPES
from owlclaw_ray.domain.quota import KeyQuota, Quotas
from owlclaw_ray.domain.tracing import span_of_run
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, KeyId, TenantId
from owlclaw_ray.runtime.api import Health
from owlclaw_ray.testing.clock import ManualClock
from serve.resource import SECURITY_SCHEME
from serve.route_check import Operation, PathOperations
from tests.serve.conftest import posted, staged
from tests.serve.double import MemoryRuntime

PUBLIC = {"GET /healthz", "GET /readyz", "POST /v1/webhooks/{source}"}
PUBLIC_OPERATION = Operation(None, "")
METHODS = {"get", "post", "put", "patch", "delete"}


def operations() -> dict[str, str]:
    """The scope of each operation that the document has; empty for public ones."""
    found = {}
    for path, methods in staged()[1].openapi()["paths"].items():
        for method in METHODS & methods.keys():
            security = methods[method]["security"]
            (scope,) = [each for option in security for each in option.get(SECURITY_SCHEME, ())] or [""]
            scope = "" if {} in security else scope
            found[f"{method.upper()} {path}"] = scope
    return found


GUARDED = sorted(operations().items() - {(each, "") for each in PUBLIC})


def filled(path: str) -> str:
    return re.sub(r"\{agent\}", "assistant", re.sub(r"\{(?!agent)\w+\}", "some", path))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(clock: ManualClock) -> MemoryRuntime:
    return MemoryRuntime(clock)


async def issued(runtime: MemoryRuntime, *scopes: str, agents: tuple[str, ...] = (), days: float = 90) -> str:
    return (await runtime.keys.create(LOCAL, KeyRequest("ci", scopes, agents, days))).text


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def ask(http: httpx.AsyncClient, operation: str, key: str | None = None) -> httpx.Response:
    method, path = operation.split()
    return await http.request(method, filled(path), headers={} if key is None else bearer(key))


def test_every_operation_declares_a_scope_but_for_probes_and_signed_webhooks():
    found = operations()

    assert {operation for operation, scope in found.items() if not scope} == PUBLIC
    assert {scope for scope in found.values() if scope} <= SCOPES


def test_an_operation_of_which_nobody_declares_a_scope_cannot_be_served():
    async def answer(_request: object) -> None:
        raise AssertionError

    paths = PathOperations()
    paths.add([Route("/v1/document", answer), Route("/v1/new", answer, methods=["POST"])])
    with pytest.raises(ValueError, match=r"no scope is declared of POST /v1/new$"):
        paths.require_scopes({"/v1/document"})
    with pytest.raises(ValueError, match="it is no operation"):
        paths.add([WebSocketRoute("/v1/live", answer)])
    with pytest.raises(ValueError, match="declares no scope"):
        paths.add([APIRoute("/v1/new", answer, methods=["POST"])])


async def test_a_websocket_gets_no_further_than_the_gate(api: FastAPI) -> None:
    sent = []

    async def send(message: Message) -> None:
        sent.append(message)

    await api({"type": "websocket", "path": "/v1/runs", "headers": [], "query_string": b""}, None, send)  # type: ignore[arg-type]

    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_a_stranger_is_not_told_why_the_store_is_away(
    http: httpx.AsyncClient, runtime: MemoryRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await issued(runtime, "viewer")

    async def away(_query: object) -> None:
        raise StoreUnavailableError("/srv/data/owlclaw.db was deleted")

    monkeypatch.setattr(runtime.authenticator._store, "read", away)
    runtime.authenticator.close()
    answer = await ask(http, "GET /v1/runs", key)

    assert (answer.status_code, answer.json()["detail"]) == (503, "keys cannot be checked just now")


@pytest.mark.parametrize("with_key", [True, False])
async def test_who_was_known_before_is_told_why_the_store_is_away(http, runtime, clock, monkeypatch, with_key):
    key = None
    if with_key:
        key = await issued(runtime, "viewer")
        runtime.authenticator.close()
    assert (await ask(http, "GET /v1/runs", key)).status_code == 200

    async def away(_query: object) -> None:
        raise StoreUnavailableError("/srv/data/owlclaw.db was deleted")

    monkeypatch.setattr(runtime.authenticator._store, "read", away)
    await clock.advance(FRESH_SECONDS)
    answer = await ask(http, "GET /v1/runs", key)
    made_up, _ = make_secret(KeyId("00000000"), lambda size: b"\1" * size)
    stranger = await ask(http, "GET /v1/runs", made_up)

    assert (answer.status_code, answer.json()["detail"]) == (503, "/srv/data/owlclaw.db was deleted")
    assert (stranger.status_code, stranger.json()["detail"]) == (503, "keys cannot be checked just now")


@pytest.mark.parametrize(("operation", "scope"), GUARDED)
async def test_a_guarded_operation_is_for_keys_that_are_valid_and_have_its_scope(
    http, runtime, clock, operation, scope
):
    too_narrow = await issued(runtime, *(SCOPES - including(scope)))
    expired, revoked = await issued(runtime, "admin", days=1 / 86_400), await issued(runtime, "admin")
    await runtime.keys.revoke(LOCAL, KeyId(revoked.split("_")[1]))
    unknown, _ = make_secret(KeyId("00000000"), lambda size: b"\1" * size)
    await clock.advance(2)

    for key in (None, "", "nonsense", expired, revoked, unknown, revoked[:-1]):
        refused = await ask(http, operation, key)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="owlclaw"')
        assert refused.json()["type"] == "urn:owlclaw:problem:unauthenticated"
    forbidden = await ask(http, operation, too_narrow)
    assert (forbidden.status_code, forbidden.json()["scope"]) == (403, scope)
    assert scope in forbidden.json()["detail"]
    assert (await ask(http, operation, await issued(runtime, scope))).status_code not in {401, 403}


def including(scope: str) -> set[str]:
    """All scopes that include this one."""
    resource, _, verb = scope.partition(":")
    return (
        {each for each in SCOPES if each.startswith(f"{resource}:")} if verb == "read" else {scope, f"{resource}:admin"}
    )


@pytest.mark.parametrize("operation", sorted(PUBLIC - {"POST /v1/webhooks/{source}"}))
async def test_probes_need_no_key(http, runtime, operation):
    await issued(runtime, "admin")

    assert (await ask(http, operation)).status_code == 200


async def test_what_the_parts_are_is_for_who_may_see_the_system_and_others_learn_whether_it_is_ready(http, runtime):
    whole = {"status": "ready", "ready": True, "parts": runtime.healthy.parts, "standby": False, "holder": ""}
    assert (await ask(http, "GET /readyz")).json() == whole
    may, narrow = await issued(runtime, "system:read"), await issued(runtime, *(SCOPES - including("system:read")))

    assert (await ask(http, "GET /readyz", may)).json() == whole
    for key in (None, "nonsense", "", narrow, may[:-1]):
        told = await ask(http, "GET /readyz", key)
        assert (told.status_code, told.json()) == (200, {"status": "ready"})
    basic = await http.get("/readyz", headers={"Authorization": "Basic b3dsOmtleQ=="})
    assert basic.json() == {"status": "ready"}

    runtime.healthy = Health(ready=False, parts={"store": "the disk is full"}, holder="west")
    told = await ask(http, "GET /readyz")
    assert (told.status_code, told.json()) == (503, {"status": "not_ready"})
    assert (await ask(http, "GET /readyz", may)).json()["parts"] == {"store": "the disk is full"}


async def test_who_was_known_is_told_what_is_wrong_while_the_store_that_would_know_him_is_gone(
    http, runtime, clock, monkeypatch
):
    may = await issued(runtime, "system:read")
    assert "parts" in (await ask(http, "GET /readyz", may)).json()
    await clock.advance(60)

    async def gone(query):
        raise StoreUnavailableError("gone")

    monkeypatch.setattr(runtime.authenticator._store, "read", gone)

    assert "parts" in (await ask(http, "GET /readyz", may)).json()
    assert (await ask(http, "GET /readyz", await issued_elsewhere())).json() == {"status": "ready"}


async def issued_elsewhere() -> str:
    _, text, _ = make_key(lambda size: b"\2" * size)
    return text


async def test_without_keys_nobody_needs_one_and_one_that_is_none_is_refused_all_the_same(http, runtime):
    assert (await http.get("/v1/runs")).status_code == 200
    assert (await http.get("/v1/runs", headers=bearer("owl_nonsense"))).status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        "Basic " + base64.b64encode(b"owl:KEY").decode(),
        "KEY",
        "Bearer",
        "Bearer KEY KEY",
        "Token KEY",
        "Bearer KEY\x00",
    ],
)
async def test_a_key_comes_as_a_bearer_token_and_in_no_other_form(http, runtime, header):
    key = await issued(runtime, "admin")

    assert (await http.get("/v1/runs", headers={"Authorization": header.replace("KEY", key)})).status_code == 401
    assert (await http.get("/v1/runs", headers={"authorization": f"bEARER   {key} "})).status_code == 200


async def test_a_key_that_comes_twice_or_in_the_url_is_none(http, runtime):
    key = await issued(runtime, "admin")

    twice = await http.get("/v1/runs", headers=[("Authorization", f"Bearer {key}")] * 2)
    assert twice.status_code == 401
    for name in ("key", "api_key", "token", "access_token", "authorization"):
        assert (await http.get(f"/v1/runs?{name}={key}")).status_code == 401


async def test_a_path_that_does_not_exist_and_a_method_that_it_does_not_take_need_no_key(http, runtime):
    await issued(runtime, "admin")

    assert (await http.get("/v1/nothing")).status_code == 404
    assert (await http.delete("/v1/runs")).status_code == 405
    assert (await http.head("/v1/runs")).status_code == 401


@pytest.mark.parametrize("end", ["%0A", "%0D", "%00", "%20", "/", "%2F", ";", "%0A%0A"])
async def test_a_path_that_the_router_could_take_for_another_is_let_through_to_nobody(http, runtime, end):
    await issued(runtime, "admin")

    for operation, _ in GUARDED:
        method, path = operation.split()
        answer = await http.request(method, filled(path) + end)
        assert answer.status_code in {401, 404, 405}, (operation, answer.text)


async def test_where_the_gate_knows_a_path_otherwise_than_the_router_each_operation_asks_again(
    http, runtime, monkeypatch
):
    await issued(runtime, "admin")
    monkeypatch.setattr(PathOperations, "of", lambda _, path: {"GET": PUBLIC_OPERATION, "POST": PUBLIC_OPERATION})

    for operation, scope in GUARDED:
        if operation.split()[0] in {"GET", "POST"}:
            answer = await ask(http, operation)
            assert (operation, answer.status_code, answer.json()["scope"]) == (operation, 403, scope)


async def test_the_body_of_who_is_refused_is_not_read(http, runtime):
    await issued(runtime, "admin")

    async def body():
        raise AssertionError("it was read")
        yield b""

    assert (await http.post("/v1/agents/assistant/triggers", content=body())).status_code == 401


async def test_a_store_that_is_away_is_503_not_401(http, runtime):
    key = await issued(runtime, "admin")

    async def away(query):
        raise StoreUnavailableError("the store is away")

    runtime.schedules.read = away

    assert (await http.get("/v1/runs", headers=bearer(key))).status_code == 503
    assert (await http.get("/v1/runs")).status_code == 401


async def test_who_is_narrowed_to_agents_meets_these_alone(http, runtime):
    ours, theirs = "/v1/agents/assistant:ours", "/v1/agents/assistant:theirs"
    everything = bearer(await issued(runtime, "developer"))
    narrow = bearer(await issued(runtime, "operator", "approver", "memories:write", agents=("agent:assistant:o*",)))
    runs, schedules = {}, {}
    for path in (ours, theirs):
        runs[path] = (await http.post(f"{path}/triggers", headers=everything)).json()["run_id"]
        asked = {"focus": "look", "delay_seconds": 60}
        schedules[path] = (await http.post(f"{path}/schedules", json=asked, headers=everything)).json()["schedule_id"]

    for path, status in ((ours, {200, 201, 202}), (theirs, {403})):
        run, schedule = f"/v1/runs/{runs[path]}", f"/v1/schedules/{schedules[path]}"
        answers = {
            each: await http.request(*each.split(), headers=narrow, json=body)
            for each, body in {
                f"GET {path}": None,
                f"GET {path}/memories": None,
                f"POST {path}/memories": {"content": "look"},
                f"POST {path}/triggers": {},
                f"GET {path}/schedules": None,
                f"GET {path}/ledger": None,
                f"GET {run}": None,
                f"GET {run}/events": None,
                f"POST {run}/cancel": None,
                f"GET {schedule}": None,
                f"GET {schedule}/ticks": None,
                f"POST {schedule}/pause": None,
                f"POST {schedule}/resume": None,
                f"POST {schedule}/cancel": None,
                f"GET /v1/runs?agent={path[11:]}": None,
                f"GET /v1/schedules?agent={path[11:]}": None,
                f"GET /v1/approvals?agent={path[11:]}": None,
                f"GET /v1/ledger?agent={path[11:]}": None,
                f"GET /v1/callbacks?agent={path[11:]}": None,
            }.items()
        }
        assert {each: answer.status_code for each, answer in answers.items() if answer.status_code not in status} == {}
    batch = {"triggers": [{"agent": path[11:]} for path in (ours, theirs)]}
    results = (await http.post("/v1/triggers:batch", json=batch, headers=narrow)).json()["results"]
    assert [each["status"] for each in results] == [202, 403]
    for path in (
        "/v1/runs",
        "/v1/schedules",
        "/v1/approvals",
        "/v1/ledger",
        "/v1/callbacks",
        "/v1/deliveries",
        "/v1/ledger/heads",
    ):
        refused = await http.get(path, headers=narrow)
        assert (path, refused.status_code) == (path, 403)
        assert "ask for one of these agents" in refused.json()["detail"]
    shown = (await http.get("/v1/agents", headers=narrow)).json()["agents"]
    assert [each["agent"] for each in shown] == ["assistant:ours"]


async def test_who_is_narrowed_to_agents_is_told_of_no_definition_but_theirs(http, runtime):
    narrow = bearer(await issued(runtime, "operator", agents=("agent:zz*", "agent:patient:one")))
    batch = {"triggers": [{"agent": "zzz"}]}

    asked = (await http.get("/v1/agents/zzz", headers=narrow)).json()
    [triggered] = (await http.post("/v1/triggers:batch", json=batch, headers=narrow)).json()["results"]

    for problem in (asked, triggered["problem"]):
        assert (problem["type"], problem["known"]) == ("urn:owlclaw:problem:unknown-agent", ["patient"])
        assert "assistant" not in problem["detail"]


async def test_the_ledger_knows_who_did_it_by_the_key_and_not_by_what_is_said(http, runtime):
    key = await issued(runtime, "developer")
    who = f"key:{key.split('_')[1]} (ci)"

    await http.post("/v1/agents/assistant/memories", json={"content": "a"}, headers=bearer(key))
    await http.post("/v1/agents/assistant/memories?by=ada", json={"content": "b"}, headers=bearer(key))

    assert runtime.memory.by == [who, f"{who} for ada"]


async def test_without_keys_the_ledger_knows_what_is_said(http, runtime):
    await http.post("/v1/agents/assistant/memories?by=ada", json={"content": "b"})

    assert runtime.memory.by == ["ada"]


async def test_a_stream_ends_when_its_key_is_revoked_and_goes_on_while_it_is_not(http, runtime, clock):
    key, other = await issued(runtime, "operator"), await issued(runtime, "operator")
    run_id = (await http.post("/v1/agents/patient/triggers", headers=bearer(key))).json()["run_id"]
    path = f"/v1/runs/{run_id}/events"
    ended = asyncio.create_task(http.get(path, headers=bearer(key)))
    kept = asyncio.create_task(http.get(path, headers=bearer(other)))
    await clock.wait_for_sleepers()
    await clock.advance(5)
    assert not ended.done()

    await runtime.keys.revoke(LOCAL, KeyId(key.split("_")[1]))
    await clock.advance(5)

    assert "event: end" not in (await ended).text
    assert not kept.done()
    await http.post(f"/v1/runs/{run_id}/cancel", headers=bearer(other))
    assert "event: end" in (await kept).text


async def test_a_stream_that_was_opened_without_a_key_ends_when_there_is_one(http, runtime, clock):
    run_id = (await http.post("/v1/agents/patient/triggers")).json()["run_id"]
    stream = asyncio.create_task(http.get(f"/v1/runs/{run_id}/events"))
    await clock.wait_for_sleepers()

    await issued(runtime, "admin")
    await clock.advance(5)

    assert "event: end" not in (await stream).text


async def test_a_stream_ends_with_its_key_also_if_the_body_of_its_request_never_ends(api, http, runtime, clock):
    key = await issued(runtime, "operator")
    run_id = (await http.post("/v1/agents/patient/triggers", headers=bearer(key))).json()["run_id"]
    scope = posted(f"/v1/runs/{run_id}/events", (b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode()))
    chunks, sent = iter([{"type": "http.request", "body": b"x", "more_body": True}]), []

    async def receive():
        for chunk in chunks:
            return chunk
        return await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    stream = asyncio.create_task(api({**scope, "method": "GET"}, receive, send))
    await clock.wait_for_sleepers()
    await runtime.keys.revoke(LOCAL, KeyId(key.split("_")[1]))
    await clock.advance(5)

    await stream
    assert sent[0]["status"] == 200


class SlowBody:
    """A request whose body comes when the test says so."""

    def __init__(self, api, method, path, key):
        self.pieces, self.sent, self.asked = asyncio.Queue(), [], 0
        headers = (b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())
        scope = {**posted(path, *headers, (b"content-type", b"application/json")), "method": method}
        self.done = asyncio.create_task(api(scope, self.receive, self.send))

    async def receive(self):
        self.asked += 1
        return await self.pieces.get()

    async def awaited(self, asked):
        async with asyncio.timeout(30):
            while self.asked < asked:
                await asyncio.sleep(0)

    async def begin(self, piece):
        """Return when the first piece was read, and the next is waited for."""
        self.pieces.put_nowait({"type": "http.request", "body": piece, "more_body": True})
        await self.awaited(2)

    def end(self, piece):
        self.pieces.put_nowait({"type": "http.request", "body": piece, "more_body": False})

    async def send(self, message):
        self.sent.append(message)

    async def status(self):
        async with asyncio.timeout(30):
            await self.done
        return self.sent[0]["status"]


WITH_BODIES = sorted(
    operation
    for operation in dict(GUARDED)
    if "requestBody" in staged()[1].openapi()["paths"][operation.split()[1]][operation.split()[0].lower()]
)


@pytest.mark.parametrize("operation", WITH_BODIES)
async def test_a_body_that_stops_coming_is_no_longer_waited_for_when_its_key_is_revoked(api, runtime, clock, operation):
    key, method, path = await issued(runtime, "admin"), *operation.split()
    slow = SlowBody(api, method, filled(path), key)
    await slow.begin(b"{")

    await runtime.keys.revoke(LOCAL, KeyId(key.split("_")[1]))
    await clock.advance(5)

    assert await slow.status() == 401


async def test_a_revoked_key_cannot_make_its_successor_with_a_request_that_began_before(api, runtime, clock):
    key = await issued(runtime, "admin")
    slow = SlowBody(api, "POST", "/v1/keys", key)
    await slow.begin(b'{"name": "successor", "scopes": ["admin"]')
    await runtime.keys.revoke(LOCAL, KeyId(key.split("_")[1]))
    await clock.advance(5)

    slow.end(b"}")

    assert await slow.status() == 401
    assert [each.name for each in await runtime.keys.keys(DEFAULT_TENANT)] == ["ci"]


async def test_a_body_in_one_piece_is_too_late_when_its_key_was_revoked_before(api, runtime, clock):
    key = await issued(runtime, "admin")
    slow = SlowBody(api, "POST", "/v1/keys", key)
    await slow.awaited(1)
    await runtime.keys.revoke(LOCAL, KeyId(key.split("_")[1]))
    await clock.advance(5)

    slow.end(b'{"name": "successor", "scopes": ["admin"]}')

    assert await slow.status() == 401


async def test_a_body_that_comes_in_drops_is_cut_off_when_its_key_is_revoked(api, runtime, clock):
    key = await issued(runtime, "admin")
    slow = SlowBody(api, "POST", "/v1/keys", key)
    await slow.begin(b"{")

    await runtime.keys.revoke(LOCAL, KeyId(key.split("_")[1]))
    for _ in range(6):
        await clock.advance(1)
        slow.pieces.put_nowait({"type": "http.request", "body": b" ", "more_body": True})
        await clock.settle()

    assert await slow.status() == 401


async def test_a_slow_body_is_taken_whose_key_is_good_to_the_end(api, runtime, clock):
    key = await issued(runtime, "admin")
    slow = SlowBody(api, "POST", "/v1/keys", key)
    await slow.begin(b'{"name": "other", "scopes": ["viewer"]')
    await clock.advance(30)

    slow.end(b"}")

    assert await slow.status() == 201


async def test_what_all_tenants_share_is_changed_by_operators_alone(http, runtime):
    await runtime.tenants.create(LOCAL, "acme")
    wanted = KeyRequest("theirs", ("admin",), tenant=TenantId("acme"))
    theirs = bearer((await runtime.keys.create(LOCAL, wanted)).text)
    ours = bearer(await issued(runtime, "developer"))

    refused = await http.post("/v1/agents/assistant/reload", headers=theirs)

    assert (refused.status_code, "for operators" in refused.json()["detail"]) == (403, True)
    assert runtime.reloaded == []
    assert (await http.post("/v1/agents/assistant/reload", headers=ours)).status_code == 200


async def test_a_tenant_that_names_the_trace_of_anothers_run_gets_into_a_trace_of_its_own(http, runtime):
    keys = []
    for tenant in ("acme", "globex"):
        await runtime.tenants.create(LOCAL, tenant)
        wanted = KeyRequest("theirs", ("operator",), tenant=TenantId(tenant))
        keys.append(bearer((await runtime.keys.create(LOCAL, wanted)).text))

    async def span_of(tenant, key, trace):
        headers = key | {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        run_id = (await http.post("/v1/agents/assistant/triggers", headers=headers)).json()["run_id"]
        return span_of_run(await runtime.run(TenantId(tenant), run_id))

    victim = await span_of("globex", keys[1], "0af7651916cd43dd8448eb211c80319c")
    own = [await span_of("acme", keys[0], victim.trace_id) for _ in range(2)]

    assert own[0].trace_id == own[1].trace_id
    assert len({own[0].trace_id, victim.trace_id, "0af7651916cd43dd8448eb211c80319c"}) == 3


async def test_keys_are_made_listed_rotated_and_revoked(http, runtime):
    made = await http.post("/v1/keys", json={"name": "ci", "scopes": ["admin"]})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    headers, about = bearer(made.json()["key"]), made.json()["about"]

    shown = await http.get("/v1/keys", headers=headers)
    rotated = await http.post(f"/v1/keys/{about['key_id']}/rotate", json={"grace_seconds": 60}, headers=headers)
    revoked = await http.post(f"/v1/keys/{about['key_id']}/revoke", headers=bearer(rotated.json()["key"]))

    assert [(each["key_id"], each["name"], each["scopes"]) for each in shown.json()["keys"]] == [
        (about["key_id"], "ci", ["*"])
    ]
    assert rotated.json()["key"] != made.json()["key"]
    assert revoked.json()["revoked_at"] is not None
    for answer in (shown, revoked):
        assert made.json()["key"].split("_")[2] not in answer.text
        assert "hash" not in answer.text


async def test_keys_are_listed_in_pages(http, runtime):
    for name in "abc":
        await runtime.keys.create(LOCAL, KeyRequest(name, ("viewer",)))
    headers = bearer(await issued(runtime, "admin"))

    first = (await http.get("/v1/keys?limit=3", headers=headers)).json()
    second = (await http.get(f"/v1/keys?limit=3&after={first['next_after']}", headers=headers)).json()

    assert (len(first["keys"]), len(second["keys"]), second["next_after"]) == (3, 1, None)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"scopes": ["admin"]}, "body.name"),
        ({"name": "ci"}, "body.scopes"),
        ({"name": "ci", "scopes": ["runs"]}, "body.scopes"),
        ({"name": "ci", "scopes": ["admin"], "agents": ["agent:a"]}, "body.agents"),
        ({"name": "ci", "scopes": ["viewer"], "days": 0}, "body.days"),
        ({"name": "ci", "scopes": ["viewer"], "day": 1}, "body.day"),
        ({"name": " ci", "scopes": ["viewer"]}, "body.name"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused_with_what_is_wrong(http, runtime, body, where):
    refused = await http.post("/v1/keys", json=body)

    assert (refused.status_code, refused.json()["problems"][0]["where"]) == (422, where)
    assert await runtime.keys.keys(DEFAULT_TENANT) == []


async def test_a_tenant_is_made_with_its_key_and_suspended(http, runtime, clock):
    admin = bearer(await issued(runtime, "admin"))
    made = await http.post("/v1/tenants", json={"tenant": "acme", "weight": 3}, headers=admin)
    again = await http.post("/v1/tenants", json={"tenant": "acme"}, headers=admin)
    theirs = (
        await http.post("/v1/keys", json={"name": "x", "scopes": ["admin"], "tenant": "acme"}, headers=admin)
    ).json()["key"]

    assert (made.status_code, made.json()["status"], again.status_code) == (201, "active", 409)
    assert (await http.get("/v1/keys", headers=bearer(theirs))).json()["keys"][0]["tenant"] == "acme"
    assert (await http.get("/v1/tenants", headers=bearer(theirs))).status_code == 403
    assert (await http.get("/v1/nodes", headers=bearer(theirs))).status_code == 403

    changed = await http.patch("/v1/tenants/acme", json={"status": "suspended"}, headers=admin)
    await clock.advance(5)

    assert changed.json()["status"] == "suspended"
    assert (await http.get("/v1/runs", headers=bearer(theirs))).status_code == 401
    assert (await http.get("/v1/tenants", headers=admin)).json()["tenants"] == [changed.json()]
    assert (await http.patch("/v1/tenants/nobody", json={"weight": 2}, headers=admin)).status_code == 404
    assert (await http.patch("/v1/tenants/acme", json={}, headers=admin)).status_code == 422


async def test_the_document_says_what_each_operation_needs(http, runtime):
    await issued(runtime, "admin")
    document = (await http.get("/openapi.json")).json()

    assert document["components"]["securitySchemes"][SECURITY_SCHEME]["scheme"] == "bearer"
    for operation, scope in GUARDED:
        method, path = operation.split()
        said = document["paths"][path][method.lower()]
        assert said["security"] == [{SECURITY_SCHEME: [scope]}]
        assert {"401", "403"} <= said["responses"].keys()


def test_a_principal_is_written_as_what_it_is():
    assert str(LOCAL) == "system:local"
    assert str(replace(LOCAL, name="here")) == "system:local (here)"


async def test_operators_give_tenants_quotas_take_them_away_and_see_what_is_used(http, runtime):
    admin = bearer(await issued(runtime, "admin"))
    none = dict.fromkeys(Quotas.__struct_fields__)

    made = await http.post("/v1/tenants", json={"tenant": "acme", "quotas": {"open_runs": 5}}, headers=admin)
    changed = await http.patch(
        "/v1/tenants/acme", json={"quotas": {"open_runs": None, "starts_a_minute": 60.0}}, headers=admin
    )
    shown = await http.get("/v1/tenants/acme", headers=admin)

    assert made.json()["quotas"] == none | {"open_runs": 5}
    assert changed.json()["quotas"] == none | {"starts_a_minute": 60}
    assert (shown.json()["quotas"], shown.json()["use"]) == (changed.json()["quotas"], none | {"starts_a_minute": 0})
    for wrong in ({"open_runs": -1}, {"open_runs": 1.5}, {"open_runs": 10**13}, {"runs": 1}, []):
        refused = await http.patch("/v1/tenants/acme", json={"quotas": wrong}, headers=admin)
        assert (refused.status_code, "quotas" in refused.text) == (422, True), wrong
    assert (await http.get("/v1/tenants/acme", headers=admin)).json()["quotas"] == changed.json()["quotas"]


async def test_a_key_with_a_quota_starts_runs_under_it_and_changes_no_keys_but_itself(http, runtime):
    admin = bearer(await issued(runtime, "admin"))
    limits = {"starts_a_minute": 7, "open_runs": 6, "running_runs": 5, "model_tokens_a_minute": 4_000}
    body = {"name": "ci", "scopes": ["admin"], **limits}
    key = (await http.post("/v1/keys", json=body, headers=admin)).json()
    theirs = bearer(key["key"])
    sub = {"name": "sub", "scopes": ["operator"]}

    await http.post("/v1/agents/assistant/triggers", headers=theirs)
    await http.post("/v1/triggers:batch", json={"triggers": [{"agent": "assistant"}]}, headers=theirs)
    await http.post("/v1/agents/assistant/triggers", headers=admin)
    unlimited = read_key(admin["Authorization"].split()[1])[0]
    refused = [
        await http.post("/v1/keys", json=sub, headers=theirs),
        await http.post("/v1/keys", json=sub | {"starts_a_minute": 3}, headers=theirs),
        await http.post(f"/v1/keys/{unlimited}/rotate", json={}, headers=theirs),
        await http.post(f"/v1/keys/{unlimited}/revoke", headers=theirs),
    ]
    rotated = await http.post(f"/v1/keys/{key['about']['key_id']}/rotate", json={}, headers=theirs)

    once = {"Idempotency-Key": "order-17"}
    first = await http.post("/v1/agents/assistant/triggers", json={"focus": "17"}, headers=admin | once)
    again = await http.post("/v1/agents/assistant/triggers", json={"focus": "17"}, headers=theirs | once)
    assert (again.status_code, again.json()["run_id"]) == (202, first.json()["run_id"])

    quota = KeyQuota(key["about"]["key_id"], **limits)
    assert [each.quota for each in runtime.admissions] == [quota, quota, None, None]
    assert [each.status_code for each in refused] == [403] * 4
    assert all(name in refused[0].text for name in limits)
    assert limits.items() <= rotated.json()["about"].items()
    shown = (await http.get(f"/v1/keys/{key['about']['key_id']}", headers=admin)).json()
    assert (limits.items() <= shown.items(), shown["use"]) == (True, dict.fromkeys(limits, 0))
    assert (await http.post("/v1/keys", json=sub | {"open_runs": -1}, headers=admin)).status_code == 422


async def test_a_page_of_agents_leads_on_by_those_that_a_key_is_for_alone(http, runtime):
    narrow = bearer(await issued(runtime, "agents:read", "webhooks:read", agents=("agent:patient", "agent:assistant")))

    first = (await http.get("/v1/agents?limit=1", headers=narrow)).json()
    second = (await http.get("/v1/agents?limit=1&after=assistant", headers=narrow)).json()

    assert ([each["agent"] for each in first["agents"]], first["next_after"]) == (["assistant"], "assistant")
    assert ([each["agent"] for each in second["agents"]], second["next_after"]) == (["patient"], None)
    other = bearer(await issued(runtime, "agents:read", agents=("agent:patient",)))
    assert (await http.get("/v1/agents?limit=1", headers=other)).json()["next_after"] is None
    assert (await http.get("/v1/webhooks", headers=narrow)).status_code == 403
