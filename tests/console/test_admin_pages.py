"""What the pages for those who look after a runtime show, and what their forms do."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from msgspec.structs import replace

from console.surface import build
from console.tenants import QUOTAS
from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.configuration.setting_sources import SettingInForce, SettingSource
from owlclaw_ray.domain.ledger import BreakKind, ChainBreak, ChainedRecord, LedgerKind, LedgerRecord
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.retention import Retention
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.domain.tool import Effect, Permission, ToolDefinition
from owlclaw_ray.domain.webhook import DeliveryStatus
from owlclaw_ray.errors import Problem, RuntimeUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, AgentId, KeyId, RecordId, RunId, TenantId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.runtime.api import Health, Runtime
from owlclaw_ray.telemetry.metrics.api import MetricFamily, Sample
from serve.api import build_api
from serve.server_facts import ServerFacts
from tests.console.conftest import Browser, issued, token_of
from tests.console.test_pages import HARMFUL, is_harmless
from tests.console.test_refused_forms import form_of
from tests.serve.double import CLUSTER, LOST, node_view

AT = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)


def recorded(runtime, number, kind=LedgerKind.TOOL_CALL, **data):
    record = LedgerRecord(
        RecordId(f"rec_{number}"),
        DEFAULT_TENANT,
        AgentId("assistant"),
        RunId("run_1"),
        kind,
        AT + timedelta(minutes=number),
        data,
    )
    runtime._ledger.append(ChainedRecord(record, "node-1", number, "0" * 64, f"{number:064x}"))


def rows(page):
    return re.findall(r'<tr id="([^"]+)"', page)


def next_of(page):
    return html.unescape(re.search(r'rel="next" href="([^"]+)"', page)[1])


async def test_the_ledger_is_read_from_its_end_in_pages_that_lead_to_earlier_ones(browser, runtime):
    for number in range(1, 121):
        recorded(runtime, number, tool="shop.reorder")

    first = (await browser.get("/console/ledger")).text
    assert rows(first) == [f"rec_{number}" for number in range(120, 70, -1)]
    recorded(runtime, 121, tool="shop.reorder")
    second = (await browser.get(next_of(first))).text
    assert rows(second) == [f"rec_{number}" for number in range(70, 20, -1)]
    last = (await browser.get(next_of(second))).text
    assert rows(last) == [f"rec_{number}" for number in range(20, 0, -1)]
    assert 'rel="next"' not in last


async def test_records_are_filtered_as_the_api_filters_them_and_the_address_keeps_it(browser, runtime):
    recorded(runtime, 1, tool="recall")
    recorded(runtime, 2, tool="shop.reorder", error={"type": "timeout", "message": "took too long"})
    recorded(runtime, 3, LedgerKind.ACCESS, what="key_created", by="key:1 (ada)")

    async def found(query):
        return rows((await browser.get(f"/console/ledger?{query}")).text)

    assert await found("kind=access") == ["rec_3"]
    assert await found("tool=recall&agent=&run=&since=&until=") == ["rec_1"]
    assert await found("since=2026-11-03T09:32&until=2026-11-03T09:33") == ["rec_2"]
    assert await found("since=2026-11-03T10:32:00%2B01:00") == ["rec_3", "rec_2"]
    assert await found("agent=assistant:b") == []
    page = (await browser.get("/console/ledger?kind=access&since=2026-11-03T09:32")).text
    assert '<option selected value="access">' in page
    assert 'name="since" value="2026-11-03T09:32:00"' in page
    everything = (await browser.get("/console/ledger")).text
    for text in ("key_created", "by <bdi>key:1 (ada)", "timeout: took too long"):
        assert text in everything
    for wrong in ("kind=nonsense", "since=yesterday", "after=x", "agent=NO", "unknown=1"):
        assert (await browser.get(f"/console/ledger?{wrong}")).status_code == 422


async def test_a_record_is_whole_with_its_place_in_the_chain(browser, runtime):
    recorded(runtime, 1, tool="recall")
    recorded(runtime, 2, tool="shop.reorder", arguments={"text": "看" * 10_000})

    page = (await browser.get("/console/ledger")).text
    assert f"{1:064x}" in page
    link = re.search(r'href="(/console/ledger/[^"]+)">show all', page)[1]
    whole = await browser.get(link)
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert "看" * 10_000 in whole.text
    assert '"position": 2' in whole.text
    for gone in ("nothing", link.rpartition("/")[2].replace(".2.", ".3."), "1.1.node-1"):
        assert (await browser.get(f"/console/ledger/{gone}")).status_code == 404


async def test_the_chains_are_verified_and_each_damage_is_named(browser, runtime):
    recorded(runtime, 1, tool="recall")
    sound = (await browser.get("/console/ledger/verification")).text
    assert "they hold" in sound

    problem = "the record says something else than it did"
    runtime.breaks = (ChainBreak(DEFAULT_TENANT, "node-1", 1, problem, BreakKind.CHANGED, RecordId("rec_1")),)
    broken = (await browser.get("/console/ledger/verification")).text
    for text in ("broken", problem, "changed", "rec_1"):
        assert text in broken
    assert "they hold" not in broken
    assert (await browser.get("/console/ledger/verification?tenant=nobody")).status_code == 404


async def test_a_key_for_some_agents_reads_their_records_alone_and_verifies_nothing(browser, runtime):
    recorded(runtime, 1, tool="recall")
    place = "1793698260000000.1.node-1"
    assert (await browser.get(f"/console/ledger/{place}")).status_code == 200
    await browser.sign_in(await issued(runtime, "viewer", agents=("agent:patient",)))

    assert "Your key is for some agents" in (await browser.get("/console/ledger")).text
    assert (await browser.get("/console/ledger?agent=assistant")).status_code == 403
    assert (await browser.get("/console/ledger?agent=patient")).status_code == 200
    assert (await browser.get(f"/console/ledger/{place}")).status_code == 403
    assert (await browser.get("/console/ledger/verification")).status_code == 403


async def test_webhooks_that_came_in_are_shown_with_what_became_of_them_and_mapped_again(browser, runtime):
    page = (await browser.get("/console/webhooks")).text
    assert rows(page) == ["whd_2", "whd_1"]
    assert "the body has nothing at" in page
    assert "/v1/webhooks/github" in page
    assert "Secret to Everybody" not in page
    assert rows((await browser.get("/console/webhooks?status=unmapped&source=github")).text) == ["whd_2"]
    assert (await browser.get("/console/webhooks?status=nonsense")).status_code == 422

    detail = (await browser.get("/console/webhooks/deliveries/whd_2")).text
    for text in ("价格", "x-github-event", "Map it again"):
        assert text in detail
    path = "/console/webhooks/deliveries/whd_2"
    done = await browser.fill(path, f"{path}/redelivery")
    assert (done.status_code, done.headers["location"]) == (303, path)
    delivery = await runtime.inbox.delivery(DEFAULT_TENANT, "whd_2")
    assert (delivery.status, len(runtime._runs)) == (DeliveryStatus.TRIGGERED, 1)
    assert "Map it again" not in (await browser.get(path)).text
    assert (await browser.fill("/console/agents/assistant", f"{path}/redelivery")).status_code == 409
    assert (await browser.get("/console/webhooks/deliveries/nothing")).status_code == 404
    assert (await browser.get(f"{path}/body")).text == '{"zen": "价格"}'
    assert f'href="{path}/body">plain' in detail


async def test_a_webhook_is_shown_however_deep_its_body_is_and_with_the_numbers_that_it_has(browser, runtime):
    store = runtime.inbox._store
    body = '{"order": 123456789012345678901, "deep": ' + "[" * 300 + "]" * 300 + "}"
    event = {"deep": json.loads("[" * 300 + "]" * 300)}
    store._deliveries["whd_2"] = replace(store._deliveries["whd_2"], body=body, event=event)

    page = await browser.get("/console/webhooks/deliveries/whd_2")

    assert page.status_code == 200
    assert "123456789012345678901" in page.text


@pytest.mark.parametrize(
    ("path", "newest", "older"),
    [
        ("/console/webhooks?source=github", "whd_2", "whd_1"),
        ("/console/webhooks/callbacks?agent=assistant", "cb_2", "cb_1"),
    ],
)
async def test_webhooks_and_callbacks_lead_on_to_earlier_ones_with_their_filter(
    browser, monkeypatch, path, newest, older
):
    monkeypatch.setattr("console.webhooks.PAGE", 1)

    first = (await browser.get(path)).text
    assert rows(first) == [newest]
    following = html.unescape(re.search(r'rel="next" href="([^"]+)"', first)[1])
    assert following == f"{path}&before={newest}"

    last = (await browser.get(following)).text
    assert rows(last) == [older]
    assert 'rel="next"' not in last
    assert f'<a href="{path}">Newest</a>' in last
    assert (await browser.get(f"{path}&before=nothing")).status_code == 404


async def test_callbacks_are_shown_with_their_problem_and_sent_again(browser, runtime):
    page = (await browser.get("/console/webhooks/callbacks")).text
    assert rows(page) == ["cb_2", "cb_1"]
    assert "the receiver answered 503" in page
    assert re.findall(r'action="(/console/webhooks/callbacks/[^"]+)"', page) == [
        "/console/webhooks/callbacks/cb_2/redelivery"
    ]
    assert rows((await browser.get("/console/webhooks/callbacks?status=dead&run=run_2")).text) == ["cb_2"]

    done = await browser.fill("/console/webhooks/callbacks", "/console/webhooks/callbacks/cb_2/redelivery")
    assert (done.status_code, done.headers["location"]) == (303, "/console/webhooks/callbacks?run=run_2&did=again")
    assert "The callback is sent again" in (await browser.get(done.headers["location"])).text
    assert "The callback is sent again" not in (await browser.get("/console/webhooks/callbacks?run=run_2")).text
    assert (await runtime.outbox.callback(DEFAULT_TENANT, "cb_2")).status.value == "pending"
    waiting = await browser.fill("/console/agents/assistant", "/console/webhooks/callbacks/cb_1/redelivery")
    assert waiting.status_code == 409


async def test_a_key_is_told_once_in_the_answer_to_its_form_and_is_in_no_address(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    fields = {"name": "ci", "scopes": ["viewer", "runs:write"], "agents": "agent:trader:*", "days": "7"}
    made = await browser.fill("/console/keys", "/console/keys", **fields, starts_a_minute="60", running_runs="1500")

    text = re.search(r'id="issued-key">(owl_\w+)<', made.text)[1]
    key = await runtime.keys.key(DEFAULT_TENANT, KeyId(text.split("_")[1]))
    assert (key.name, key.patterns, key.starts_a_minute) == ("ci", ("agent:trader:*",), 60)
    assert (key.running_runs, key.open_runs) == (1500, None)
    page = (await browser.get("/console/keys")).text
    assert ("60 runs a minute" in page, "1,500 running at once" in page) == (True, True)
    assert "runs:write" in key.scopes
    assert (key.expires_at - key.created_at).days == 7
    assert made.status_code == 200
    assert made.headers["cache-control"] == "no-store"
    assert text not in str(made.headers)
    assert text not in (await browser.get("/console/keys")).text
    async with Browser(browser._transport.app) as other:
        assert (await other.sign_in(text)).status_code == 303


async def test_a_key_is_rotated_with_a_grace_and_revoked(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    old = await issued(runtime, "viewer")
    key_id = KeyId(old.split("_")[1])
    path = f"/console/keys/{key_id}"

    rotated = await browser.fill("/console/keys", f"{path}/rotate", grace_hours="1.5")
    new = re.search(r'id="issued-key">(owl_\w+)<', rotated.text)[1]
    assert new != old
    assert rotated.headers["cache-control"] == "no-store"
    key = await runtime.keys.key(DEFAULT_TENANT, key_id)
    assert timedelta(hours=1.4) < key.previous_until - runtime._clock.now() <= timedelta(hours=1.5)

    revoked = await browser.fill("/console/keys", f"{path}/revoke")
    assert (revoked.status_code, revoked.headers["location"]) == (303, "/console/keys")
    assert (await runtime.keys.key(DEFAULT_TENANT, key_id)).revoked_at is not None
    assert ">revoked<" in (await browser.get("/console/keys")).text
    assert (await browser.fill("/console/keys", f"{path}/rotate")).status_code == 409
    assert (await browser.fill("/console/keys", "/console/keys/nothing/revoke")).status_code == 404


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"name": "", "scopes": "viewer"}, "name"),
        ({"name": "ci"}, "scopes"),
        ({"name": "ci", "scopes": "everything"}, "scopes"),
        ({"name": "ci", "scopes": "viewer", "days": "soon"}, "days"),
        ({"name": "ci", "scopes": "viewer", "days": "nan"}, "days"),
        ({"name": "ci", "scopes": "viewer", "agents": "trader"}, "agents"),
    ],
)
async def test_a_key_that_cannot_be_is_refused_with_why(browser, runtime, fields, what):
    await browser.sign_in(await issued(runtime, "admin"))
    before = len(await runtime.keys.keys(DEFAULT_TENANT))

    refused = await browser.fill("/console/keys", "/console/keys", **fields)

    assert (refused.status_code, what in refused.text) == (422, True)
    assert len(await runtime.keys.keys(DEFAULT_TENANT)) == before


async def test_nobody_makes_a_key_that_can_do_more_than_his_own(browser, runtime):
    await browser.sign_in(await issued(runtime, "keys:admin", "viewer"))

    refused = await browser.fill("/console/keys", "/console/keys", name="more", scopes="admin")

    assert refused.status_code == 403
    assert len(await runtime.keys.keys(DEFAULT_TENANT)) == 1


async def test_a_tenant_is_made_changed_suspended_and_let_go_on(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    made = await browser.fill("/console/tenants", "/console/tenants", tenant="acme", open_runs="50", weight="2")
    assert (made.status_code, made.headers["location"]) == (303, "/console/tenants/acme")
    page = (await browser.get("/console/tenants/acme")).text
    assert 'Open runs</td><td class="num" data-label="used">0</td><td class="num" data-label="limit">50<' in page
    assert "acme" in (await browser.get("/console/tenants")).text

    path = "/console/tenants/acme"
    fields = {"name": "Acme 公司", "weight": "5", "open_runs": "", "agents": "7"}
    saved = await browser.fill(path, path, **fields)
    assert (saved.status_code, saved.headers["location"]) == (303, f"{path}?did=saved")
    tenant = await runtime.tenants.tenant(TenantId("acme"))
    assert (tenant.name, tenant.weight, tenant.quotas.given) == ("Acme 公司", 5, {"agents": 7})
    for status in (TenantStatus.SUSPENDED, TenantStatus.ACTIVE):
        await browser.fill(path, f"{path}/status", status=status.value)
        assert (await runtime.tenants.tenant(TenantId("acme"))).status is status
    for wrong in ({"weight": "0"}, {"weight": "many"}, {"open_runs": "-1"}, {"open_runs": "some"}):
        assert (await browser.fill(path, path, **wrong)).status_code == 422
    assert (await browser.fill(path, f"{path}/status", status="deleted")).status_code == 422
    assert (await browser.fill("/console/tenants", "/console/tenants", tenant="acme")).status_code == 409
    assert (await browser.get("/console/tenants/nobody")).status_code == 404


async def test_each_quota_that_a_tenant_can_have_is_on_its_page_and_in_the_list(browser, runtime):
    given = Quotas(*range(11, 11 + len(Quotas.__struct_fields__)))
    await runtime.tenants.create(LOCAL, "acme", quotas=given)
    await browser.sign_in(await issued(runtime, "admin"))

    page, listed = (await browser.get("/console/tenants/acme")).text, await browser.get("/console/tenants")

    assert listed.status_code == 200
    for name in Quotas.__struct_fields__:
        assert re.search(rf'<input[^>]*name="{name}"[^>]*value="{getattr(given, name)}"', page), name
    assert set(QUOTAS) == set(Quotas.__struct_fields__)


def seen_on(page, action):
    """What a page says that its form for a path was made of."""
    return re.search(rf'action="{re.escape(action)}".*?name="seen" value="(\w+)"', page, re.DOTALL)[1]


async def test_a_form_of_what_somebody_changed_meanwhile_changes_nothing_of_the_tenant(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    await runtime.tenants.create(LOCAL, "acme")
    path = "/console/tenants/acme"
    seen = seen_on((await browser.get(path)).text, path)

    first = await browser.fill(path, path, name="acme", weight="1", open_runs="10", seen=seen)
    second = await browser.fill(path, path, name="acme", weight="1", agents="5", seen=seen)

    assert (first.status_code, second.status_code) == (303, 409)
    assert "was changed meanwhile" in second.text
    assert (await runtime.tenants.tenant(TenantId("acme"))).quotas == Quotas(open_runs=10)
    again = seen_on(second.text, path)
    assert (await browser.fill(path, path, name="acme", weight="1", agents="5", seen=again)).status_code == 303
    assert (await runtime.tenants.tenant(TenantId("acme"))).quotas == Quotas(agents=5)


async def test_a_form_that_is_sent_twice_rotates_a_key_once(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    old = await issued(runtime, "viewer")
    path = f"/console/keys/{old.split('_')[1]}/rotate"
    seen = seen_on((await browser.get("/console/keys")).text, path)

    first, second = [await browser.fill("/console/keys", path, grace_hours="24", seen=seen) for _ in range(2)]

    assert (first.status_code, second.status_code) == (200, 409)
    assert "issued-key" not in second.text
    async with Browser(browser._transport.app) as other:
        assert (await other.sign_in(old)).status_code == 303
    assert "ends with this" in (await browser.get("/console/keys")).text


async def test_for_how_long_a_tenant_keeps_things_and_where_its_callbacks_go_is_shown_and_changed(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    await runtime.tenants.create(LOCAL, "acme")
    path = "/console/tenants/acme"

    assert (await browser.get(path)).text.count("as the settings say</span>") == len(Retention.__struct_fields__)
    for networks, stored, shown in (
        (
            "10.1.0.0/16\r\nfd00::/8",
            ("10.1.0.0/16", "fd00::/8"),
            "public addresses, <code>10.1.0.0/16</code>, <code>fd00::/8</code>",
        ),
        ("public", (), "public addresses alone"),
        ("", None, "where the settings say"),
    ):
        await browser.fill(path, path, run_days="1", artifact_days="0", memory_days="0.5", callback_networks=networks)
        tenant = await runtime.tenants.tenant(TenantId("acme"))
        page = (await browser.get(path)).text

        assert tenant.retention.given == {"run_days": 1, "artifact_days": 0, "memory_days": 0.5}
        assert tenant.callback_networks == stored
        assert shown in page
        assert "<dt>Runs that are over</dt><dd>1 day</dd>" in page
        assert "<dt>Artifacts</dt><dd>for ever</dd>" in page
        assert "<dt>Memories</dt><dd>0.5 days</dd>" in page
        filled = form_of(page, path)[0]
        assert (filled["run_days"], filled["webhook_days"], filled["callback_networks"].split()) == (
            "1",
            "",
            networks.split(),
        )
    for wrong in ({"run_days": "-1"}, {"run_days": "some"}, {"callback_networks": "10.1.0.0/33"}):
        assert (await browser.fill(path, path, **wrong)).status_code == 422
    assert (await runtime.tenants.tenant(TenantId("acme"))).retention.run_days == 1


async def test_whoever_changes_something_else_of_a_tenant_leaves_it_what_it_keeps_to_the_last_digit(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    await runtime.tenants.create(LOCAL, "acme")
    kept = {"run_days": 1 / 24, "webhook_days": 1_000.125, "memory_days": 30.0}
    await runtime.tenants.change(LOCAL, TenantId("acme"), TenantChange(retention=kept))
    path = "/console/tenants/acme"
    filled, _ = form_of((await browser.get(path)).text, path)

    assert (await browser.send_form(path, **{**filled, "name": "Acme & Sons"})).status_code == 303

    tenant = await runtime.tenants.tenant(TenantId("acme"))
    assert (tenant.name, tenant.retention.given) == ("Acme & Sons", kept)
    assert filled["memory_days"] == "30"


@pytest.mark.parametrize("number", ["1e308", "9223372036854775808", "-1e19", "nan"])
async def test_a_number_that_is_too_large_is_refused_as_one(browser, runtime, number):
    refused = await browser.fill("/console/keys", "/console/keys", name="ci", scopes="viewer", days=number)

    assert refused.status_code == 422
    assert "days" in refused.text


async def test_a_tenant_is_deleted_only_when_it_is_suspended_and_its_id_is_typed(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    await runtime.tenants.create(LOCAL, "acme")
    path = "/console/tenants/acme"
    assert "Delete it" not in (await browser.get(path)).text
    early = await browser.fill(path, f"{path}/deletion", typed="acme")
    assert early.status_code == 409
    await browser.fill(path, f"{path}/status", status="suspended")

    for wrong in ("", "Acme", "acme2"):
        refused = await browser.fill(path, f"{path}/deletion", typed=wrong)
        assert (refused.status_code, "nothing was deleted" in refused.text) == (422, True)
    assert (await runtime.tenants.tenant(TenantId("acme"))).status is TenantStatus.SUSPENDED
    done = await browser.fill(path, f"{path}/deletion", typed="acme")
    assert (done.status_code, done.headers["location"]) == (303, path)
    page = (await browser.get(path)).text
    assert "Being deleted since" in page
    assert "Change it" not in page


TOOL = ToolDefinition(
    "shop.refund",
    "Pay money back.",
    {"type": "object", "properties": {"order": {"type": "string"}}},
    Permission.WRITE,
    Effect.ONCE,
    tags=frozenset({"dangerous"}),
)
SETTINGS = (
    SettingInForce("model", "scripted:echo", SettingSource.DEFAULT, ""),
    SettingInForce("http.port", 9000, SettingSource.FILE, "owlclaw.yaml:3"),
    SettingInForce("http.insecure", value=True, source=SettingSource.VARIABLE, where="OWLCLAW_HTTP__INSECURE"),
    SettingInForce("budgets[0].name", "day", SettingSource.FILE, "owlclaw.yaml:9"),
)


@pytest.fixture
async def informed(runtime):
    """A browser of a server that knows what it was started with."""
    facts = ServerFacts(SETTINGS, (TOOL,), (Problem("agents/cashier", "has no script", "write one"),))
    api = build_api(
        cast("Runtime", runtime), clock=SystemClock(), body_limit_bytes=10_000, surfaces=[build], facts=facts
    )
    async with Browser(api) as found:
        yield found


async def test_tools_are_shown_as_agents_know_them_with_calls_and_failures(informed, runtime, monkeypatch):
    def counted(name, value, **labels):
        return Sample(name, (("tool", "shop.refund"), *labels.items()), value)

    calls = [
        counted("owlclaw_tool_calls_total", value, node=node, error=error)
        for node, error, value in (("a", "ok", 40.0), ("a", "timeout", 1.0), ("b", "timeout", 1.0))
    ]
    seconds = [counted("owlclaw_tool_call_seconds_sum", value, node=node) for node, value in (("a", 20.0), ("b", 1.0))]

    async def families():
        return [
            MetricFamily("owlclaw_tool_calls", "counter", "", calls),
            MetricFamily("owlclaw_tool_call_seconds", "histogram", "", seconds),
        ]

    monkeypatch.setattr(runtime, "metrics", families)
    page = (await informed.get("/console/tools")).text

    for text in ("Pay money back.", "another action", "500 ms", "&#34;order&#34;"):
        assert text in page, text
    cells = re.findall(r'<td class="num[^>]*data-label="(?:calls|failed)">(.*?)</td>', page, re.DOTALL)
    records = '<a href="/console/ledger?kind=tool_call&amp;tool=shop.refund">'
    assert [each.startswith(records) for each in cells[:2]] == [True, True]
    told = [" ".join(re.sub(r"<[^>]+>", " ", each).split()) for each in cells[:2]]
    assert told == ["42 calls of shop.refund", "2 failed calls of shop.refund timeout : 2"]
    for text in ("mcp.files.read", "its schema has oneOf", "ConnectError: refused", "https://example.com/mcp"):
        assert text in page, text
    for asked, matches in (("nothing", False), ("REFUND", True), ("money", True)):
        assert ("No tool matches" not in (await informed.get(f"/console/tools?q={asked}")).text) is matches, asked

    async def gone():
        raise RuntimeUnavailableError("the pool is not there")

    monkeypatch.setattr(runtime, "mcp_servers", gone)
    assert "the pool is not there" in (await informed.get("/console/tools")).text


async def test_settings_are_shown_with_where_each_comes_from(informed):
    page = (await informed.get("/console/settings")).text

    cells = re.findall(
        r"<code>([\w.\[\]]+)</code></td><td class=\"l-what\">(.*?)</td><td class=\"l-from\">(.*?)</td>", page
    )
    plain = [tuple(re.sub(r"<[^>]+>", "", each) for each in row) for row in cells]
    assert plain == [
        ("model", "scripted:echo", "default"),
        ("budgets[0].name", "day", "owlclaw.yaml:9"),
        ("http.port", "9000", "owlclaw.yaml:3"),
        ("http.insecure", "yes", "OWLCLAW_HTTP__INSECURE"),
    ]
    of_variables = (await informed.get("/console/settings?source=variable")).text
    assert "http.insecure" in of_variables
    assert "http.port" not in of_variables
    assert (await informed.get("/console/settings?source=nowhere")).status_code == 422


async def test_findings_are_those_of_parts_nodes_and_the_start(informed, runtime):
    runtime.healthy = Health(ready=False, parts={"keeper": "no answer within 3 s", "directory": "ok"})
    runtime.cluster = replace(CLUSTER, nodes=(node_view(), node_view("beta", **LOST)))

    page = (await informed.get("/console/settings")).text

    for text in ("no answer within 3 s", "was lost: missed heartbeats", "has no script", "→ write one"):
        assert text in page, text
    runtime.healthy = Health(ready=True, parts={"keeper": "ok"})
    assert "no answer within" not in (await informed.get("/console/settings")).text


async def test_who_shares_the_runtime_sees_none_of_what_operators_see(browser, runtime):
    await runtime.tenants.create(LOCAL, "acme")
    asked = {"name": "acme", "scopes": "admin", "tenant": "acme"}
    await browser.sign_in(await issued(runtime, "admin"))
    made = await browser.fill("/console/keys", "/console/keys", **asked)
    await browser.sign_in(re.search(r'id="issued-key">(owl_\w+)<', made.text)[1])

    for path in ("settings", "tools", "tenants", "tenants/acme", "ledger/verification?tenant=default"):
        assert (await browser.get(f"/console/{path}")).status_code == 403, path
    page = await browser.get("/console/keys")
    assert page.status_code == 200
    assert 'href="/console/settings"' not in page.text
    assert rows(page.text) == [f"key-{made.text.split('owl_')[1].split('_')[0]}"]


@pytest.mark.parametrize(
    ("scopes", "place"),
    [(("keys:read",), "keys"), (("tenants:read",), "tenants"), (("keys:read", "tenants:read"), "keys")],
)
async def test_access_leads_to_the_first_part_of_it_that_a_key_may_see(browser, runtime, scopes, place):
    await issued(runtime, "admin")
    await browser.sign_in(await issued(runtime, *scopes))

    page = (await browser.get(f"/console/{place}")).text

    assert re.findall(r'<nav aria-label="Console">\s*<a href="([^"]+)" aria-current="page">Access', page) == [
        f"/console/{place}"
    ]
    assert ("Tenants</a>" in page) == (len(scopes) == 2)


async def test_what_a_key_may_not_do_is_not_offered_to_it(browser, runtime):
    await runtime.tenants.create(LOCAL, "acme")
    await issued(runtime, "admin")
    reads = ("webhooks:read", "ledger:read", "keys:read", "tenants:read", "system:read")
    await browser.sign_in(await issued(runtime, *reads))

    for path in (
        "webhooks",
        "webhooks/deliveries/whd_2",
        "webhooks/callbacks",
        "ledger",
        "keys",
        "tenants",
        "tenants/acme",
    ):
        page = (await browser.get(f"/console/{path}")).text
        assert set(re.findall(r'method="post" action="([^"]+)"', page)) == {"/console/sign-out"}, path
        assert "/console/agents/" not in page, path
        assert "/console/runs/" not in page, path


@HARMFUL
async def test_whatever_is_in_a_field_of_these_pages_is_shown_as_text(runtime, hostile):
    tool = ToolDefinition(
        hostile, hostile, {hostile: hostile}, Permission.WRITE, Effect.ONCE, tags=frozenset({hostile})
    )
    settings = (SettingInForce(hostile, {hostile: [hostile]}, SettingSource.VARIABLE, hostile),)
    facts = ServerFacts(settings, (tool,), (Problem(hostile, hostile, hostile),))
    runtime.healthy = Health(ready=False, parts={hostile: hostile})
    runtime.breaks = (ChainBreak(DEFAULT_TENANT, hostile, 1, hostile, BreakKind.CHANGED, RecordId(hostile)),)
    store = runtime.inbox._store
    first, second = store._deliveries["whd_1"], store._deliveries["whd_2"]
    store._deliveries["whd_1"] = replace(first, source=hostile, reason=hostile)
    store._deliveries["whd_2"] = replace(
        second, source=hostile, headers={hostile: hostile}, body=hostile, event={hostile: hostile}
    )
    callback = store._callbacks["cb_2"]
    store._callbacks["cb_2"] = replace(callback, url=f"https://x/{hostile}", problem=hostile, run_id=RunId(hostile))
    for number, kind in enumerate(LedgerKind, start=1):
        told = dict.fromkeys(("what", "tool", "model", "status", "reasoning", "by"), hostile)
        recorded(runtime, number, kind, **told, error={"type": hostile, "message": hostile})
    await runtime.tenants.create(LOCAL, "acme", "<b>&amp;' \" {{ 7*7 }}")
    await runtime.keys.create(LOCAL, KeyRequest("<img src=x onerror=alert(1)>", ("viewer",), ()))
    api = build_api(
        cast("Runtime", runtime), clock=SystemClock(), body_limit_bytes=10_000, surfaces=[build], facts=facts
    )
    async with Browser(api) as browser:
        key = await issued(runtime, "admin")
        await browser.sign_in(key)
        for path in (
            "webhooks", "webhooks/deliveries/whd_1", "webhooks/deliveries/whd_2", "webhooks/callbacks", "ledger",
            "ledger/verification", "tools", "keys", "tenants", "tenants/acme", "settings", "keys?tenant=%22%3E%3Cscript%3E",
            "ledger?agent=%3Cscript%3E", "webhooks?source=%3Cscript%3E", "tools?q=%22%3E%3Cscript%3E", "keys/x",
        ):  # fmt: skip
            page = await browser.get(f"/console/{path}")
            is_harmless(page, path)
            assert "<b>&amp;'" not in page.text
        refused = await browser.send_form(
            "/console/keys", token=token_of((await browser.get("/console/keys")).text), name=hostile, scopes=hostile
        )
        is_harmless(refused, "refused")
