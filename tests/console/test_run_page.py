"""What a run's page says of why it did what it did: retries, cost, its family, and what the model saw."""

from __future__ import annotations

import html
import re
import shlex
from datetime import timedelta

import orjson
import pytest
from msgspec.structs import replace

from console.entries import EntryViews
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, ModelChoice
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import ChainedRecord, LedgerKind, LedgerRecord
from owlclaw_ray.domain.lineage import ChildRole, Lineage
from owlclaw_ray.domain.run import RunResult, RunStatus, Usage
from owlclaw_ray.domain.trigger import ENQUEUED, Trigger, TriggerKind
from owlclaw_ray.ids import RecordId
from owlclaw_ray.models.sanitise import as_data
from owlclaw_ray.runs.prompt import first_message, system_prompt
from tests.console.conftest import issued, token_of
from tests.console.test_fleet import words
from tests.console.test_pages import COLD_BYTES, HARMFUL, change, is_harmless, journal, triggered

DEFINITION = AgentDefinition("patient", "v1", "", "You are calm.", "", "", ModelChoice(("small",)))
SYSTEM = system_prompt(DEFINITION, [("hedging", "Hedge early.")])
TOOLS = orjson.dumps([{"type": "function", "function": {"name": "look", "description": "Looks at a state."}}]).decode()


def opening(runtime, *memories):
    marked = [as_data({"content": each, "created_at": "2026-11-01T00:00:00Z", "tags": ["客户"]}) for each in memories]
    agent = AgentRef.parse("patient")
    return first_message(agent, "Trigger: api", now=runtime._clock.now(), outcomes=(), memories=marked)


def built(user="…", **changes):
    told = {
        "system": "s", "tools": "t", "user": user, "definition": "v1", "model": "large", "scripted": False, "visible": ["look"],
        "skills": ["hedging"], "withheld": {"selling": "it is outside 09:00-17:00"}, "memories": 1,
    }  # fmt: skip
    return EntryKind.PROMPT_BUILT, told | changes


def replied(text="Let me look.", calls=(), **changes):
    usage = {"prompt_tokens": 2_000, "completion_tokens": 5, "cached_tokens": 500, "cost": 0.02}
    told = {
        "text": text,
        "tool_calls": list(calls),
        "model": "small",
        "scripted": False,
        "usage": usage,
        "duration_ms": 900,
    }
    return EntryKind.MODEL_REPLIED, told | changes


FAILED = (
    EntryKind.MODEL_ATTEMPT_FAILED,
    {"model": "large", "attempt": 1, "error": "429", "next_model": "small", "retry_in": 0.5},
)
CALL = {"id": "c1", "name": "look", "arguments": '{"state":"负载"}'}
FOUND = (
    EntryKind.TOOL_FINISHED,
    {
        "call_id": "c1",
        "tool": "look",
        "arguments": CALL["arguments"],
        "content": "busy",
        "duration_ms": 3,
        "metadata": {"attempts": 2},
    },
)


async def told(runtime, *entries, texts=None):
    """A run with this journal."""
    run = await triggered(runtime, "patient", "look at it")
    journal(runtime, run.run_id, [(EntryKind.RUN_QUEUED, {}), (EntryKind.RUN_STARTED, {}), *entries])
    runtime.texts[run.run_id] = {"s": SYSTEM, "t": TOOLS} if texts is None else texts
    return run.run_id


def withhold(runtime, run_id):
    data = {
        "hidden": [{"tools": ["shop.pay"], "by": "budget", "reason": "nothing is left today"}],
        "skills": [{"skills": ["selling"], "by": "hours", "reason": "it is outside 09:00-17:00"}],
    }
    record = LedgerRecord(
        RecordId("rec_v"), "default", "patient", run_id, LedgerKind.VISIBILITY, runtime._clock.now(), data
    )
    runtime._ledger.append(ChainedRecord(record, "test", 1, "0", "1"))


def article(page, seq):
    return re.search(rf'<article [^>]*id="e{seq}">(.*?)</article>', page, re.DOTALL)[1]


