"""A form that is refused comes back on its page, with what was typed and with what is wrong."""

from __future__ import annotations

import html
import re

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.errors import QueueFullError, StoreUnavailableError
from tests.console.conftest import issued, token_of
from tests.console.test_access import FORMS
from tests.console.test_pages import triggered


def form_of(page, action):
    """What the form with that action has in its fields, and what it says is wrong."""
    inside = re.search(rf'<form [^>]*method="post" action="{re.escape(action)}"[^>]*>(.*?)</form>', page, re.DOTALL)[1]
    fields = {}
    for tag in re.findall(r"<input [^>]*>", inside):
        name, value = (re.search(rf' {each}="([^"]*)"', tag) for each in ("name", "value"))
        if 'type="checkbox"' not in tag:
            fields[name[1]] = html.unescape(value[1]) if value else ""
        elif " checked" in tag:
            fields.setdefault(name[1], []).append(html.unescape(value[1]))
    fields |= {name: html.unescape(text) for name, text in re.findall(r'<textarea name="(\w+)"[^>]*>([^<]*)<', inside)}
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', inside):
        fields[name] = re.findall(r'<option value="(\w+)" selected', options)
    wrong = re.search(r'<div class="notice bad" role="alert">(.*?)</div>', inside, re.DOTALL)
    return fields, re.sub(r"<[^>]+>", "", html.unescape(wrong[1])) if wrong else ""


def closed_around(page):
    """The parts of a page that are closed and have in them what is wrong."""
    around = []
    for tag in re.findall(r"<details[^>]*>|</details>", page.partition('role="alert"')[0]):
        if tag == "</details>":
            around.pop()
        else:
            around.append(tag)
    return [each for each in around if " open" not in each]


@pytest.mark.parametrize(
    ("place", "typed", "wrong"),
    [
        (
            ("agents/assistant", "agents/assistant/triggers"),
            {"focus": 'a "quoted" focus', "payload": "{1"},
            "payload is not JSON",
        ),
        (
            ("agents/assistant", "agents/assistant/triggers"),
            {"focus": "look", "payload": '{"a": [NaN]}'},
            "payload.a[0]",
        ),
        (("agents/patient%3Aa", "agents/patient%3Aa/triggers"), {"focus": "x" * 501, "payload": ""}, "focus"),
        (
            ("schedules/new", "schedules"),
            {
                "agent": "assistant",
                "focus": "look",
                "cron": "61 * * * *",
                "minutes": "",
                "at": "",
                "timezone": "Asia/Shanghai",
                "jitter_seconds": "3",
                "catch_up_seconds": "60",
                "task_type": "t",
                "overlap": ["skip"],
            },
            "cron",
        ),
        (("schedules/new", "schedules"), {"agent": "nobody", "focus": "look", "minutes": "15"}, "nobody"),
        (("agents/assistant/memories", "agents/assistant/memories"), {"content": " ", "tags": "a, b"}, "content"),
        (
            ("keys", "keys"),
            {
                "name": "ci",
                "tenant": "acme",
                "scopes": ["viewer", "runs:write"],
                "agents": "trader",
                "days": "7",
                "starts_a_minute": "3",
            },
            "agents",
        ),
        (("keys", "keys"), {"name": "ci", "days": "soon"}, "days"),
        (("tenants", "tenants"), {"tenant": "Acme!", "name": "Acme", "weight": "2", "agents": "7"}, "tenant"),
        (("tenants/made", "tenants/made"), {"name": "Made", "weight": "0", "memories": "9"}, "weight"),
        (("tenants/stopped", "tenants/stopped/deletion"), {"typed": "stoped"}, "type stopped"),
    ],
)
async def test_what_was_typed_comes_back_with_what_is_wrong(browser, runtime, place, typed, wrong):
    page, action = place
    await browser.sign_in(await issued(runtime, "admin"))
    await triggered(runtime, "patient:a")
    for tenant in ("made", "stopped"):
        await runtime.tenants.create(LOCAL, tenant)
    await browser.fill("/console/tenants/stopped", "/console/tenants/stopped/status", status="suspended")
    path = f"/console/{action}"
    assert form_of((await browser.get(f"/console/{page}")).text, path)[1] == ""

    refused = await browser.fill(f"/console/{page}", path, **typed)
    fields, said = form_of(refused.text, path)

    assert refused.status_code in {404, 422}
    assert {name: fields.get(name) for name in typed} == typed
    assert "nothing has changed" in said
    assert wrong in said
    assert closed_around(refused.text) == []


