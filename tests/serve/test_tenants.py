"""Deleting and exporting tenants over HTTP and on the command line."""

from __future__ import annotations

import json

import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.client import Client
from owlclaw_ray.client.failures import ServerUnreachableError
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.runtime.tenant_removal import TenantRemoval
from owlclaw_ray.store.queries import LedgerFilter
from owlclaw_ray.store.sql.tenant_rows import EMPTIED
from owlclaw_ray.testing.clock import ManualClock
from tests.serve.double import MemoryRuntime
from tests.store.sql.tenant_worlds import fill, rows_of

ACME = TenantId("acme")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def runtime(clock):
    return MemoryRuntime(clock)


async def key_of(runtime, *scopes, tenant=None):
    issued = await runtime.keys.create(LOCAL, KeyRequest("ci", scopes, days=1, tenant=tenant))
    return {"Authorization": f"Bearer {issued.text}"}


@pytest.fixture
async def admin(runtime):
    return await key_of(runtime, "tenants:admin")


async def made(runtime, *, suspended=True):
    await runtime.tenants.create(LOCAL, ACME)
    await runtime.schedules._database.write(fill, ACME)
    if suspended:
        await runtime.tenants.change(LOCAL, ACME, TenantChange(status=TenantStatus.SUSPENDED))


async def removed(runtime, clock):
    async def nobody(agent: AgentRef, run_id):
        """There are no hosts."""

    await clock.advance(60)
    return await TenantRemoval(runtime.schedules, (), nobody, clock).tick()


async def test_a_suspended_tenant_is_deleted_and_tells_how_far_it_is(http, runtime, clock, admin):
    await made(runtime)

    accepted = await http.delete("/v1/tenants/acme", headers=admin)
    again = await http.delete("/v1/tenants/acme", headers=admin)
    assert await removed(runtime, clock) == 1
    shown = (await http.get("/v1/tenants/acme", headers=admin)).json()

    assert (accepted.status_code, accepted.json()["status"]) == (202, "deleting")
    assert accepted.json()["deletion"]["by"].startswith("key:")
    assert again.json() == accepted.json()
    assert shown["status"] == "deleted"
    assert shown["deletion"]["left"] == {}
    assert shown["deletion"]["removed"].keys() == {each.table.name for each in EMPTIED}
    assert shown["deletion"]["deleted_at"] is not None
    assert (await http.post("/v1/tenants", json={"tenant": "acme"}, headers=admin)).status_code == 409
    assert (await http.patch("/v1/tenants/acme", json={"status": "active"}, headers=admin)).status_code == 409


@pytest.mark.parametrize(("tenant", "status"), [("acme", 409), ("default", 409), ("nobody", 404)])
async def test_what_is_not_suspended_is_not_deleted(http, runtime, admin, tenant, status):
    await made(runtime, suspended=False)

    refused = await http.delete(f"/v1/tenants/{tenant}", headers=admin)

    assert refused.status_code == status, refused.text
    assert (await runtime.tenants.tenant(ACME)).status is TenantStatus.ACTIVE


async def test_a_deleted_tenant_gets_no_keys_and_no_status_that_only_a_deletion_gives(http, runtime, admin):
    await made(runtime)
    await http.delete("/v1/tenants/acme", headers=admin)
    every = await key_of(runtime, "*")

    key = await http.post("/v1/keys", json={"name": "x", "scopes": ["admin"], "tenant": "acme"}, headers=every)
    await runtime.tenants.create(LOCAL, "other")
    status = await http.patch("/v1/tenants/other", json={"status": "deleted"}, headers=admin)

    assert (key.status_code, "it gets no keys" in key.json()["detail"]) == (409, True)
    assert status.status_code == 422


async def test_operators_verify_the_ledger_of_a_deleted_tenant_and_others_that_of_their_own(
    http, runtime, clock, admin
):
    await made(runtime)
    await http.delete("/v1/tenants/acme", headers=admin)
    await removed(runtime, clock)
    asked = "/v1/ledger/verification?tenant="
    operator, reader = await key_of(runtime, "ledger:read", "tenants:read"), await key_of(runtime, "ledger:read")

    seen = []
    verify = runtime.verify_ledger

    async def noted(tenant, since=()):
        seen.append(tenant)
        return await verify(tenant, since)

    runtime.verify_ledger = noted
    statuses = [
        (await http.get(f"{asked}{tenant}", headers=headers)).status_code
        for headers, tenant in ((operator, "acme"), (operator, "nobody"), (reader, "acme"), (reader, "default"))
    ]

    assert statuses == [200, 404, 403, 200]
    assert seen == [ACME, DEFAULT_TENANT]


@pytest.mark.parametrize("request_", ["DELETE /v1/tenants/acme", "GET /v1/tenants/acme/export"])
async def test_only_who_administers_tenants_exports_or_deletes_one(http, runtime, request_):
    await made(runtime)
    method, path = request_.split()

    for scopes, tenant in ((("tenants:read",), None), (("admin",), ACME)):
        headers = await key_of(runtime, *scopes, tenant=tenant)
        assert (await http.request(method, path, headers=headers)).status_code in {401, 403}