async def test_a_reply_tells_of_the_attempts_that_failed_and_of_the_model_that_it_falls_back_from(browser, runtime):
    run_id = await told(runtime, built(), FAILED, FAILED, replied(calls=[CALL]), FOUND, replied("done"))

    page = (await browser.get(f"/console/runs/{run_id}")).text

    assert "after 2 failed attempts, instead of large" in article(page, 6)
    assert "large, attempt 1: 429" in article(page, 6)
    assert "25 % cached" in article(page, 6)
    assert "2 attempts" in article(page, 7)
    assert "failed attempts" not in article(page, 8)


async def test_attempts_that_failed_before_the_entries_that_are_shown_or_streamed_are_told_of(browser, runtime):
    notes = [(EntryKind.RUN_ACTIVE, {"seconds": number}) for number in range(198)]
    run_id = await told(runtime, built(), FAILED, replied(), *notes, replied("and now"))

    page = (await browser.get(f"/console/runs/{run_id}")).text
    assert 'id="e4"' not in page
    assert "after 1 failed attempt, instead of large" in article(page, 5)
    await runtime.cancel("default", run_id)
    streamed = (await browser.get(f"/console/runs/{run_id}/stream?after=4")).text
    assert "after 1 failed attempt, instead of large" in article(streamed, 5)


async def test_the_prompt_entry_says_what_the_run_was_reminded_of_and_which_skills_it_read_or_not(browser, runtime):
    run_id = await told(runtime, built(opening(runtime, "九点最忙", "never sell at night")), replied())

    entry = article((await browser.get(f"/console/runs/{run_id}")).text, 3)

    for text in ("九点最忙", "never sell at night", "hedging", "selling: it is outside 09:00-17:00"):
        assert text in entry, text


async def test_json_of_any_depth_that_a_model_or_a_tool_wrote_breaks_no_page_and_keeps_its_numbers(browser, runtime):
    deep, number = "[" * 300 + "]" * 300, "123456789012345678901"
    call = {"id": "c1", "name": "look", "arguments": f'{{"a": {deep}, "order": {number}}}'}
    found = {
        "call_id": "c1",
        "duration_ms": 3,
        "tool": "look",
        "arguments": call["arguments"],
        "content": deep,
        "executed": call["arguments"],
    }
    failed = {
        "call_id": "c2",
        "duration_ms": 3,
        "tool": "look",
        "arguments": deep,
        "error": {"type": "x", "message": "y", "details": deep},
        "hooks": deep,
    }
    run_id = await told(
        runtime, built(opening(runtime)), replied(calls=[call]), (EntryKind.TOOL_FINISHED, found),
        (EntryKind.TOOL_FINISHED, failed), (EntryKind.APPROVAL_REQUESTED, {"tool": "look", "arguments": deep}),
        (EntryKind.APPROVAL_DECIDED, {"arguments": deep}), replied("done"),
    )  # fmt: skip
    await runtime.cancel("default", run_id)

    for path in ("", "?view=journal", "/stream", "/entries/4"):
        page = await browser.get(f"/console/runs/{run_id}{path}")
        assert page.status_code == 200, path
        assert number in page.text, path
    page = (await browser.get(f"/console/runs/{run_id}")).text
    assert page.count(number) == 3
    assert f'href="/console/runs/{run_id}/entries/5">plain' in article(page, 5)


async def test_a_run_says_with_which_version_of_its_definition_it_ran_and_whether_that_has_changed(browser, runtime):
    runtime.defined["patient"] = DEFINITION
    notes = [(EntryKind.RUN_ACTIVE, {"seconds": number}) for number in range(300)]
    run_id = await told(runtime, built(), replied(), *notes)

    page = (await browser.get(f"/console/runs/{run_id}")).text
    assert "<code>v1</code></dd>" in page
    runtime.defined["patient"] = replace(DEFINITION, version="v2")
    assert '<code>v1</code> <span class="tag warn">changed since' in (await browser.get(f"/console/runs/{run_id}")).text
    older = await told(runtime, built(definition=""), replied())
    assert "Definition" not in (await browser.get(f"/console/runs/{older}")).text


