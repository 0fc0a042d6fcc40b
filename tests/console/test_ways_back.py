"""Where forms lead back to, pages of long lists, and what asks before it is done."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from urllib.parse import quote

from msgspec.structs import replace

from console import approvals as inbox
from console import keys, memories
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.run import RunStatus
from tests.console.conftest import issued
from tests.console.test_pages import change, triggered


def hidden(page, name):
    return html.unescape(re.search(rf'name="{name}" value="([^"]*)"', page)[1])


async def test_the_inbox_shows_what_expires_first_and_leads_on_to_the_rest(browser, runtime, monkeypatch):
    monkeypatch.setattr(inbox, "PAGE", 2)
    now = runtime._clock.now()
    for hours in (5, 1, 3):
        runtime.request_approval(expires_at=now + timedelta(hours=hours))

    first = (await browser.get("/console/approvals")).text
    following = html.unescape(re.search(r'rel="next" href="([^"]+)"', first)[1])
    second = (await browser.get(following)).text

    cards = r'<article class="card ask" id="([^"]+)"'
    assert re.findall(cards, first) == ["apr_2", "apr_3"]
    assert re.findall(cards, second) == ["apr_1"]
    assert 'rel="next"' not in second


async def test_a_narrowed_approver_comes_back_to_the_inbox_of_the_agent_and_is_told_what_was_decided(browser, runtime):
    approval = runtime.request_approval("patient").request
    await browser.sign_in(await issued(runtime, "approver", agents=("agent:patient",)))
    page = (await browser.get("/console/approvals?agent=patient")).text
    form = {"decision": "deny", "token": hidden(page, "token")}

    for back in (hidden(page, "back"), ""):
        decided = await browser.send_form(f"/console/approvals/{approval.approval_id}/decision", **form, back=back)
        assert decided.headers["location"] == f"/console/approvals?agent=patient&did={approval.approval_id}"
    shown = (await browser.get(decided.headers["location"])).text
    assert "Your key is for some agents" not in shown
    assert re.search(r'role="status"><bdi>mail.send</bdi> of <bdi>patient</bdi>: .*denied', shown)


async def test_a_form_leads_back_to_no_page_of_others(browser, runtime):
    approval = runtime.request_approval().request
    page = (await browser.get("/console/approvals")).text
    path = f"/console/approvals/{approval.approval_id}/decision"
    form = {"decision": "deny", "token": hidden(page, "token"), "back": "https://example.com/console"}

    decided = await browser.send_form(path, **form)

    assert decided.headers["location"] == f"/console/approvals?did={approval.approval_id}"


async def test_runs_that_are_chosen_lead_back_to_the_list_as_it_was_filtered(browser, runtime):
    run = await triggered(runtime, "patient", "nightly")
    listed = "/console/runs?agent=patient&text=nightly"
    back = hidden((await browser.get(listed)).text, "back")
    page = (await browser.get(f"/console/runs/selection?action=cancel&run={run.run_id}&back={quote(back)}")).text
    assert f'href="{html.escape(listed)}">Leave them' in page
    fields = {"token": hidden(page, "token"), "back": hidden(page, "back"), "action": "cancel", "run": run.run_id}

    done = await browser.send_form("/console/runs/selection", **fields)

    assert done.headers["location"] == f"{listed}&did=cancel-1"


async def test_agents_are_found_by_the_beginning_of_their_names_and_by_what_they_have_to_do(browser, runtime):
    await triggered(runtime, "patient:a")
    over = await triggered(runtime, "patient:b")
    change(runtime, over.run_id, status=RunStatus.COMPLETED)

    async def found(asked):
        return re.findall(r'id="agent-([^"]+)"', (await browser.get(f"/console/agents?{asked}")).text)

    assert await found("name=patient:") == ["patient:a", "patient:b"]
    assert await found("busy=yes") == ["patient:a"]
    assert await found("busy=yes&name=x") == []


async def test_a_narrowed_key_finds_its_agents_among_any_number_of_others_in_pages_that_name_none_of_them(
    browser, runtime, monkeypatch
):
    monkeypatch.setattr("console.agents.PAGE", 2)
    for number in range(120):
        await triggered(runtime, f"assistant:{number}")
    for name in ("assistant:mine", "patient:a", "patient:b", "patient:c"):
        await triggered(runtime, name)
    await browser.sign_in(await issued(runtime, "viewer", agents=("agent:patient:*", "agent:assistant:mine")))

    first = (await browser.get("/console/agents")).text
    assert re.findall(r'id="agent-([^"]+)"', first) == ["assistant:mine", "patient:a"]
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None
    assert following[1] == "/console/agents?after=patient%3Aa"

    last = (await browser.get(following[1])).text
    assert re.findall(r'id="agent-([^"]+)"', last) == ["patient:b", "patient:c"]
    assert 'rel="next"' not in last


async def test_signing_in_leads_on_to_an_address_beyond_ascii(browser, runtime):
    path = f"/console/agents/{quote('patient:上海')}"
    key = await issued(runtime, "viewer")

    asked = await browser.get(path)
    form = (await browser.get(asked.headers["location"])).text
    signed_in = await browser.send_form(
        "/console/sign-in", token=hidden(form, "token"), next=hidden(form, "next"), key=key
    )

    assert signed_in.headers["location"] == path


async def test_running_again_asks_before_and_both_runs_name_the_other(browser, runtime):
    was = await triggered(runtime, "patient", "nightly")
    page = (await browser.get(f"/console/runs/{was.run_id}")).text
    assert f'action="/console/runs/{was.run_id}/rerun"' not in page
    assert f'href="/console/runs/{was.run_id}/rerun"' in page
    number = len(runtime._runs)

    assert "Nothing has been done yet" in (await browser.get(f"/console/runs/{was.run_id}/rerun")).text
    assert len(runtime._runs) == number
    began = await browser.fill(f"/console/runs/{was.run_id}/rerun", f"/console/runs/{was.run_id}/rerun", once="o")

    assert f'href="/console/runs/{was.run_id}"' in (await browser.get(began.headers["location"])).text
    assert f'href="{began.headers["location"]}"' in (await browser.get(f"/console/runs/{was.run_id}")).text


async def test_a_payload_that_is_too_long_for_a_command_is_no_command_that_triggers_something_else(browser, runtime):
    run = await triggered(runtime, "patient", "nightly")
    long = replace(runtime._runs[run.run_id].trigger, content={"text": "x" * 5_000})
    change(runtime, run.run_id, trigger=long)

    page = (await browser.get(f"/console/runs/{run.run_id}")).text

    shell = re.search(r'<section class="shell">.*?</section>', page, re.DOTALL)[0]
    assert "curl" not in shell
    assert f'href="/console/runs/{run.run_id}/payload"' in shell


async def test_archiving_a_memory_is_behind_a_word_of_what_it_means(browser, runtime):
    await runtime.memory.remember(AgentRef.parse("assistant"), "at ten")

    page = (await browser.get("/console/agents/assistant/memories")).text

    behind = re.search(r"<details><summary>Archive</summary>.*?</details>", page, re.DOTALL)[0]
    assert '/archive"' in behind
    assert "no page brings it back" in behind


async def test_suspending_a_tenant_is_behind_a_word_of_what_it_means(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))
    await runtime.tenants.create(LOCAL, "acme")

    page = (await browser.get("/console/tenants/acme")).text

    behind = re.search(r"<details[^>]*><summary[^>]*>Suspend it</summary>.*?</details>", page, re.DOTALL)[0]
    assert 'value="suspended"' in behind
    assert "its keys are refused" in behind
    assert page.count('value="suspended"') == 1


async def test_a_memory_is_edited_and_archived_where_one_is(browser, runtime, monkeypatch):
    monkeypatch.setattr(memories, "_MEMORIES", 2)
    ref = AgentRef.parse("assistant")
    ids = [(await runtime.memory.remember(ref, f"number {number}")).memory_id for number in range(5)]
    path = "/console/agents/assistant/memories"
    second, found = f"{path}?after={ids[3]}", f"{path}?q=number+2"

    for here, memory_id, what in (
        (second, ids[2], ""),
        (found, ids[2], ""),
        (second, ids[1], "/archive"),
        (found, ids[2], "/archive"),
    ):
        page = (await browser.get(here)).text
        form = re.search(rf'action="{path}/{memory_id}{what}">(.*?)</form>', page, re.DOTALL)[1]
        fields = {
            name: html.unescape(value)
            for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
        }
        sent = await browser.send_form(f"{path}/{memory_id}{what}", **fields, content=f"number 2, {here}")

        assert sent.headers["location"] == here + (f"#{memory_id}" if not what else "")


async def test_a_key_is_revoked_where_one_is(browser, runtime, monkeypatch):
    monkeypatch.setattr(keys, "PAGE", 2)
    for _ in range(5):
        await issued(runtime, "viewer")
    await browser.sign_in(await issued(runtime, "admin"))
    following = html.unescape(re.search(r'rel="next" href="([^"]+)"', (await browser.get("/console/keys")).text)[1])
    page = (await browser.get(following)).text
    action = re.search(r'action="([^"]+/revoke)"', page)[1]

    sent = await browser.send_form(action, token=hidden(page, "token"), back=hidden(page, "back"))

    assert sent.headers["location"] == following


async def test_with_no_run_chosen_one_comes_back_to_the_list_as_it_was_filtered(browser, runtime):
    await triggered(runtime)
    page = (await browser.get("/console/runs?agent=assistant")).text

    sent = await browser.get("/console/runs/selection", params={"action": "cancel", "back": hidden(page, "back")})

    assert (sent.status_code, sent.headers["location"]) == (303, "/console/runs?agent=assistant&did=nothing")
    assert "No run is chosen" in (await browser.get(sent.headers["location"])).text
    assert "No run is chosen" not in page
    refused = await browser.fill("/console/agents/assistant", "/console/runs/selection", action="cancel")
    assert refused.status_code == 422
