"""What an agent's page says of who it is, what fills its next prompt, its budgets, artifacts and memories."""

from __future__ import annotations

import html
import re

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, Limits, ModelChoice
from owlclaw_ray.domain.budget import NANO, Budget, BudgetPeriod, BudgetScope, BudgetUnit
from owlclaw_ray.domain.governance import Governance
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import ChainedRecord, LedgerKind, LedgerRecord
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleStatus
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.ids import RecordId
from owlclaw_ray.models.tokens import estimate_tokens
from owlclaw_ray.runtime.api import Runtime
from tests.console.conftest import issued
from tests.console.test_pages import HARMFUL, change, is_harmless, journal, triggered
from tests.console.test_schedules import stored
from tests.serve.double import ARTIFACT

TOOLS = '[{"function": {"name": "look", "description": "Looks."}}]'
BUDGETS = (
    Budget("day", BudgetScope.AGENT, BudgetUnit.MONEY, 2 * NANO, BudgetPeriod.DAY),
    Budget("each", BudgetScope.RUN, BudgetUnit.TOKENS, 50_000),
)


def definition(name="assistant", **changes):
    told = {
        "name": name, "version": "a1b2c3", "folder": "", "soul": "你很冷静。", "capabilities": "- look", "constraints": "- never sell",
        "model": ModelChoice(("large", "small")), "limits": Limits(short_term_tokens=77),
        "skills": (Skill("巡检", "怎么看负载", "/SKILL.md", 20),), "governance": Governance(budgets=BUDGETS),
    }  # fmt: skip
    return AgentDefinition(**told | changes)


def budgets_of(page):
    return re.search(r'<ul class="gauges budgets">(.*?)</ul>', page, re.DOTALL)[1]


async def test_an_agent_shows_who_it_is_and_how_its_budgets_stand(browser, runtime):
    runtime.defined["assistant"] = definition()

    page = (await browser.get("/console/agents/assistant")).text

    for text in ("a1b2c3", "large → small", "你很冷静。", "- look", "- never sell"):
        assert text in page, text
    budgets = budgets_of(page)
    for text in ("day, agent a day", "$0.00 of $2.00", "each, run", "for each run its own", "50,000 tokens"):
        assert text in budgets, text


async def test_the_bar_has_every_part_of_the_next_prompt_with_the_tools_of_the_last_run(browser, runtime):
    runtime.defined["patient"] = definition("patient")
    before = (await browser.get("/console/agents/patient")).text
    assert "without its tools: they are known when it has run" in before
    run = await triggered(runtime, "patient")
    usage = {"prompt_tokens": 4_321, "completion_tokens": 5, "cached_tokens": 0, "cost": 0}
    reply = {"text": "", "tool_calls": [], "model": "large", "usage": usage, "duration_ms": 1}
    built = {"system": "s", "tools": "t", "user": "…", "visible": ["look"], "model": "large"}
    journal(runtime, run.run_id, [(EntryKind.PROMPT_BUILT, built), (EntryKind.MODEL_REPLIED, reply)])
    runtime.texts[run.run_id] = {"t": TOOLS}

    page = (await browser.get("/console/agents/patient")).text

    def tokens(part):
        return re.search(rf"<bdi>{part}</bdi></td><td class=\"num\">(.*?)</td>", page)[1]

    assert tokens("Your identity") == str(estimate_tokens("你很冷静。"))
    assert tokens("Schemas of 1 tool") == str(estimate_tokens(TOOLS))
    assert tokens("Skill: 巡检") == "20"
    assert tokens("What triggers it") == "up to 77"
    assert "counted 4,321 tokens in its first prompt" in page
    assert page.count('<rect class="of-') == len(re.findall(r'<span class="key of-', page))


async def test_what_a_memory_takes_of_a_prompt_is_left_out_of_one_that_has_none_to_show(browser, runtime):
    runtime.defined["patient"] = definition("patient")
    ref = AgentRef.parse("patient")

    assert "At most 5 memories" not in (await browser.get("/console/agents/patient")).text
    await runtime.memory.remember(ref, "nine")
    assert "At most 5 memories" in (await browser.get("/console/agents/patient")).text