async def test_an_export_is_lines_of_json_with_every_row_and_an_end(http, runtime, admin):
    await made(runtime)

    answer = await http.get("/v1/tenants/acme/export", headers=admin)
    lines = [json.loads(line) for line in answer.text.splitlines()]

    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert (lines[0]["type"], lines[-1]["type"], lines[-1]["lines"]) == ("export", "end", len(lines))
    expected = {name: len(rows) for name, rows in rows_of(ACME).items()}
    for instead in ("memories", "memory_parts", "artifacts", "artifact_parts", "focus_terms"):
        del expected[instead]
    counts = lines[-1]["counts"]
    assert {name: counts[name] for name in expected} == expected
    assert counts["ledger"] == 2
    for hidden in ("c1pher", "h4sh", "YzFwaGVy"):
        assert hidden not in answer.text
    assert (await http.get("/v1/tenants/nobody/export", headers=admin)).status_code == 404


async def test_an_export_that_breaks_off_is_told_from_a_whole_one(server, runtime, monkeypatch):
    await made(runtime)
    read = runtime.schedules.read

    async def breaks(query):
        if getattr(query, "table", "") == "ledger":
            raise OSError(5, "Input/output error")
        return await read(query)

    monkeypatch.setattr(runtime.schedules, "read", breaks)
    key = (await key_of(runtime, "tenants:admin"))["Authorization"].split()[1]

    async with Client(server, api_key=key) as client:
        lines = []
        with pytest.raises(ServerUnreachableError, match="cut off"):
            lines.extend([line async for line in client.export_tenant("acme")])


async def test_a_tenant_has_a_retention_of_its_own_and_what_is_left_out_of_a_change_stays(http, admin):
    asked = {"tenant": "acme", "retention": {"artifact_days": 30, "webhook_days": 0, "run_days": 90}}
    made = await http.post("/v1/tenants", json=asked, headers=admin)
    changed = await http.patch(
        "/v1/tenants/acme",
        json={"retention": {"artifact_days": None, "memory_days": 0.5, "run_days": None}},
        headers=admin,
    )
    shown = await http.get("/v1/tenants/acme", headers=admin)

    assert made.json()["retention"] == {"artifact_days": 30, "webhook_days": 0, "memory_days": None, "run_days": 90}
    assert (
        changed.json()["retention"]
        == shown.json()["retention"]
        == {"artifact_days": None, "webhook_days": 0, "memory_days": 0.5, "run_days": None}
    )


@pytest.mark.parametrize(
    "retention",
    [{"artifact_days": -1}, {"webhook_days": 36_501}, {"ledger_days": 1}, {"run_days": -1}, {"memory_days": "1"}],
)
async def test_a_retention_that_cannot_be_is_refused(http, admin, retention):
    refused = await http.post("/v1/tenants", json={"tenant": "acme", "retention": retention}, headers=admin)

    assert refused.status_code == 422, refused.text
    assert "retention" in refused.text
    assert (await http.get("/v1/tenants/acme", headers=admin)).status_code == 404


async def test_a_tenant_has_networks_for_callbacks_which_its_ledger_tells_of(http, admin, runtime):
    made = await http.post("/v1/tenants", json={"tenant": "acme", "callback_networks": ["10.1.0.0/16"]}, headers=admin)
    renamed = await http.patch("/v1/tenants/acme", json={"name": "Acme"}, headers=admin)
    none = await http.patch("/v1/tenants/acme", json={"callback_networks": []}, headers=admin)
    general = await http.patch("/v1/tenants/acme", json={"callback_networks": None}, headers=admin)

    answers = [each.json()["callback_networks"] for each in (made, renamed, none, general)]
    assert answers == [["10.1.0.0/16"], ["10.1.0.0/16"], [], None]
    records = await runtime.schedules.read(LedgerFilter(ACME))
    assert [
        each.record.data["callback_networks"] for each in records if "callback_networks" in each.record.data
    ] == answers


@pytest.mark.parametrize("networks", [["10.1.0.0/8"], ["internal"], [1], "10.0.0.0/8", ["10.0.0.0/8"] * 101, {}])
async def test_networks_that_cannot_be_are_refused(http, admin, networks):
    refused = await http.post("/v1/tenants", json={"tenant": "acme", "callback_networks": networks}, headers=admin)

    assert refused.status_code == 422, refused.text
    assert "callback_networks" in refused.text
    assert (await http.get("/v1/tenants", headers=admin)).json()["tenants"] == []


async def test_a_tenant_opens_no_network_to_itself(http, runtime):
    await runtime.tenants.create(LOCAL, ACME)
    own = await key_of(runtime, "*", tenant=ACME)

    refused = await http.patch("/v1/tenants/acme", json={"callback_networks": ["10.0.0.0/8"]}, headers=own)

    assert refused.status_code == 403