async def test_a_form_that_came_back_is_sent_again_from_where_it_is(browser, runtime):
    page = "/console/agents/assistant"
    refused = await browser.fill(page, f"{page}/triggers", focus="look", payload="{1")

    sent = await browser.send_form(f"{page}/triggers", token=token_of(refused.text), focus="look", payload="{}")

    assert (sent.status_code, len(runtime._runs)) == (303, 1)


async def test_of_a_memory_that_somebody_changed_the_form_comes_back_beside_what_it_says_now(browser, runtime):
    page, ref = "/console/agents/assistant/memories", AgentRef.parse("assistant")
    memory = await runtime.memory.remember(ref, "at nine", ("load",))
    path = f"{page}/{memory.memory_id}"
    seen = form_of((await browser.get(page)).text, path)[0]["seen"]
    await runtime.memory.edit(ref, memory.memory_id, "at ten", None, by="")

    refused = await browser.fill(page, path, seen=seen, content="at eleven", tags="load")
    fields, said = form_of(refused.text, path)

    assert refused.status_code == 409
    assert (fields["content"], "(content)" in said) == ("at eleven", True)
    assert ">at ten<" in refused.text
    again = {name: value for name, value in fields.items() if name != "token"}
    assert (await browser.fill(page, path, **again)).status_code == 303
    assert runtime.memory.active[ref][0].content == "at eleven"


async def test_the_first_trigger_comes_back_and_says_when_to_try_again(browser, runtime):
    runtime.refusal = QueueFullError("patient", 3)
    refused = await browser.fill("/console/runs", "/console/triggers", agent="patient", focus="first")

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    fields, said = form_of(refused.text, "/console/triggers")
    assert (fields["focus"], "queue full" in said) == ("first", True)
    assert "<option selected>patient</option>" in refused.text


async def test_a_key_that_cannot_be_rotated_says_so_on_the_page_of_keys(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    key_id = (await issued(runtime, "viewer")).split("_")[1]
    path = f"/console/keys/{key_id}/rotate"

    refused = await browser.fill("/console/keys", path, grace_hours="9999")

    assert refused.status_code == 422
    assert f'<tr id="key-{key_id}">' in refused.text
    assert form_of(refused.text, path)[0]["grace_hours"] == "9999"
    assert refused.text.count("This was not accepted") == 1
    fields, said = form_of(refused.text, "/console/keys")
    assert (fields["name"], said) == ("", ""), "the other form of the page is as it was"
    assert fields["days"] != ""


async def test_who_may_not_see_the_page_of_a_form_gets_a_page_with_what_is_wrong(browser, runtime):
    await browser.sign_in(await issued(runtime, "runs:write"))

    refused = await browser.fill("/console/runs", "/console/agents/assistant/triggers", payload="{1")

    assert (refused.status_code, "write JSON" in refused.text) == (422, True)
    assert 'name="payload"' not in refused.text


async def test_a_failure_of_the_server_is_no_fault_of_the_form(browser, runtime):
    runtime.refusal = StoreUnavailableError("the disk is full")
    page = "/console/agents/assistant"

    failed = await browser.fill(page, f"{page}/triggers", focus="look")

    assert failed.status_code == 503
    assert "nothing has changed" not in failed.text


@pytest.mark.parametrize(
    ("sent_to", "page"),
    [
        ("agents/patient%3Aa/triggers", "agents/patient%3Aa"),
        ("approvals/apr_1/decision", "approvals/apr_1"),
        ("agents/assistant/memories/mem_1/archive", "agents/assistant/memories/mem_1"),
        ("keys/k1/rotate", "keys"),
        ("webhooks/callbacks/cb_2/redelivery", "webhooks/callbacks"),
        ("fleet/nodes/id-of-alpha/undrain", "fleet"),
        ("triggers", ""),
    ],
)
async def test_the_address_of_a_form_leads_to_a_page_when_it_is_opened(browser, sent_to, page):
    opened = await browser.get(f"/console/{sent_to}")

    assert (opened.status_code, opened.headers["location"]) == (303, f"/console/{page}".rstrip("/"))
    asked = await browser.get(f"/console/{sent_to}", headers={"Accept": "application/json"})
    assert asked.status_code == 405
    assert (await browser.send_form("/console/runs")).status_code == 405


async def test_every_address_of_a_form_leads_to_a_page(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    for operation, _ in FORMS:
        opened = await browser.get(re.sub(r"\{\w+\}", "some", operation.split()[1]))
        assert opened.status_code != 405, operation