async def test_what_a_model_saw_is_taken_apart_with_its_tokens_memories_skills_and_tools(browser, runtime):
    run_id = await told(
        runtime, built(opening(runtime, "九点最忙")), FAILED, replied(calls=[CALL]), FOUND, replied("done")
    )
    withhold(runtime, run_id)
    page = (await browser.get(f"/console/runs/{run_id}")).text
    assert f'href="/console/runs/{run_id}/entries/5/prompt">what it saw' in article(page, 5)
    assert "what it saw" not in article(page, 6)

    first = (await browser.get(f"/console/runs/{run_id}/entries/5/prompt")).text
    for text in (
        "You are calm.", "Skill: hedging", "Hedge early.", "Looks at a state.", "九点最忙", "客户", "2,000, 25 % cached",
        "shop.pay", "nothing is left today", "selling", "429",
    ):  # fmt: skip
        assert text in first, text
    assert "Messages after the first one" not in first
    second = (await browser.get(f"/console/runs/{run_id}/entries/7/prompt")).text
    assert second.index("Let me look.") < second.index("busy")
    assert "Attempts that failed" not in second
    assert "done" not in second
    plain = await browser.get(f"/console/runs/{run_id}/entries/7/prompt?plain=yes")
    assert plain.headers["content-type"].startswith("text/plain")
    assert "Hedge early." in plain.text
    assert '"busy"' in plain.text


async def test_what_a_model_saw_that_did_not_answer_is_shown_with_why_and_which_it_was(browser, runtime):
    refused = (
        EntryKind.RUN_FINISHED,
        {"status": "failed", "error": {"type": "model_failed", "message": "no credit left"}},
    )
    run_id = await told(runtime, built("Pay it back."), FAILED, refused)
    page = (await browser.get(f"/console/runs/{run_id}")).text
    for seq in (4, 5):
        assert f'href="/console/runs/{run_id}/entries/{seq}/prompt">what it saw' in article(page, seq)
    assert "Model asked large" in words(page)

    attempt, end = [(await browser.get(f"/console/runs/{run_id}/entries/{seq}/prompt")).text for seq in (4, 5)]

    assert "No answer came of it 429" in words(attempt)
    assert "Model large" in words(attempt)
    assert "Attempts that failed before" not in attempt
    assert "No answer came of it no credit left" in words(end)
    assert "Model small" in words(end)
    assert "Attempts that failed before" in end
    for shown in (attempt, end):
        assert "Pay it back." in shown
        assert "You are calm." in shown
        assert "as the model counted" not in shown


async def test_a_run_that_ended_for_another_reason_has_nothing_that_a_model_saw_for_its_end(browser, runtime):
    over = (EntryKind.RUN_FINISHED, {"status": "timeout", "error": {"type": "run_timeout", "message": "late"}})
    run_id = await told(runtime, built(), replied(), over)

    assert "what it saw" not in article((await browser.get(f"/console/runs/{run_id}")).text, 5)
    assert (await browser.get(f"/console/runs/{run_id}/entries/5/prompt")).status_code == 404


async def test_what_was_shown_for_no_reply_or_is_not_known_is_a_404(browser, runtime):
    run_id = await told(runtime, replied())

    for seq in ("1", "3", "4", "99", "x", "99999999999"):
        assert (await browser.get(f"/console/runs/{run_id}/entries/{seq}/prompt")).status_code == 404, seq


async def test_what_a_model_saw_has_texts_of_the_definition_and_is_for_those_who_may_read_agents(browser, runtime):
    run_id = await told(runtime, built(), replied())
    withhold(runtime, run_id)
    await browser.sign_in(await issued(runtime, "runs:read"))

    assert "what it saw" not in (await browser.get(f"/console/runs/{run_id}")).text
    refused = await browser.get(f"/console/runs/{run_id}/entries/4/prompt")
    assert (refused.status_code, "agents:read" in refused.text) == (403, True)
    await browser.sign_in(await issued(runtime, "runs:read", "agents:read"))
    page = (await browser.get(f"/console/runs/{run_id}/entries/4/prompt")).text
    assert "You are calm." in page
    assert "nothing is left today" not in page
    assert "selling" in page


