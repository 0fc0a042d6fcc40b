"""What the inbox says of a call, and what becomes of an edit that is refused."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from msgspec.structs import replace

from console.approvals import PAGE
from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.approval import Allowance, ApprovalDecision, ApprovalStatus, Decision
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.errors import AccessDeniedError
from tests.console.conftest import issued, token_of
from tests.console.test_fleet import words
from tests.console.test_pages import HOSTILE, is_harmless

INBOX = "/console/approvals"


def path_of(approval):
    return f"{INBOX}/{approval.request.approval_id}"


def shown(page):
    return re.findall(r'<article [^>]*id="([^"]+)"', page)


def settle(runtime, approval, status, **fields):
    runtime._approvals[approval.request.approval_id] = replace(approval, status=status, **fields)


@pytest.mark.parametrize(
    ("permission", "rest"),
    [("write", "; what it planned to do after it in the same turn is not done."), ("readonly", ".")],
)
async def test_a_call_says_what_becomes_of_it_if_nobody_decides(browser, runtime, permission, rest):
    approval = runtime.request_approval(permission=permission)
    expires = f"{approval.request.expires_at:%Y-%m-%d %H:%M:%S} UTC"

    for path in (INBOX, path_of(approval)):
        page = words((await browser.get(path)).text)

        assert f"If nobody decides by {expires}" in page
        assert f"the call is denied: the agent is told so and its run goes on without it{rest} " in page


async def test_a_call_that_nobody_decided_says_so(browser, runtime):
    late, ended = runtime.request_approval(), runtime.request_approval()
    denial = ApprovalDecision(Decision.DENY, "expired")
    settle(runtime, late, ApprovalStatus.EXPIRED, decision=denial, decided_at=late.request.expires_at)
    settle(runtime, ended, ApprovalStatus.WITHDRAWN, decided_at=ended.request.requested_at)

    assert "the call was denied, and the agent told so" in words((await browser.get(path_of(late))).text)
    assert "cancelled or interrupted before anybody decided" in words((await browser.get(path_of(ended))).text)
    for each in (late, ended):
        assert "If nobody decides" not in (await browser.get(path_of(each))).text


async def test_arguments_are_edited_beside_what_the_schema_says_of_them(browser, runtime):
    properties = {
        "to": {"type": "string", "description": "Who gets it.", "maxLength": 90},
        HOSTILE: {"enum": [HOSTILE]},
    }
    approval = runtime.request_approval(input_schema={"properties": properties, "required": ["to"]})

    page = await browser.get(INBOX)

    assert "to required string, length at most 90 Who gets it." in words(page.text)
    is_harmless(page, INBOX)
    runtime._approvals[approval.request.approval_id] = replace(
        approval, request=replace(approval.request, input_schema={})
    )
    assert "The tool's schema names no arguments" in words((await browser.get(INBOX)).text)


async def test_long_arguments_are_edited_on_the_page_of_their_call_and_not_in_the_inbox(browser, runtime):
    approval = runtime.request_approval(arguments={"to": "x" * 9_000})

    inbox, own = (await browser.get(INBOX)).text, (await browser.get(path_of(approval))).text

    assert "<textarea" not in inbox
    assert f'<a href="{path_of(approval)}">edit them on the page of this call</a>' in inbox
    assert "x" * 9_000 in html.unescape(re.search(r"<textarea[^>]*>([^<]*)<", own)[1])
    decided = await browser.send_form(f"{path_of(approval)}/decision", token=token_of(inbox), decision="allow_once")
    assert decided.status_code == 303
    assert runtime._approvals[approval.request.approval_id].decision.arguments is None


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ('{"to": 5}', "to:"),
        ("{", "arguments: is not JSON"),
        ("[1]", "arguments"),
        (f'{{"to": "{HOSTILE}', "JSON"),
        ("null", "arguments: are null"),
        ('{"to": NaN}', "arguments"),
    ],
)
async def test_an_edit_that_is_refused_is_shown_again_with_what_is_wrong(browser, runtime, written, wrong):
    approval = runtime.request_approval()
    fields = {"decision": "allow_once", "arguments": written, "reason": "the other one"}

    refused = await browser.fill(INBOX, f"{path_of(approval)}/decision", **fields)

    assert refused.status_code == 422
    alert = re.search(r'role="alert">(.*?)</div>', refused.text, re.DOTALL)[1]
    assert "nothing has changed" in alert
    assert wrong in alert
    assert '<details class="part edit" open>' in refused.text
    assert 'value="the other one"' in refused.text
    is_harmless(refused, INBOX)
    if HOSTILE not in written:
        assert html.unescape(re.search(r"<textarea[^>]*>([^<]*)<", refused.text)[1]) == written
    assert runtime._approvals[approval.request.approval_id].status is ApprovalStatus.PENDING
    again = {**fields, "token": token_of(refused.text), "arguments": '{"to": "ops"}'}
    assert (await browser.send_form(f"{path_of(approval)}/decision", **again)).status_code == 303


@pytest.mark.parametrize("written", ["", " \r\n "])
async def test_arguments_that_are_gone_are_not_those_that_the_model_wrote(browser, runtime, written):
    approval = runtime.request_approval()
    path = f"{path_of(approval)}/decision"

    refused = await browser.fill(INBOX, path, decision="allow_once", arguments=written)
    pending = runtime._approvals[approval.request.approval_id].status
    denied = await browser.fill(INBOX, path, decision="deny", arguments=written)

    assert (refused.status_code, "arguments: are empty" in refused.text) == (422, True)
    assert pending is ApprovalStatus.PENDING
    assert denied.status_code == 303


async def test_where_the_run_has_no_more_time_than_the_call_the_page_says_that_the_run_ends(browser, runtime):
    approval = runtime.request_approval(ends_run=True)
    page = words((await browser.get(path_of(approval))).text)
    settle(runtime, approval, ApprovalStatus.EXPIRED)
    after = words((await browser.get(path_of(approval))).text)

    assert "the run ends without the call: it has no more time then" in page
    assert "the call is denied" not in page
    assert "the run had no more time, and ended without the call" in after


async def test_a_decision_that_comes_second_is_shown_who_decided_with_its_comment_and_a_way_back(browser, runtime):
    approval = runtime.request_approval()
    page = (await browser.get(INBOX)).text
    await runtime.decide("default", approval.request.approval_id, ApprovalDecision(Decision.DENY, "no", "ada"))
    fields = {
        "decision": "allow_once",
        "reason": "因为客户在等",
        "arguments": '{"to": "ops"}',
        "back": f"{INBOX}?agent=assistant",
    }

    refused = await browser.send_form(f"{path_of(approval)}/decision", token=token_of(page), **fields)

    assert refused.status_code == 409
    said = words(refused.text)
    for text in (
        "nothing has changed. approval 'apr_1' is not pending: it is denied",
        "denied by ada",
        "Your comment 因为客户在等",
        'Your arguments {"to": "ops"}',
    ):
        assert text in said, text
    assert f'href="{INBOX}?agent=assistant">Back to the inbox' in refused.text
    assert "decision" not in set(re.findall(r'<button[^>]* name="([^"]+)"', refused.text))


async def test_a_decision_that_somebody_else_must_make_comes_back_with_its_comment(browser, runtime, monkeypatch):
    approval = runtime.request_approval()

    async def refuse(*_):
        raise AccessDeniedError("you asked for this run: somebody else must allow the call")

    monkeypatch.setattr(runtime, "decide", refuse)
    refused = await browser.fill(INBOX, f"{path_of(approval)}/decision", decision="allow_once", reason="因为客户在等")

    assert refused.status_code == 403
    assert "somebody else must allow the call" in words(refused.text)
    assert 'name="reason"' in refused.text
    assert 'value="因为客户在等"' in refused.text
    assert f'href="{INBOX}">Back to the inbox' in refused.text


async def test_who_asked_for_the_run_is_told_that_somebody_else_must_allow_the_call_and_may_deny_it(browser, runtime):
    mine = await runtime.keys.create(LOCAL, KeyRequest("mine", ("approver",)))
    approval = runtime.request_approval(excluded=(f"key:{mine.key.key_id}",))
    await browser.sign_in(mine.text)

    page = (await browser.get(INBOX)).text

    assert "You asked for this run, so somebody else must allow the call. You may deny it." in words(page)
    assert 'value="deny"' in page
    for offered in ("allow_once", "allow_for_session", "<textarea"):
        assert offered not in page
    await browser.sign_in(await issued(runtime, "approver"))
    page = (await browser.get(INBOX)).text
    assert f"Whoever asked for the run may not allow it: key:{mine.key.key_id}" in words(page)
    assert 'value="allow_once"' in page
    assert (await browser.fill(INBOX, f"{path_of(approval)}/decision", decision="allow_once")).status_code == 303


async def test_a_call_for_two_people_says_how_many_are_missing_and_with_which_arguments_the_first_allowed_it(
    browser, runtime
):
    first = await runtime.keys.create(LOCAL, KeyRequest("first", ("approver",)))
    approval = runtime.request_approval(needed=2)
    who = f"key:{first.key.key_id}"
    decision = ApprovalDecision(Decision.ALLOW_ONCE, "seen", "ada", {"to": "ops"}, who)
    now = approval.request.requested_at
    settle(runtime, approval, ApprovalStatus.PENDING, allowed_by=(Allowance(decision, now),))

    await browser.sign_in(first.text)
    page = words((await browser.get(INBOX)).text)
    assert (
        "Different people must allow it: 2 in all, 1 still. You have; somebody else must, with the same arguments."
        in page
    )
    assert re.search(r'allowed by ada .*: seen \{"to":"ops"\}', page)
    await browser.sign_in(await issued(runtime, "approver"))
    page = words((await browser.get(INBOX)).text)
    assert (
        "2 in all, 1 still. Yours count together only with the same arguments: those below, as they were edited."
        in page
    )
    assert "You have;" not in page


async def test_the_second_of_two_who_leaves_the_form_as_it_is_allows_what_the_first_one_allowed(browser, runtime):
    approval = runtime.request_approval(needed=2)
    card = re.compile(r'data-v="(pending[^"]*)"')
    versions = [card.search((await browser.get(INBOX)).text)[1]]
    for name, edited in (("first", '{"to": "ops"}'), ("second", '{"to": "all"}'), ("third", None)):
        key = await runtime.keys.create(LOCAL, KeyRequest(name, ("approver",)))
        await browser.sign_in(key.text)
        page = (await browser.get(INBOX)).text
        text = edited or html.unescape(re.search(r"<textarea[^>]*>([^<]*)<", page)[1])
        fields = {"token": token_of(page), "decision": "allow_once", "arguments": text}
        assert (await browser.send_form(f"{path_of(approval)}/decision", **fields)).status_code == 303
        versions += card.findall((await browser.get(INBOX)).text)

    assert len({*versions}) == len(versions) == 3
    assert '<details class="part edit" open>' in page
    settled = runtime._approvals[approval.request.approval_id]
    assert settled.status is ApprovalStatus.ALLOWED
    assert [each.decision.arguments for each in settled.allowed_by] == [{"to": each} for each in ("ops", "all", "all")]


async def test_who_follows_one_who_allowed_the_call_as_it_was_is_told_that_both_must_mean_the_same(browser, runtime):
    approval = runtime.request_approval(needed=2)
    said = Allowance(ApprovalDecision(Decision.ALLOW_ONCE, "", "ada", None, "key:ada"), approval.request.requested_at)
    settle(runtime, approval, ApprovalStatus.PENDING, allowed_by=(said,))

    page = (await browser.get(INBOX)).text

    assert "1 still. Yours count together only with the same arguments. If nobody decides" in words(page)
    assert '<details class="part edit">' in page


async def test_a_call_that_others_push_off_an_open_page_of_the_inbox_is_on_the_page_that_its_link_leads_to(
    browser, runtime
):
    hour = timedelta(hours=1)
    begin = runtime.request_approval().request.expires_at
    for number in range(2, PAGE + 3):
        runtime.request_approval(expires_at=begin + number * hour)
    page = (await browser.get(INBOX)).text
    part = html.unescape(re.search(r'<live-region src="([^"]*)"', page)[1])
    assert shown(page) == [f"apr_{number}" for number in range(1, PAGE + 1)]

    runtime.request_approval(expires_at=begin - hour)
    live = (await browser.get(part)).text

    assert f"apr_{PAGE}" not in shown(live)
    nav = re.compile(r'<nav [^>]*id="inbox-pages" data-v="([^"]*)".*rel="next" href="([^"]*)"')
    before, now = nav.search(page), nav.search(live)
    assert before[1] != now[1]
    following = shown((await browser.get(html.unescape(now[2]))).text)
    assert following == [f"apr_{number}" for number in range(PAGE, PAGE + 3)]
