"""What pages show, and what their forms do."""

from __future__ import annotations

import gzip
import html
import re
from datetime import timedelta
from importlib import resources

import pytest
from msgspec.structs import replace

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.run import RunError, RunResult, RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import QueueFullError
from tests.console.conftest import issued, token_of

COLD_BYTES = 120 * 1024
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31mred\x00\u202egnp.exe\u2066\r\x9b2J\ufeff\U000e0041' \" {{ 7*7 }}"
HARMFUL = pytest.mark.parametrize("hostile", [HOSTILE, f"{HOSTILE} {'x' * 1_000_000}"], ids=["", "of a megabyte"])
MOST_OF_A_PAGE = 250_000
"""Characters of a page, whatever it has to show."""


async def triggered(runtime, agent="assistant", focus="", payload=None):
    return await runtime.submit(AgentRef.parse(agent), Trigger(TriggerKind.API, payload, focus))


def change(runtime, run_id, **fields):
    runtime._runs[run_id] = replace(runtime._runs[run_id], **fields)


def journal(runtime, run_id, entries):
    at = runtime._clock.now()
    runtime._journals[run_id] = [
        JournalEntry(seq, kind, at + timedelta(seconds=seq), data) for seq, (kind, data) in enumerate(entries, start=1)
    ]


def rows(page):
    return re.findall(r'<tr id="([^"]+)"', page)


async def test_the_list_has_the_newest_runs_first_with_their_outcomes_and_leads_to_earlier_ones(browser, runtime):
    runs = [(await triggered(runtime, focus=f"order {number}")).run_id for number in range(120)]
    failure = RunResult(RunStatus.FAILED, error=RunError("model_unavailable", "nobody answers"))
    change(runtime, runs[119], status=RunStatus.FAILED, result=failure)

    first = (await browser.get("/console/runs")).text
    assert rows(first) == runs[:69:-1]
    assert "order 119" in first
    assert "model_unavailable: nobody answers" in first
    assert "一切正常" in first
    following = html.unescape(re.search(r'rel="next" href="([^"]+)"', first)[1])
    second = (await browser.get(following)).text
    assert rows(second) == runs[69:19:-1]
    await triggered(runtime)
    assert rows((await browser.get(following)).text) == rows(second)
    last = (await browser.get(html.unescape(re.search(r'rel="next" href="([^"]+)"', second)[1]))).text
    assert rows(last) == runs[19::-1]
    assert 'rel="next"' not in last


async def test_behind_the_first_run_there_is_no_earlier_one_and_no_word_of_a_first_visit(browser, runtime):
    oldest = await triggered(runtime)

    page = (await browser.get(f"/console/runs?before={oldest.run_id}")).text

    assert rows(page) == []
    assert "No earlier run" in page
    assert "Nothing has run yet" not in page


async def test_a_run_that_is_run_again_keeps_its_priority(browser, runtime):
    await browser.sign_in(await issued(runtime, "operator"))
    first = await triggered(runtime)
    change(runtime, first.run_id, priority=9)

    await browser.fill(f"/console/runs/{first.run_id}", f"/console/runs/{first.run_id}/rerun", once="a")
    await browser.fill("/console/runs", "/console/runs/selection", action="rerun", run=first.run_id, once="b")

    assert [each.priority for each in runtime._runs.values()] == [9, 9, 9]