@HARMFUL
async def test_a_prompt_of_texts_that_mean_harm_is_text(browser, runtime, hostile):
    agent = AgentRef.parse("patient")
    user = first_message(
        agent, hostile, now=runtime._clock.now(), outcomes=(hostile,), memories=[as_data({"content": hostile})]
    )
    call = {"id": hostile, "name": hostile, "arguments": hostile}
    texts = {
        "s": system_prompt(replace(DEFINITION, soul=hostile), [(hostile, hostile)]),
        "t": orjson.dumps([{"name": hostile}]).decode(),
    }
    found = (EntryKind.TOOL_FINISHED, {"call_id": hostile, "tool": hostile, "arguments": hostile, "content": hostile})
    failed = (FAILED[0], dict.fromkeys(("model", "attempt", "error", "next_model", "retry_in"), hostile))
    built_ = built(
        user,
        skills=[hostile],
        withheld={hostile: hostile},
        definition=hostile,
        route={"task_type": hostile, "models": [hostile], "by": hostile},
    )
    run_id = await told(
        runtime, built_, replied(hostile, [call]), found, failed, replied(hostile, model=hostile), texts=texts
    )
    withhold(runtime, run_id)

    for path in (f"runs/{run_id}", f"runs/{run_id}/entries/7/prompt"):
        is_harmless(await browser.get(f"/console/{path}"), path)


def lineage(parent, root=None):
    return Lineage(root or parent.run_id, parent.run_id, parent.agent.agent_id, 1, ChildRole.WORKER)


async def test_runs_of_other_agents_are_a_tree_with_what_each_cost_seen_from_each_of_them(browser, runtime):
    root = runtime._runs[await told(runtime)]
    children = [runtime._runs[await told(runtime)] for _ in range(2)]
    for number, each in enumerate(children, 1):
        result = RunResult(RunStatus.COMPLETED, usage=Usage(100, 10, 0, number / 4), duration_ms=1_500)
        trigger = replace(each.trigger, focus=f"part {number}", lineage=lineage(root))
        change(runtime, each.run_id, trigger=trigger, status=RunStatus.COMPLETED, result=result)
    waiting = {"runs": {f"c{at}": each.run_id for at, each in enumerate(children)}}
    journal(runtime, root.run_id, [(EntryKind.RUN_QUEUED, {}), (EntryKind.RUN_WAITING, waiting)])

    of_root = (await browser.get(f"/console/runs/{root.run_id}")).text
    of_child = (await browser.get(f"/console/runs/{children[0].run_id}")).text

    for page, here in ((of_root, root), (of_child, children[0])):
        tree = re.search(r'<section class="family".*?</section>', page, re.DOTALL)[0]
        assert "3, $0.7500" in tree
        assert tree.index("look at it") < tree.index("part 1") < tree.index("part 2")
        assert f'href="/console/runs/{here.run_id}" aria-current="true"' in tree
        assert "1.50 s, 110 tokens, $0.5000" in tree
    alone = await told(runtime, built(), replied())
    assert 'class="family"' not in (await browser.get(f"/console/runs/{alone}")).text


async def test_a_tree_of_more_runs_than_are_shown_says_how_many_are_not_and_that_its_sums_are_no_more_than_a_beginning(
    browser, runtime
):
    root = runtime._runs[await told(runtime)]
    children = [(await triggered(runtime, f"patient:{number}", f"part {number}")).run_id for number in range(130)]
    for run_id in children:
        result = RunResult(RunStatus.COMPLETED, usage=Usage(100, 10, 0, 0.5), duration_ms=1)
        trigger = replace(runtime._runs[run_id].trigger, lineage=lineage(root))
        change(runtime, run_id, trigger=trigger, status=RunStatus.COMPLETED, result=result)
    waiting = {"runs": {f"c{at}": each for at, each in enumerate(children)}}
    journal(runtime, root.run_id, [(EntryKind.RUN_QUEUED, {}), (EntryKind.RUN_WAITING, waiting)])
    journal(
        runtime, children[0], [(EntryKind.RUN_QUEUED, {}), (EntryKind.RUN_WAITING, {"runs": {"c": "run_of_child"}})]
    )

    tree = re.search(
        r'<section class="family".*?</section>', (await browser.get(f"/console/runs/{root.run_id}")).text, re.DOTALL
    )[0]

    assert tree.count('<span class="status is-completed">') == 99
    assert "at least 132, at least $49.50 so far<" in tree
    assert ("and 31 more that it started" in tree, ">1 that it started" in tree) == (True, True)