async def test_artifacts_are_listed_for_those_who_may_read_runs_and_downloaded_as_they_are(browser, runtime):
    path = f"/console/agents/assistant/artifacts/{ARTIFACT.artifact_id}"
    assert f'href="{path}"' in (await browser.get("/console/agents/assistant")).text

    file = await browser.get(path)
    assert file.content == ARTIFACT.content
    assert file.headers["content-disposition"] == f'attachment; filename="{ARTIFACT.artifact_id}"'
    assert file.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in file.headers["content-security-policy"]
    assert (await browser.get("/console/agents/patient/artifacts/art_none")).status_code == 404
    await browser.sign_in(await issued(runtime, "agents:read"))
    assert "Artifacts" not in (await browser.get("/console/agents/assistant")).text
    assert (await browser.get(path)).status_code == 403


async def test_an_agent_shows_its_active_and_paused_schedules_however_many_are_over(browser, runtime):
    for number in range(120):
        await stored(runtime, number, status=ScheduleStatus.DONE)
    await stored(runtime, 120, status=ScheduleStatus.PAUSED)
    await stored(runtime, 121)

    page = (await browser.get("/console/agents/assistant")).text

    shown = re.findall(r'<a href="/console/schedules/(sch_\d+)">', page)
    assert shown == ["sch_121", "sch_120"]
    assert 'href="/console/schedules?agent=assistant">all<' in page
    assert "These are the first" not in page
    for number in range(122, 222):
        await stored(runtime, number)
    page = (await browser.get("/console/agents/assistant")).text
    assert "These are the first 100 of" in page
    assert 'href="/console/schedules?agent=assistant&amp;status=paused"' in page
    assert "None is active or paused" in (await browser.get("/console/agents/patient")).text


async def test_an_agent_with_more_artifacts_than_are_shown_says_so(browser, runtime):
    ref = AgentRef.parse("patient")
    for number in range(20):
        runtime._stored[(ref, f"art_{number}")] = replace(ARTIFACT, artifact_id=f"art_{number}")
    assert "These are the newest" not in (await browser.get("/console/agents/patient")).text

    runtime._stored[(ref, "art_20")] = replace(ARTIFACT, artifact_id="art_20")
    page = (await browser.get("/console/agents/patient")).text

    assert "These are the newest 20; <code>GET /v1/agents/patient/artifacts" in page
    assert len(re.findall(r'href="/console/agents/patient/artifacts/', page)) == 20


def note(runtime, what, memory_id, **data):
    told = {"what": what, "by": "ana", "memory_ids": [memory_id], **data}
    number = len(runtime._ledger) + 1
    record = LedgerRecord(
        RecordId(f"rec_m{number}"), "default", "assistant", "", LedgerKind.MEMORY, runtime._clock.now(), told
    )
    runtime._ledger.append(ChainedRecord(record, "test", number, "0", "1"))


async def test_a_memory_has_its_history_newest_first(browser, runtime):
    memory = await runtime.memory.remember(AgentRef.parse("assistant"), "at ten", ("load",))
    other = await runtime.memory.remember(AgentRef.parse("assistant"), "other", idempotency_key=None)
    note(runtime, "add", memory.memory_id, content="at nine", tags=["load"])
    note(runtime, "edit", memory.memory_id, content="at ten")
    note(runtime, "edit", memory.memory_id, error="the disk is full")
    note(runtime, "edit", other.memory_id, content="nobody asked")
    path = f"/console/agents/assistant/memories/{memory.memory_id}"
    assert f'href="{path}">history' in (await browser.get("/console/agents/assistant/memories")).text

    page = (await browser.get(path)).text

    assert page.index("the disk is full") < page.rindex("at ten") < page.index("at nine") < page.index("remembered")
    assert "nobody asked" not in page
    assert 'action="' + path + '/archive"' in page
    await runtime.memory.archive(AgentRef.parse("assistant"), (memory.memory_id,))
    archived = (await browser.get(path)).text
    assert '<span class="tag">archived</span>' in archived
    assert '/archive"' not in archived
    assert (await browser.get("/console/agents/assistant/memories/mem_none")).status_code == 404