async def test_filters_are_in_the_address_and_stay_on_the_way_to_earlier_runs(browser, runtime):
    for number in range(60):
        await triggered(runtime, "assistant:a" if number % 2 else "assistant:b")
    await triggered(runtime, "patient")

    of_one = (await browser.get("/console/runs?agent=assistant:a")).text
    assert len(rows(of_one)) == 30
    assert 'value="assistant:a"' in of_one
    running = (await browser.get("/console/runs?status=running")).text
    assert len(rows(running)) == 1
    completed = (await browser.get("/console/runs?status=completed")).text
    assert "status=completed&amp;before=" in completed
    assert "No run matches" in (await browser.get("/console/runs?status=terminated")).text
    for nowhere in ("run_gone", "%00"):
        gone = await browser.get(f"/console/runs?before={nowhere}")
        assert (gone.status_code, gone.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert (await browser.get("/console/runs?upto=run_gone")).status_code == 200
    for wrong in ("status=nonsense", "agent=NO"):
        refused = await browser.get(f"/console/runs?{wrong}")
        assert (refused.status_code, refused.headers["content-type"]) == (422, "text/html; charset=utf-8")


async def test_what_comes_while_a_page_is_looked_at_is_counted_and_moves_no_row(browser, runtime):
    ids = [(await triggered(runtime)).run_id for _ in range(3)]
    page = (await browser.get("/console/runs")).text
    source = html.unescape(re.search(r'<live-region src="([^"]*fragment=rows[^"]*)"', page)[1])

    assert "new run" not in (await browser.get(source)).text
    for _ in range(12):
        await triggered(runtime, "patient")
    part = (await browser.get(source)).text

    assert "12 new runs: show" in part
    assert rows(part) == ids[::-1]
    assert "<html" not in part
    for _ in range(40):
        await triggered(runtime, "patient:b")
    assert "50 or more new runs: show" in (await browser.get(source)).text


async def test_before_anything_ran_the_page_says_how_to_begin_and_its_form_leads_to_the_first_run(browser, runtime):
    page = (await browser.get("/console/runs")).text
    assert "Nothing has run yet" in page
    assert "<option>broken" not in page

    sent = await browser.send_form("/console/triggers", token=token_of(page), agent="patient", focus="磁盘")

    (run,) = runtime._runs.values()
    assert (sent.status_code, sent.headers["location"]) == (303, f"/console/runs/{run.run_id}")
    assert (run.agent.agent_id, run.trigger.focus) == ("patient", "磁盘")
    assert "磁盘" in (await browser.get(sent.headers["location"])).text
    assert "Nothing has run yet" not in (await browser.get("/console/runs")).text


async def test_whoever_is_signed_in_is_who_asked_for_the_runs_that_forms_begin(browser, runtime):
    issued_key = await runtime.keys.create(LOCAL, KeyRequest("ada", ("operator",)))
    await browser.sign_in(issued_key.text)
    first = await triggered(runtime)

    await browser.fill("/console/runs", "/console/triggers", agent="patient", focus="look")
    await browser.fill("/console/agents/patient", "/console/agents/patient/triggers", focus="look again")
    await browser.fill(f"/console/runs/{first.run_id}", f"/console/runs/{first.run_id}/rerun", once="a")
    await browser.fill("/console/runs", "/console/runs/selection", action="rerun", run=first.run_id, once="b")

    begun = [each for each in runtime._runs.values() if each.run_id != first.run_id]
    assert [each.trigger.submitters for each in begun] == [(f"key:{issued_key.key.key_id}",)] * 4


async def test_a_selection_is_shown_before_anything_is_done_with_it(browser, runtime):
    running, over = await triggered(runtime, "patient"), await triggered(runtime)
    address = f"/console/runs/selection?action=cancel&run={running.run_id}&run={over.run_id}"

    page = (await browser.get(address)).text
    assert "Cancel: 1 run<" in page
    assert "Left alone" in page
    assert runtime._runs[running.run_id].status is RunStatus.RUNNING

    chosen = [running.run_id, over.run_id]
    done = await browser.send_form("/console/runs/selection", token=token_of(page), action="cancel", run=chosen)
    assert (done.status_code, done.headers["location"]) == (303, "/console/runs?did=cancel-1")
    assert runtime._runs[running.run_id].status is RunStatus.CANCELLED
    assert runtime._runs[over.run_id].status is RunStatus.COMPLETED
    assert "1 run asked to stop." in (await browser.get(done.headers["location"])).text


async def test_a_selection_runs_again_once_however_often_the_form_is_sent(browser, runtime):
    first, second = await triggered(runtime, "patient:a", "one", {"n": 1}), await triggered(runtime, "patient:b", "two")
    page = (await browser.get(f"/console/runs/selection?action=rerun&run={first.run_id}&run={second.run_id}")).text
    once = re.search(r'name="once" value="([^"]+)"', page)[1]
    fields = {"token": token_of(page), "once": once, "action": "rerun", "run": [first.run_id, second.run_id]}

    for _ in range(2):
        done = await browser.send_form("/console/runs/selection", **fields)
        assert done.headers["location"] == "/console/runs?did=rerun-2"

    *_, third, fourth = runtime._runs.values()
    assert len(runtime._runs) == 4
    assert [(each.agent.agent_id, each.trigger.focus, each.trigger.payload) for each in (third, fourth)] == [
        ("patient:a", "one", {"n": 1}),
        ("patient:b", "two", None),
    ]


@pytest.mark.parametrize(
    "asked", ["action=drop&run=x", "run=x", "action=cancel&run=" + "&run=".join(map(str, range(51)))]
)
async def test_a_selection_of_too_much_or_for_nothing_is_refused(browser, runtime, asked):
    assert (await browser.get(f"/console/runs/selection?{asked}")).status_code == 422


async def test_a_run_shows_what_was_said_called_and_found(browser, runtime):
    run = await triggered(runtime, "assistant", "看一下大盘", {"symbol": "600519"})

    page = (await browser.get(f"/console/runs/{run.run_id}")).text

    for text in ("看一下大盘", "600519", "Let me look.", "负载", "invalid_arguments", "query: is missing", "scripted"):
        assert text in page, text
    assert page.index("Let me look.") < page.index("query: is missing") < page.index("Finished")
    assert '<rect class="bar on-model' in page
    assert '<rect class="bar on-tools bad"' in page
    assert "curl http://localhost:8700/v1/agents/assistant/triggers" in page
    assert "<run-stream>" in page
    raw = (await browser.get(f"/console/runs/{run.run_id}?view=journal")).text
    assert "&#34;run_id&#34;" not in raw
    assert "run_finished" in raw
    assert (await browser.get(f"/console/runs/{run.run_id}?view=nothing")).status_code == 422
    entry = await browser.get(f"/console/runs/{run.run_id}/entries/4")
    assert entry.headers["content-type"] == "text/plain; charset=utf-8"
    assert '"kind": "model_replied"' in entry.text
    for missing in ("entries/99", "entries/0", "entries/x", "entries/99999999999"):
        assert (await browser.get(f"/console/runs/{run.run_id}/{missing}")).status_code == 404


async def test_a_long_run_opens_at_its_newest_entries_and_leads_to_earlier_ones(browser, runtime):
    run = await triggered(runtime, "patient")
    journal(runtime, run.run_id, [(EntryKind.RUN_ACTIVE, {"seconds": number}) for number in range(450)])

    def shown(page):
        return [int(each) for each in re.findall(r'<article [^>]*id="e(\d+)"', page)]

    page = (await browser.get(f"/console/runs/{run.run_id}")).text
    assert shown(page) == [*range(251, 451)]
    earlier = (await browser.get(f"/console/runs/{run.run_id}?before=251")).text
    assert shown(earlier) == [*range(51, 251)]
    assert "<run-stream>" in earlier
    earliest = (await browser.get(f"/console/runs/{run.run_id}?before=51")).text
    assert shown(earliest) == [*range(1, 51)]
    assert "Earlier entries" not in earliest


async def test_the_stream_of_a_run_has_the_entries_of_its_page_from_where_that_ends(browser, runtime):
    run = await triggered(runtime, "patient", "wait")
    page = (await browser.get(f"/console/runs/{run.run_id}")).text
    source = html.unescape(re.search(r'<run-stream src="([^"]+)"', page)[1])
    assert source.endswith("/stream?after=2&view=conversation")
    await runtime.cancel(run.agent.tenant, run.run_id)

    streamed = (await browser.get(source)).text

    assert streamed.startswith("id: 4\nevent: entries\ndata: ")
    assert [int(each) for each in re.findall(r'id="e(\d+)"', streamed)] == [3, 4]
    assert streamed.endswith("event: end\ndata: cancelled\n\n")
    again = (await browser.get(source, headers={"Last-Event-ID": "3"})).text
    assert [int(each) for each in re.findall(r'id="e(\d+)"', again)] == [4]


async def test_a_run_is_cancelled_and_run_again_by_its_forms(browser, runtime):
    run = await triggered(runtime, "patient", "wait", {"n": 1})
    page = f"/console/runs/{run.run_id}"

    asking = html.unescape(
        re.search(r'<a class="button danger" href="([^"]+)">Cancel…', (await browser.get(page)).text)[1]
    )
    assert "Cancel: 1 run<" in (await browser.get(asking)).text
    assert not runtime._runs[run.run_id].cancel_requested
    done = await browser.fill(asking, "/console/runs/selection", action="cancel", run=run.run_id, back=page)
    assert (done.status_code, done.headers["location"]) == (303, f"{page}?did=cancel-1")
    assert runtime._runs[run.run_id].cancel_requested
    assert "The run is asked to stop" in (await browser.get(done.headers["location"])).text
    assert "Cancel…" not in (await browser.get(page)).text
    form = {"token": token_of((await browser.get(f"{page}/rerun")).text), "once": "o" * 16}
    answers = [await browser.send_form(f"{page}/rerun", **form) for _ in range(2)]
    (_, second) = runtime._runs.values()
    assert {each.headers["location"] for each in answers} == {f"/console/runs/{second.run_id}"}
    assert (second.trigger.focus, second.trigger.payload) == ("wait", {"n": 1})


async def test_cancelling_what_is_over_says_that_nothing_was_done(browser, runtime):
    run = await triggered(runtime, "assistant", "done")
    page = f"/console/runs/{run.run_id}"

    sent = await browser.fill(f"{page}/rerun", "/console/runs/selection", action="cancel", run=run.run_id, back=page)

    assert sent.headers["location"] == f"{page}?did=cancel-0"
    told = (await browser.get(sent.headers["location"])).text
    assert "Nothing was done: the run was over" in told
    assert "is asked to stop" not in told
    for nothing in ("cancel", "cancel-x", "rerun-1"):
        plain = (await browser.get(f"{page}?did={nothing}")).text
        assert ("Nothing was done" in plain, "is asked to stop" in plain) == (False, False), nothing


async def test_a_trigger_says_what_is_wrong_with_it(browser, runtime):
    page = "/console/agents/assistant"

    for fields, what in (
        ({"payload": "{1"}, "write JSON"),
        ({"focus": "x" * 501}, "focus"),
    ):
        refused = await browser.fill(page, f"{page}/triggers", **fields)
        assert (refused.status_code, what in refused.text) == (422, True)
    assert (await browser.fill(page, "/console/agents/nobody/triggers")).status_code == 404
    runtime.refusal = QueueFullError("assistant", 3)
    refused = await browser.fill(page, f"{page}/triggers")
    assert (refused.status_code, refused.headers["retry-after"], "queue full" in refused.text) == (429, "5", True)
    assert runtime._runs == {}


async def test_agents_are_listed_and_an_agent_shows_what_it_has(browser, runtime):
    await triggered(runtime, "assistant:客户", "查一下")

    everybody = (await browser.get("/console/agents")).text
    for text in ("assistant", "assistant:客户", "broken", "is missing", "has never run"):
        assert text in everybody
    page = (await browser.get("/console/agents/assistant:%E5%AE%A2%E6%88%B7")).text
    for text in ("查一下", "巡检", "there is no program rg on the PATH", "scripted:demo"):
        assert text in page
    broken = (await browser.get("/console/agents/broken")).text
    assert "The definition cannot be used" in broken
    assert "Trigger it" not in broken
    assert (await browser.get("/console/agents/nobody")).status_code == 404


async def test_memories_are_added_changed_archived_and_found(browser, runtime):
    page = "/console/agents/assistant/memories"

    await browser.fill(page, page, content="机器在九点最忙\r\nreally", tags="load, 客户,")
    (memory,) = runtime.memory.active[AgentRef.parse("assistant")]
    assert (memory.content, memory.tags) == ("机器在九点最忙\nreally", ("load", "客户"))
    path = f"{page}/{memory.memory_id}"
    before = (await browser.get(page)).text
    form = {"token": token_of(before), "seen": re.search(r'name="seen" value="([^"]+)"', before)[1]}
    await browser.send_form(path, **form, content="at ten", tags="load")
    (memory,) = runtime.memory.active[AgentRef.parse("assistant")]
    assert (memory.content, memory.tags) == ("at ten", ("load",))
    stale = await browser.send_form(path, **form, content="never", tags="")
    assert stale.status_code == 409
    assert "at ten" in (await browser.get(f"{page}?q=ten")).text
    assert "Nothing comes to its mind" in (await browser.get(f"{page}?q=eleven")).text
    empty = await browser.fill(page, page, content=" ")
    assert empty.status_code == 422

    await browser.fill(page, f"{path}/archive")
    assert runtime.memory.active[AgentRef.parse("assistant")] == []
    assert "at ten" in (await browser.get(f"{page}?archived=yes")).text
    assert (await browser.fill(page, f"{path}/archive")).status_code == 404


async def test_of_a_memory_whose_tags_are_changed_the_text_stays_as_it_was_written(browser, runtime):
    page = "/console/agents/assistant/memories"
    memory = await runtime.memory.remember(AgentRef.parse("assistant"), "a\u202eb\r\nc", ())
    shown = (await browser.get(page)).text
    content = html.unescape(re.search(r'<textarea name="content"[^>]*required>([^<]+)<', shown)[1])
    assert content == "a\u202eb\r\nc"

    seen = re.search(r'name="seen" value="([^"]+)"', shown)[1]
    form = {"token": token_of(shown), "seen": seen, "content": content.replace("\n", "\r\n"), "tags": "new"}
    assert (await browser.send_form(f"{page}/{memory.memory_id}", **form)).status_code == 303

    (changed,) = runtime.memory.active[AgentRef.parse("assistant")]
    assert (changed.content, changed.tags) == (memory.content, ("new",))


async def test_of_a_memory_that_somebody_else_changed_meanwhile_the_page_says_what_and_it_stays(browser, runtime):
    page, ref = "/console/agents/assistant/memories", AgentRef.parse("assistant")
    memory = await runtime.memory.remember(ref, "at nine", ("load", "owner"))
    shown = (await browser.get(page)).text
    form = {"token": token_of(shown), "seen": re.search(r'name="seen" value="([^"]+)"', shown)[1]}
    form |= {"content": "at nine", "tags": "load, new"}
    for changes, said in (
        ({"tags": ("load", "secret")}, "(tags)"),
        ({"content": "at ten"}, "(content)"),
        ({"content": "at ten", "tags": ()}, "(content, tags)"),
    ):
        other = replace(memory, **changes)
        runtime.memory.active[ref] = [other]

        refused = await browser.send_form(f"{page}/{memory.memory_id}", **form)

        assert refused.status_code == 409
        assert said in refused.text
        assert runtime.memory.active[ref] == [other]
    runtime.memory.active[ref] = [replace(memory, tags=("owner", "load"))]
    assert (await browser.send_form(f"{page}/{memory.memory_id}", **form)).status_code == 303


async def test_an_approval_is_decided_with_a_comment_once(browser, runtime):
    approval = runtime.request_approval()
    path = f"/console/approvals/{approval.request.approval_id}"

    inbox = (await browser.get("/console/approvals")).text
    for text in ("mail.send", "张三", "dangerous tools ask", "/work", ">1<span"):
        assert text in inbox
    assert "Schema of the arguments" in (await browser.get(path)).text
    done = await browser.fill("/console/approvals", f"{path}/decision", decision="deny", reason="not on a Friday")
    assert (done.status_code, done.headers["location"]) == (
        303,
        f"/console/approvals?did={approval.request.approval_id}",
    )
    (decided,) = runtime._approvals.values()
    assert (decided.status.value, decided.decision.reason) == ("denied", "not on a Friday")
    assert "Nothing waits for a decision" in (await browser.get("/console/approvals")).text
    assert "not on a Friday" in (await browser.get("/console/approvals?status=any")).text
    again = await browser.fill("/console/runs", f"{path}/decision", decision="allow_once")
    assert again.status_code == 409


async def test_arguments_are_changed_only_if_somebody_writes_others(browser, runtime):
    untouched, changed, wrong = (runtime.request_approval() for _ in range(3))
    page = (await browser.get("/console/approvals")).text
    shown = html.unescape(re.search(r'<textarea name="arguments"[^>]*>([^<]+)<', page)[1]).replace("\n", "\r\n")
    assert "\\u2028" in shown

    async def decide(approval, arguments):
        path = f"/console/approvals/{approval.request.approval_id}/decision"
        return await browser.send_form(path, token=token_of(page), decision="allow_once", arguments=arguments)

    assert (await decide(untouched, shown)).status_code == 303
    assert (await decide(changed, '{"to": "ops"}')).status_code == 303
    assert (await decide(wrong, '{"to": 5}')).status_code == 422
    assert (await decide(wrong, "{")).status_code == 422
    decisions = [each.decision and each.decision.arguments for each in runtime._approvals.values()]
    assert decisions == [None, {"to": "ops"}, None]


async def test_who_decides_is_the_key(browser, runtime):
    approval = runtime.request_approval()
    await browser.sign_in(await issued(runtime, "approver"))

    path = f"/console/approvals/{approval.request.approval_id}/decision"
    await browser.fill("/console/approvals", path, decision="allow_once")

    (decided,) = runtime._approvals.values()
    assert decided.decision.by.endswith("(ci)")
    assert decided.decision.principal.startswith("key:")


async def test_what_a_key_may_not_do_is_not_offered(browser, runtime):
    run = await triggered(runtime, "patient")
    runtime.request_approval()
    await runtime.memory.remember(run.agent, "nine")
    await browser.sign_in(await issued(runtime, "viewer"))

    for path in ("runs", f"runs/{run.run_id}", "agents/patient", "agents/patient/memories", "approvals"):
        page = (await browser.get(f"/console/{path}")).text
        assert set(re.findall(r'method="post" action="([^"]+)"', page)) == {"/console/sign-out"}, path
        assert "checkbox" not in page


@HARMFUL
async def test_whatever_is_in_a_field_is_shown_as_text(browser, runtime, hostile):
    hostile = hostile[:30_000]  # an entry has it thirty times
    runtime.outcomes = (hostile,)
    run = await triggered(runtime, "assistant", hostile, {"x": hostile, hostile: 1})
    error = {"type": hostile, "message": hostile, "details": [hostile], "retryable": False}
    call = {"id": hostile, "name": hostile, "arguments": hostile}
    told = {
        "trigger": hostile, "focus": hostile, "text": hostile, "tool_calls": [call], "model": hostile, "tool": hostile,
        "arguments": hostile, "note": hostile, "user": hostile, "visible": [hostile], "reason": hostile, "by": hostile,
        "approval_id": hostile, "next_model": hostile, "decision": hostile, "status": hostile, "hooks": [hostile],
        "executed": hostile, "asking": hostile, "events": [{"source": hostile}], "running": [{"tool": hostile}],
        "approvals": [hostile], "runs": {"c": hostile}, "content": hostile, "system": hostile, "tools": hostile,
    }  # fmt: skip
    failed = [EntryKind.MODEL_ATTEMPT_FAILED]
    wrong = [EntryKind.TOOL_FINISHED, EntryKind.RUN_FINISHED]
    entries = [
        (kind, told | {"error": hostile if kind in failed else None} | ({"tool_calls": 1} if kind in wrong else {}))
        for kind in EntryKind
    ]
    journal(runtime, run.run_id, entries + [(kind, told | {"error": error, "tool_calls": 1}) for kind in wrong])
    result = RunResult(RunStatus.FAILED, final_text=hostile, model=hostile, error=RunError(hostile, hostile))
    trigger = replace(
        runtime._runs[run.run_id].trigger, source=hostile, session=hostile, user=hostile, task_type=hostile
    )
    change(runtime, run.run_id, result=result, trigger=trigger)
    live = await triggered(runtime, "patient", hostile)
    runtime.request_approval(
        tool=hostile, description=hostile, reason=hostile, arguments={hostile: hostile}, written=hostile,
        tags=(hostile,), cwd=hostile, parent=hostile, hooks=({hostile: hostile},), needed=2,
    )  # fmt: skip
    await runtime.memory.remember(run.agent, hostile[:2_000], (hostile,))
    journal(runtime, live.run_id, entries)

    paths = [
        "runs", "runs?agent=assistant", f"runs/{run.run_id}", f"runs/{run.run_id}?view=journal", f"runs/{run.run_id}?fragment=head",
        f"runs/{live.run_id}", "agents", "agents/assistant", "agents/assistant/memories", "approvals",
        f"runs/selection?action=rerun&run={run.run_id}", "runs?fragment=rows", "runs?text=%3Cscript%3E&agent=assistant",
        "runs?definition=%22%3E%3Cscript%3E",
        "runs/matching?action=rerun&agent=assistant&text=script", "approvals?fragment=live",
        "runs/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "runs?agent=%3Cscript%3E", "agents/assistant/memories?q=%3Cscript%3E%E2%80%AE",
        "sign-in?next=%22%3E%3Cscript%3E",
    ]  # fmt: skip
    for path in paths:
        is_harmless(await browser.get(f"/console/{path}"), path)
    is_harmless(await browser.get("/console/approvals/apr_1"), "what may be edited is there whole", most=5_000_000)
    await runtime.cancel(live.agent.tenant, live.run_id)
    stream = await browser.get(f"/console/runs/{live.run_id}/stream")
    is_harmless(stream, "stream")
    assert f'id="e{len(EntryKind)}"' in stream.text
    plain = await browser.get(f"/console/runs/{run.run_id}/entries/9")
    assert plain.headers["content-type"].startswith("text/plain")
    assert plain.headers["x-content-type-options"] == "nosniff"


def is_harmless(answer, path, most=MOST_OF_A_PAGE):
    page = answer.text
    assert answer.status_code < 500, path
    assert len(page) < most, path
    scripts = re.findall(r"<script[^>]*>", page)
    assert all(
        re.fullmatch(
            r'<script type="module" src="/console/static/(?:console|runs?|palette)\.js\?v=[0-9a-f]{12}">', each
        )
        for each in scripts
    ), path
    assert "<img" not in page, path
    assert not re.findall(r"<[^>]*\son\w+=", re.sub(r'"[^"]*"', '""', page)), path
    assert not re.findall(r"\sstyle=", re.sub(r'"[^"]*"', '""', page)), path
    assert not set(page) & {*"\x00\x1b\r\u202e\u2066\ufeff", "\U000e0041"}, path
    assert "\x9b" not in re.sub(r' value="[^"]*"|<textarea[^>]*>[^<]*', "", page), path


async def test_a_line_of_a_megabyte_is_cut_and_leads_to_the_whole(browser, runtime):
    run = await triggered(runtime)
    line = "x" * 1_000_000
    journal(
        runtime,
        run.run_id,
        [(EntryKind.MODEL_REPLIED, {"text": line}), (EntryKind.TOOL_FINISHED, {"tool": "t", "content": line})],
    )

    for view in ("conversation", "journal"):
        page = (await browser.get(f"/console/runs/{run.run_id}?view={view}")).text
        assert len(page) < 60_000
        assert f'href="/console/runs/{run.run_id}/entries/1">show all' in page
    assert line in (await browser.get(f"/console/runs/{run.run_id}/entries/1")).text


async def test_a_first_visit_transfers_little_and_a_second_one_the_page_alone(browser, runtime):
    for number in range(60):
        await triggered(runtime, focus=f"order {number} 看一下大盘")
    page = await browser.get("/console/runs")
    files = sorted({html.unescape(each) for each in re.findall(r'(?:href|src)="(/console/static/[^"#]+)', page.text)})
    assert len(files) == 5
    total = len(page.content)
    for each in files:
        file = await browser.get(each, headers={"Accept-Encoding": "gzip"})
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert file.headers["content-encoding"] == "gzip"
        total += len(gzip.compress(file.content))
    assert total <= COLD_BYTES
    assert (await browser.get(files[0].partition("?")[0])).headers["cache-control"] == "no-cache"
    assert (await browser.get("/console/static/../surface.py")).status_code == 404


def test_five_elements_are_our_own_and_pages_use_no_others():
    static, templates = (resources.files("console").joinpath(each).iterdir() for each in ("static", "templates"))
    scripts = "".join(each.read_text() for each in static if each.name.endswith(".js"))
    pages = "".join(each.read_text() for each in templates)

    defined = re.findall(r'customElements\.define\("([^"]+)"', scripts)

    assert len(defined) == 5
    assert {*re.findall(r"<([a-z]+-[a-z-]+)", pages)} == {*defined}


async def test_a_run_of_many_long_entries_transfers_little(browser, runtime):
    run = await triggered(runtime)
    said = [f"Order {number} has to be looked at before anything is paid back. " * 10 for number in range(300)]
    journal(runtime, run.run_id, [(EntryKind.MODEL_REPLIED, {"text": each}) for each in said])

    page = await browser.get(f"/console/runs/{run.run_id}")

    assert said[-1].strip() in page.text
    assert len(page.content) > COLD_BYTES
    assert page.headers["content-encoding"] == "gzip"
    assert int(page.headers["content-length"]) < COLD_BYTES / 2
    plain = await browser.get(f"/console/runs/{run.run_id}", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == page.headers["vary"] == "Accept-Encoding"


async def test_the_token_of_forms_is_another_one_in_each_page_and_each_is_good(browser, runtime):
    await triggered(runtime)
    tokens = [token_of((await browser.get("/console/agents/assistant")).text) for _ in range(2)]

    assert tokens[0] != tokens[1]
    for token in tokens:
        sent = await browser.send_form("/console/agents/assistant/triggers", token=token, focus="again")
        assert sent.status_code == 303
    for wrong in ("", "x", "ü", tokens[0][:-8], tokens[0][4:], tokens[0][::-1]):
        sent = await browser.send_form("/console/agents/assistant/triggers", token=wrong, focus="again")
        assert sent.status_code == 403, wrong


async def test_the_badge_counts_what_waits_on_every_page(browser, runtime):
    run = await triggered(runtime, "patient")
    for _ in range(3):
        runtime.request_approval()
    for path in ("runs", f"runs/{run.run_id}", "agents", "approvals", "runs?fragment=rows"):
        page = (await browser.get(f"/console/{path}")).text
        assert '<b class="badge" data-badge data-v="3">' in page, path
        ids = re.findall(r' id="([^"]+)"', page)
        assert len(ids) == len({*ids}), path