async def test_a_run_that_its_tree_has_no_room_for_is_shown_in_it_and_counted_once(browser, runtime):
    root = runtime._runs[await told(runtime)]
    children = [(await triggered(runtime, f"patient:{number}")).run_id for number in range(130)]
    for run_id in children:
        change(runtime, run_id, trigger=replace(runtime._runs[run_id].trigger, lineage=lineage(root)))
    waiting = {"runs": {f"c{at}": each for at, each in enumerate(children)}}
    journal(runtime, root.run_id, [(EntryKind.RUN_QUEUED, {}), (EntryKind.RUN_WAITING, waiting)])
    started = {"runs": {"c": "run_of_child"}}
    journal(runtime, children[-1], [(EntryKind.RUN_QUEUED, {}), (EntryKind.RUN_WAITING, started)])

    page = (await browser.get(f"/console/runs/{children[-1]}")).text

    tree = re.search(r'<section class="family".*?</section>', page, re.DOTALL)[0]
    assert "at least 132," in tree
    assert ("and 30 more that it started" in tree, ">1 that it started" in tree) == (True, True)
    assert tree.count('aria-current="true"') == 1


async def test_a_tree_counts_what_runs_that_are_not_over_have_cost_so_far(browser, runtime):
    root = runtime._runs[await told(runtime, replied())]
    child = await told(runtime, replied(), replied())
    change(runtime, child, trigger=replace(runtime._runs[child].trigger, lineage=lineage(root)))
    entries = [(EntryKind.RUN_QUEUED, {}), replied(), (EntryKind.RUN_WAITING, {"runs": {"c": child}})]
    journal(runtime, root.run_id, entries)

    page = (await browser.get(f"/console/runs/{root.run_id}")).text

    tree = re.search(r'<section class="family".*?</section>', page, re.DOTALL)[0]
    assert ">2, $0.0600 so far<" in tree
    assert ("$0.0200 so far" in tree, "$0.0400 so far" in tree) == (True, True)


async def test_the_head_of_a_run_that_waits_is_renewed_and_is_another_one_once_a_child_has_cost_something_or_ended(
    browser, runtime
):
    root = runtime._runs[await told(runtime)]
    child = await told(runtime)
    change(runtime, child, trigger=replace(runtime._runs[child].trigger, lineage=lineage(root)))
    journal(runtime, root.run_id, [(EntryKind.RUN_QUEUED, {}), (EntryKind.RUN_WAITING, {"runs": {"c": child}})])

    async def head():
        page = (await browser.get(f"/console/runs/{root.run_id}?picture=cost&fragment=head")).text
        return re.search(r'<div id="run-head" data-v="([^"]*)" data-every="10">', page)[1]

    seen = [await head(), await head()]
    journal(runtime, child, [(EntryKind.RUN_QUEUED, {}), replied()])
    seen.append(await head())
    change(runtime, child, status=RunStatus.COMPLETED)
    seen.append(await head())

    assert seen[0] == seen[1]
    assert len({*seen}) == 3
    alone = await told(runtime, built())
    assert "data-every" not in (await browser.get(f"/console/runs/{alone}")).text


@pytest.mark.parametrize("gone", [True, False])
async def test_a_run_is_in_its_family_if_the_one_that_started_it_is_gone_or_not_for_the_reader(browser, runtime, gone):
    accepted = [await triggered(runtime, agent, agent) for agent in ("assistant", "patient")]
    root, child = (runtime._runs[each.run_id] for each in accepted)
    change(runtime, child.run_id, trigger=replace(child.trigger, lineage=lineage(root)))
    journal(runtime, root.run_id, [(EntryKind.RUN_WAITING, {"runs": {"c1": child.run_id}})])
    if gone:
        del runtime._runs[root.run_id]
    else:
        await browser.sign_in(await issued(runtime, "runs:read", agents=("agent:patient",)))

    page = (await browser.get(f"/console/runs/{child.run_id}")).text

    tree = re.search(r'<section class="family".*?</section>', page, re.DOTALL)[0]
    assert "gone, or not yours to see" in tree
    assert f'href="/console/runs/{child.run_id}" aria-current="true"' in tree
    assert tree.index(root.run_id) < tree.index(child.run_id)