@pytest.mark.parametrize("content", ["at\u200bten <b>", "one\r\ntwo", "订单\u202e"])
async def test_a_memory_whose_tags_are_edited_keeps_its_text(browser, runtime, content):
    memory = await runtime.memory.remember(AgentRef.parse("assistant"), content, ("load",))
    path = f"/console/agents/assistant/memories/{memory.memory_id}"
    page = (await browser.get(path)).text
    source = re.search(r'<textarea name="content"[^>]*>([^<]*)<', page)[1]
    written = html.unescape(source).replace("\r\n", "\n").replace("\n", "\r\n")

    fields = {"content": written, "tags": "load, new", "seen": re.search(r'name="seen" value="([^"]*)"', page)[1]}
    assert (await browser.fill(path, path, **fields)).status_code == 303

    edited = await runtime.memory.memory(AgentRef.parse("assistant"), memory.memory_id)
    assert (edited.content, edited.tags) == (content, ("load", "new"))


async def test_the_history_of_a_memory_is_for_those_who_may_read_the_ledger(browser, runtime):
    memory = await runtime.memory.remember(AgentRef.parse("assistant"), "at ten")
    note(runtime, "add", memory.memory_id, content="at nine")
    await browser.sign_in(await issued(runtime, "memories:read"))

    page = (await browser.get(f"/console/agents/assistant/memories/{memory.memory_id}")).text

    assert "at ten" in page
    assert "at nine" not in page
    assert "which your key may not read" in page


async def test_the_texts_of_a_definition_are_shown_up_to_twenty_thousand_characters(browser, runtime):
    lines = "\n".join(f"line {number:04}" for number in range(1_900))
    runtime.defined["assistant"] = definition(soul=lines)

    page = (await browser.get("/console/agents/assistant")).text

    assert "line 1899" in page
    assert "more characters" not in page


@HARMFUL
async def test_an_agent_and_a_memory_of_texts_that_mean_harm_are_text(browser, runtime, hostile):
    harm = {"soul": hostile, "capabilities": hostile, "constraints": hostile, "version": hostile, "timezone": hostile}
    budgets = Governance(budgets=(Budget(hostile, BudgetScope.AGENT, BudgetUnit.CALLS, 9),))
    skill = Skill(hostile, hostile, "/SKILL.md", 20)
    routes = ((hostile, (hostile,)),)
    model = ModelChoice((hostile, hostile))
    runtime.defined["assistant"] = definition(**harm, governance=budgets, skills=(skill,), routes=routes, model=model)
    memory = await runtime.memory.remember(AgentRef.parse("assistant"), hostile[:2_000], (hostile[:200],))
    note(runtime, hostile, memory.memory_id, content=hostile, tags=[hostile], by=hostile, error=hostile)

    for path in ("agents/assistant", f"agents/assistant/memories/{memory.memory_id}"):
        is_harmless(await browser.get(f"/console/{path}"), path)


async def test_the_live_part_of_an_agents_page_does_not_work_out_the_rest(browser, runtime, monkeypatch):
    async def never(self, agent):
        raise AssertionError("nobody needs it")

    monkeypatch.setattr(Runtime, "budgets", never)
    assert (await browser.get("/console/agents/assistant?fragment=live")).status_code == 200


async def test_an_agent_whose_run_waits_is_shown_as_waiting_here_and_in_the_list(browser, runtime):
    run = await triggered(runtime, "patient")
    pages = ("/console/agents", "/console/agents/patient")
    before = [(await browser.get(path)).text for path in pages]
    assert all('<span class="status is-running">' in page for page in before)

    change(runtime, run.run_id, status=RunStatus.WAITING)

    for path, page in zip(pages, before, strict=True):
        waiting = (await browser.get(path)).text
        assert '<span class="status is-waiting">waiting' in waiting
        assert '<span class="status is-running">' not in waiting
        versions = [re.search(r'id="agent-(?:patient|head)" data-v="(.*?)"', each)[1] for each in (page, waiting)]
        assert versions[0] != versions[1]
