"""Charts, the page of usage, and agents by what they cost."""

from __future__ import annotations

import re
from datetime import timedelta

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.ids import TenantId
from tests.console.conftest import issued
from tests.console.test_pages import COLD_BYTES, HOSTILE, triggered
from tests.usage import ended, result

CHEAP, DEAR, NEVER = "assistant:cheap", "patient:dear", "broken"


async def fill(runtime):
    store, now = runtime.schedules, runtime._clock.now()
    await ended(store, AgentRef.parse(CHEAP), now, result(0.25), [("look", 20, "")] * 3)
    await ended(store, AgentRef.parse(DEAR), now, result(2.0), [("crawl", 12_000, ""), ("crawl", 40_000, "timeout")])
    await ended(store, AgentRef.parse(DEAR), now, result(1.0, RunStatus.FAILED))
    await ended(store, AgentRef.parse(DEAR, TenantId("acme")), now, result(64.0), [("foreign", 60_000, "")])


def cells(page, table):
    """The texts of a table's rows."""
    body = re.search(rf'id="{table}".*?<tbody>(.*?)</tbody>', page, re.DOTALL)[1]
    return [
        [re.sub(r"<[^>]+>", "", each).strip() for each in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    ]


async def test_the_page_of_usage_has_the_dearest_agents_and_the_slowest_tools_first(browser, runtime):
    await fill(runtime)

    page = (await browser.get("/console/usage")).text

    assert cells(page, "by-agent") == [
        [DEAR, "$3.00", "2", "1", "2,100", "0 ms", "2.00 s"],
        [CHEAP, "$0.2500", "1", "0", "1,050", "0 ms", "2.00 s"],
    ]
    assert cells(page, "by-tool") == [
        ["crawl", "26.0 s", "40.0 s", "40.0 s", "2", "2", "1 (50 %)"],
        ["look", "20 ms", "20 ms", "20 ms", "0", "3", "0"],
    ]
    assert "foreign" not in page
    assert "$64" not in page
    for days in ("7", "30"):
        assert cells((await browser.get(f"/console/usage?days={days}")).text, "by-agent") == cells(page, "by-agent")


async def test_a_chart_is_a_picture_with_a_title_on_each_column_and_its_numbers_as_a_table(browser, runtime):
    await fill(runtime)

    for path in ("/console/usage", "/console/runs", f"/console/agents/{DEAR}"):
        page = (await browser.get(path)).text
        assert re.search(r'<svg [^>]*role="img" aria-label="Runs by (hour|minute|day)', page), path
        assert re.search(
            r"<title>[^<]+: 1 completed, 1 failed</title>|<title>[^<]+: 2 completed, 1 failed</title>", page
        )
        assert re.search(r"<details><summary>As a table</summary>\s*<table", page)
        assert "style=" not in page
    agent = (await browser.get(f"/console/agents/{DEAR}")).text
    assert 'aria-label="Cost by day' in agent
    assert "$3.00 cost</title>" in agent


async def test_columns_are_as_high_as_what_they_stand_for_and_stand_where_their_time_is(browser, runtime):
    now = runtime._clock.now()
    for minutes, number in ((119, 1), (0, 4)):
        for _ in range(number):
            await ended(runtime.schedules, AgentRef.parse(CHEAP), now - timedelta(minutes=minutes), result())

    page = (await browser.get("/console/runs?fragment=chart")).text

    columns = re.findall(r'<rect class="on-good" x="([\d.]+)" width="([\d.]+)" y="([\d.]+)" height="([\d.]+)"', page)
    assert [tuple(map(float, each[2:])) for each in columns] == [(75.0, 25.0), (0.0, 100.0)]
    assert (float(columns[0][0]) < 9, float(columns[1][0]) > 990) == (True, True)
    assert "most: 4" in page
    assert '<table class="runs"' not in page


async def test_the_list_of_runs_that_is_asked_for_again_and_again_draws_nothing(browser, runtime, monkeypatch):
    await fill(runtime)

    async def refuse(_where):
        raise AssertionError("read")

    monkeypatch.setattr(runtime, "run_usage", refuse)

    assert (await browser.get("/console/runs?fragment=rows")).status_code == 200
    assert (await browser.get("/console/runs?status=failed")).status_code == 200


async def test_agents_show_what_they_cost_today_and_are_sorted_by_it(browser, runtime):
    await fill(runtime)
    for name in (CHEAP, DEAR):
        await triggered(runtime, name)

    by_name = (await browser.get("/console/agents")).text
    assert 'href="/console/agents?sort=cost"' in by_name
    assert "$3.00" in by_name
    by_cost = (await browser.get("/console/agents?sort=cost")).text
    assert re.findall(r'<tr id="agent-([^"]+)"', by_cost) == [DEAR, CHEAP]
    assert (by_cost.index("$3.00") < by_cost.index("$0.2500"), NEVER in by_cost) == (True, False)
    assert (await browser.get("/console/agents?sort=name")).status_code == 422


async def test_an_agent_whose_definition_is_gone_is_there_with_what_it_cost(browser, runtime):
    await ended(runtime.schedules, AgentRef.parse("gone"), runtime._clock.now(), result(5.0))

    page = (await browser.get("/console/agents?sort=cost")).text

    assert ("agent-gone" in page, "$5.00" in page, "broken" in page) == (True, True, True)


async def test_where_nothing_has_ended_the_pages_say_so_and_draw_nothing(browser):
    for path, said in (
        ("/console/usage", "No run has ended today"),
        ("/console/usage?days=7", "No run has ended in these days"),
        ("/console/agents?sort=cost", "No agent has ended a run today"),
    ):
        page = (await browser.get(path)).text
        assert (said in page, "<figure" in page) == (True, False)
    assert "<figure" not in (await browser.get("/console/runs")).text
    for wrong in ("2", "x", "-1"):
        assert (await browser.get(f"/console/usage?days={wrong}")).status_code == 422


async def test_a_key_for_some_agents_sees_what_these_cost_and_no_numbers_of_all(browser, runtime):
    await fill(runtime)
    await browser.sign_in(await issued(runtime, "viewer", agents=(f"agent:{CHEAP}",)))

    page = (await browser.get("/console/usage")).text
    assert ("what they came to is on their pages" in page, "crawl" in page, "$3.00" in page) == (True, False, False)
    assert "<figure" not in (await browser.get("/console/runs")).text
    assert "<figure" in (await browser.get(f"/console/agents/{CHEAP}")).text
    by_cost = (await browser.get("/console/agents?sort=cost")).text
    assert re.findall(r'<tr id="agent-([^"]+)"', by_cost) == [CHEAP]
    assert "$3.00" not in by_cost


async def test_agents_of_a_key_are_sorted_by_cost_however_many_others_cost_more(browser, runtime):
    now = runtime._clock.now()
    for number in range(120):
        await ended(runtime.schedules, AgentRef.parse(f"assistant:{number}"), now, result(9.0 + number))
    await ended(runtime.schedules, AgentRef.parse("patient:mine"), now, result(0.25))
    first = (await browser.get("/console/agents?sort=cost")).text
    assert re.findall(r'<tr id="agent-([^"]+)"', first) == [f"assistant:{number}" for number in range(119, 19, -1)]
    assert "These are the first 100." in first

    await browser.sign_in(await issued(runtime, "viewer", agents=("agent:patient:*",)))
    of_key = (await browser.get("/console/agents?sort=cost")).text

    assert re.findall(r'<tr id="agent-([^"]+)"', of_key) == ["patient:mine"]
    assert ("$0.2500" in of_key, "These are the first" in of_key) == (True, False)


async def test_an_open_page_of_agents_by_cost_has_them_in_their_new_order(browser, runtime):
    await fill(runtime)
    page = (await browser.get("/console/agents?sort=cost")).text
    part = re.search(r'<live-region src="([^"]*)"', page)[1].replace("&amp;", "&")
    whole = re.compile(r'<div id="agents" data-v="([^"]+)">(.*?)</div>', re.DOTALL)
    first = whole.search((await browser.get(part)).text)

    await ended(runtime.schedules, AgentRef.parse(CHEAP), runtime._clock.now(), result(64.0))
    second = whole.search((await browser.get(part)).text)

    assert first[1] != second[1]
    assert re.findall(r'<tr id="agent-([^"]+)"', first[2]) == [DEAR, CHEAP]
    assert re.findall(r'<tr id="agent-([^"]+)"', second[2]) == [CHEAP, DEAR]


async def test_costs_of_agents_are_for_keys_that_may_read_runs(browser, runtime):
    await fill(runtime)
    await browser.sign_in(await issued(runtime, "agents:read"))

    page = (await browser.get("/console/agents")).text

    assert ("Cost today" in page, "$3.00" in page) == (False, False)
    assert (await browser.get("/console/agents?sort=cost")).status_code == 403
    assert "<figure" not in (await browser.get(f"/console/agents/{CHEAP}")).text


async def test_a_tool_of_any_name_is_text_and_a_day_of_many_agents_stays_light(browser, runtime):
    now = runtime._clock.now()
    await ended(runtime.schedules, AgentRef.parse(CHEAP), now, result(), [(HOSTILE, 5, "")])
    for number in range(60):
        await ended(runtime.schedules, AgentRef.parse(f"assistant:{number}"), now, result(float(number)))

    answer = await browser.get("/console/usage")

    assert "<script>alert" not in answer.text
    assert "\u202e" not in answer.text
    assert len(cells(answer.text, "by-agent")) == 50
    assert "These are the first 50" in answer.text
    assert len(answer.content) < COLD_BYTES


async def test_of_more_tools_than_are_shown_the_page_says_which_they_are(browser, runtime):
    called = [(f"tool{number}", 1_000 + number, "") for number in range(201)]
    await ended(runtime.schedules, AgentRef.parse(CHEAP), runtime._clock.now(), result(), called[:200])
    assert "that took most time" not in (await browser.get("/console/usage")).text
    await ended(runtime.schedules, AgentRef.parse(CHEAP), runtime._clock.now(), result(), called[200:])

    page = (await browser.get("/console/usage")).text

    assert "These are the 200 that took most time in all" in page
    shown = [each[0] for each in cells(page, "by-tool")]
    assert (len(shown), "tool0" in shown) == (200, False)