async def test_the_head_of_a_run_is_renewed_without_looking_at_its_entries(browser, runtime, monkeypatch):
    run_id = await told(runtime, built(), replied())
    monkeypatch.setattr(EntryViews, "of", None)

    head = await browser.get(f"/console/runs/{run_id}?fragment=head")

    assert head.status_code == 200
    assert 'id="run-head"' in head.text


async def test_what_is_withheld_comes_to_a_page_that_was_opened_before_the_prompt_was_built(browser, runtime):
    run_id = await told(runtime)
    head = f"/console/runs/{run_id}?fragment=head"
    assert 'id="withheld" data-v="0"></div>' in (await browser.get(head)).text

    journal(runtime, run_id, [(EntryKind.RUN_QUEUED, {}), built(), replied()])
    withhold(runtime, run_id)
    found = (await browser.get(head)).text

    assert 'id="withheld" data-v="2">' in found
    assert "nothing is left today" in found
    runtime._ledger.clear()
    assert "nothing is left today" in (await browser.get(head)).text


async def test_of_a_tree_only_those_runs_are_shown_whose_agents_are_the_keys(browser, runtime):
    root = runtime._runs[await told(runtime)]
    secret = await triggered(runtime, "assistant", "a secret focus")
    change(runtime, secret.run_id, trigger=replace(runtime._runs[secret.run_id].trigger, lineage=lineage(root)))
    waiting = (EntryKind.RUN_WAITING, {"runs": {"c1": secret.run_id, "c2": "run_gone"}})
    journal(runtime, root.run_id, [(EntryKind.RUN_QUEUED, {}), waiting])
    await browser.sign_in(await issued(runtime, "runs:read", agents=("agent:patient",)))

    page = (await browser.get(f"/console/runs/{root.run_id}")).text

    assert "a secret focus" not in page
    assert page.count("gone, or not yours to see") == 2


async def test_the_picture_and_its_part_are_in_the_address_and_stay_in_the_links_of_the_page(browser, runtime):
    run_id = await told(runtime, built(), replied(calls=[CALL]), FOUND, replied("done"))
    change(runtime, run_id, finished_at=runtime._clock.now() + timedelta(seconds=9), status=RunStatus.COMPLETED)

    page = (await browser.get(f"/console/runs/{run_id}?view=journal&picture=cost&zoom=0-500")).text

    links = {html.unescape(each) for each in re.findall(rf'href="(/console/runs/{run_id}\?[^"#]+)"', page)}
    for shown in ("picture=cost&zoom=125-375", "picture=cost", "picture=time", "picture=cost&zoom=250-750"):
        assert f"/console/runs/{run_id}?view=journal&{shown}" in links, shown
    assert f"/console/runs/{run_id}?picture=cost&zoom=0-500" in links
    assert len(re.findall(r'<rect class="bar', page)) == 2
    whole = (await browser.get(f"/console/runs/{run_id}?picture=cost")).text
    assert len(re.findall(r'<rect class="bar', whole)) == 4
    for wrong in ("picture=pie", "zoom=9", "zoom=500-100"):
        assert (await browser.get(f"/console/runs/{run_id}?{wrong}")).status_code == 422
    free = await told(runtime, built(), replied(usage={}))
    assert "Nothing of these entries cost anything." in (await browser.get(f"/console/runs/{free}?picture=cost")).text


async def test_a_live_page_asks_for_the_head_that_it_shows(browser, runtime):
    run_id = await told(runtime, built(), replied())

    page = (await browser.get(f"/console/runs/{run_id}?view=journal&picture=time&zoom=0-500")).text

    head = html.unescape(re.search(r' head="([^"]+)"', page)[1])
    assert head == f"/console/runs/{run_id}?view=journal&picture=time&zoom=0-500&fragment=head"
    assert "<html" not in (await browser.get(head)).text


@pytest.mark.parametrize("kind", [TriggerKind.API, TriggerKind.EVENT])
async def test_the_command_of_a_run_triggers_the_same(browser, runtime, kind):
    trigger = Trigger(kind, {"order": "a\u200b'b"}, "看 \u202e 'it'", task_type="triage", session="s 1", user="ada")
    ref, admission = AgentRef.parse("patient"), replace(ENQUEUED, priority=7)
    run = runtime._runs[(await runtime.submit(ref, trigger, admission)).run_id]
    page = (await browser.get(f"/console/runs/{run.run_id}")).text
    shell = re.search(r'<section class="shell">(.*?)</section>', page, re.DOTALL)[1]
    shown, copied = re.search(r'tabindex="0">([^<]*)<.*data-text="([^"]*)"', shell).groups()
    assert html.unescape(shown) == html.unescape(copied)
    words = shlex.split(html.unescape(copied))

    sent = await browser.post(
        words[1], content=words[words.index("-d") + 1], headers={"Content-Type": "application/json"}
    )

    again = runtime._runs[sent.json()["run_id"]]
    assert again.trigger == replace(trigger, submitters=again.trigger.submitters)
    assert (again.agent, again.priority) == (ref, 7)


async def test_each_entry_is_there_as_a_command(browser, runtime):
    run_id = await told(runtime, built(), replied())

    for view in ("", "?view=journal"):
        page = (await browser.get(f"/console/runs/{run_id}{view}")).text
        command = html.unescape(re.search(r' data-command="([^"]+)"', page)[1])
        assert (
            command
            == f"curl -sN http://localhost:8700/v1/runs/{run_id}/events -H 'Last-Event-ID: {{after}}' | grep -m1 '^data:'"
        )
        assert '<copy-button data-after="3" data-label="curl">' in article(page, 4)
        assert f">{html.escape(command.format(after=3), quote=True).replace('&#x27;', '&#39;')}</code>" in page
    await browser.sign_in(await issued(runtime, "runs:read"))
    page = (await browser.get(f"/console/runs/{run_id}")).text
    assert "Authorization: Bearer $OWLCLAW_API_KEY" in html.unescape(re.search(r' data-command="([^"]+)"', page)[1])


@pytest.mark.parametrize("path", ["", "?view=journal", "?picture=cost", "/entries/202/prompt"])
async def test_a_run_of_200_entries_is_a_first_visit_of_less_than_120_kib(browser, runtime, path):
    calls = [CALL | {"id": f"c{at}", "arguments": f'{{"state":"负载 {at}","why":"{at * 977:x}"}}'} for at in range(100)]
    steps = [
        step
        for call in calls
        for step in (replied(f"Step {call['id']}.", [call]), (FOUND[0], FOUND[1] | {"call_id": call["id"]}))
    ]
    run_id = await told(runtime, built(opening(runtime, *["九点最忙" * 20] * 5)), *steps)

    page = await browser.get(f"/console/runs/{run_id}{path}")

    assert page.headers["content-encoding"] == "gzip"
    files = {html.unescape(each) for each in re.findall(r'(?:href|src)="(/console/static/[^"#]+)', page.text)}
    total = page.num_bytes_downloaded
    for each in files:
        total += (await browser.get(each, headers={"Accept-Encoding": "gzip"})).num_bytes_downloaded
    assert page.status_code == 200
    assert len(files) == (4 if "prompt" in path else 5)
    assert 10_000 < total < COLD_BYTES


async def test_pages_are_compressed_for_browsers_that_take_it_and_no_two_have_the_same_token_or_surely_the_same_length(
    browser, runtime
):
    run_id = await told(runtime, built(), *[replied() for _ in range(50)])
    path = f"/console/runs/{run_id}?before=40"
    await browser.sign_in(await issued(runtime, "admin"))

    pages = [await browser.get(path) for _ in range(20)]
    plain = await browser.get(path, headers={"Accept-Encoding": "br"})

    assert "content-encoding" not in plain.headers
    assert {each.headers["vary"] for each in (*pages, plain)} == {"Accept-Encoding"}
    tokens = [token_of(each.text) for each in (*pages, plain)]
    assert len({*tokens}) == len({each[:16] for each in tokens}) == len(tokens)
    assert len({each.num_bytes_downloaded for each in pages}) > 3
    for token in tokens:
        assert (await browser.send_form(f"/console/runs/{run_id}/rerun", token=token, once="o")).status_code == 303
    for token in (tokens[0][16:], tokens[0][:16] + tokens[1][16:], " " * 16 + tokens[0][16:], ""):
        assert (await browser.send_form(f"/console/runs/{run_id}/rerun", token=token)).status_code == 403


ACTIVE = [(EntryKind.RUN_ACTIVE, {"seconds": number}) for number in range(500)]


def facts(page):
    return dict(re.findall(r"<div><dt>([^<]+)</dt><dd[^>]*>([^<]*)</dd></div>", page))


@pytest.mark.parametrize("at_once", [500, 1])
async def test_what_a_live_run_used_and_started_is_that_of_the_whole_run_whatever_its_page_shows(
    browser, runtime, monkeypatch, at_once
):
    monkeypatch.setattr("console.whole_runs._READ", at_once)
    children = [await told(runtime) for _ in range(2)]
    waiting = [(EntryKind.RUN_WAITING, {"runs": {f"c{each}": each}}) for each in children]
    embedded = (FOUND[0], FOUND[1] | {"embeddings": ["e"], "usage": {"prompt_tokens": 7, "cost": 0.01}})
    run_id = await told(runtime, built(), replied(calls=[CALL]), *waiting, embedded, *ACTIVE, replied("and now"))

    for shown in ("", "?before=300", "?fragment=head", "?before=201"):
        page = (await browser.get(f"/console/runs/{run_id}{shown}")).text
        assert facts(page)["Tokens"] == "4,007 → 10", shown
        assert facts(page)["Cost"] == "$0.0500", shown
        assert all(f'href="/console/runs/{each}"' in page for each in children), shown

    more = [*((each.kind, each.data) for each in runtime._journals[run_id]), replied("more")]
    journal(runtime, run_id, more)
    assert facts((await browser.get(f"/console/runs/{run_id}")).text)["Tokens"] == "6,007 → 15"


async def test_a_long_run_leads_to_its_first_entries_and_has_its_payload_on_every_page(browser, runtime):
    run_id = await told(runtime, built(), *ACTIVE)
    change(runtime, run_id, trigger=replace(runtime._runs[run_id].trigger, content={"order": 17}))

    page = (await browser.get(f"/console/runs/{run_id}")).text

    first = html.unescape(re.search(r'href="([^"]+)">First entries', page)[1])
    for each in (page, shown := (await browser.get(first)).text):
        assert '{"order":17}' in html.unescape(each)
    assert 'id="e1"' in shown
    assert "First entries" not in shown


@pytest.mark.parametrize("picture", ["", "?picture=time"])
async def test_a_picture_of_a_part_of_a_run_says_so(browser, runtime, picture):
    short, long = await told(runtime, built(), replied()), await told(runtime, built(), *ACTIVE, replied())

    assert "Of entries" not in (await browser.get(f"/console/runs/{short}{picture}")).text
    assert "Of entries 305 to 504 alone." in (await browser.get(f"/console/runs/{long}{picture}")).text


async def test_the_link_of_an_entry_leads_to_a_page_that_has_it_however_long_the_run_becomes(browser, runtime):
    run_id = await told(runtime, built(), replied(), *ACTIVE[:300])
    for view in ("", "?view=journal"):
        page = (await browser.get(f"/console/runs/{run_id}{view}")).text
        link, seq = re.findall(r'<a class="seq num" href="([^"]+)">(\d+)<', page)[-1]
        journal(runtime, run_id, [*((each.kind, each.data) for each in runtime._journals[run_id]), *ACTIVE])

        path, _, place = html.unescape(link).partition("#")
        assert place == f"e{seq}"
        assert f'id="{place}"' in (await browser.get(path)).text
    await runtime.cancel("default", run_id)
    over = (await browser.get(f"/console/runs/{run_id}")).text
    assert re.search(r'<a class="seq num" href="#e', over)


async def test_entries_that_are_streamed_keep_their_empty_lines(browser, runtime):
    text = "first\n\n\nlast"
    run_id = await told(runtime, replied(text))
    page = (await browser.get(f"/console/runs/{run_id}")).text
    await runtime.cancel("default", run_id)

    streamed = (await browser.get(f"/console/runs/{run_id}/stream")).text

    events = streamed.split("\n\n")
    received = "\n".join(line.removeprefix("data: ") for line in events[0].split("\n")[2:])
    assert text in received
    assert text in page
