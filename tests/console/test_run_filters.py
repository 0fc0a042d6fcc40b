"""Filters of the list of runs, and what is done with all runs that match one."""

from __future__ import annotations

import html
import re
from datetime import datetime, timedelta, timezone
from urllib.parse import quote_plus

import pytest
from msgspec.structs import replace

from console import matches
from console.run_filter import recent_spans
from console.runs import place_of
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.store.run_search import RunPage
from tests.console.conftest import issued, token_of
from tests.console.test_pages import change, rows, triggered


def fields_of(page):
    """The hidden fields of the form that acts on all that match."""
    form = re.search(
        r'<form class="actions" method="post" action="/console/runs/matching">(.*?)</form>', page, re.DOTALL
    )[1]
    return {
        name: html.unescape(value)
        for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)
    }


async def walk(browser, page):
    """Send the form of a page, and those of the pages that it leads to; return how many were sent, and where they lead."""
    sent = 0
    while True:
        answer = await browser.send_form("/console/runs/matching", **fields_of(page))
        sent += 1
        assert answer.status_code == 303, answer.text
        where = answer.headers["location"]
        if "/matching?" not in where:
            return sent, where
        page = (await browser.get(where)).text
        assert "so far" in page


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("text=order+17", [17]),
        ("text=ORDER", [19, 18, 17, 16]),
        ("text=订单", [21]),
        ("definition=patient", [22]),
        ("trigger=webhook", [20]),
        ("status=open", [22]),
        ("status=open&definition=assistant", []),
        ("agent=assistant&text=order&trigger=api&status=completed", [19, 18, 17, 16]),
    ],
)
async def test_a_filter_shows_the_runs_that_match_and_stands_in_its_form(browser, runtime, filters, found):
    ids = {number: (await triggered(runtime, focus=f"order {number}")).run_id for number in range(16, 20)}
    webhook = Trigger(TriggerKind.WEBHOOK, None, "a push")
    ids[20] = (await runtime.submit(AgentRef.parse("assistant"), webhook)).run_id
    ids[21] = (await triggered(runtime, focus="处理订单")).run_id
    ids[22] = (await triggered(runtime, "patient", "waits")).run_id

    page = (await browser.get(f"/console/runs?{filters}")).text

    assert rows(page) == [ids[number] for number in found]
    assert found or "No run matches" in page
    for each in filters.split("&"):
        name, _, value = each.partition("=")
        shown = html.escape(value.replace("+", " "))
        assert f'name="{name}" value="{shown}"' in page or f'<option value="{shown}" selected' in page


async def test_a_filter_by_time_is_in_utc_and_what_is_no_time_is_refused(browser, runtime):
    first, second = [(await triggered(runtime)).run_id for _ in range(2)]
    at = runtime._clock.now().replace(second=0, microsecond=0)
    change(runtime, first, created_at=at - timedelta(hours=2))
    change(runtime, second, created_at=at)

    an_hour_ago = f"{at - timedelta(hours=1):%Y-%m-%dT%H:%M}"
    assert rows((await browser.get(f"/console/runs?since={an_hour_ago}")).text) == [second]
    assert rows((await browser.get(f"/console/runs?until={an_hour_ago}")).text) == [first]
    refused = await browser.get("/console/runs?since=yesterday")
    assert (refused.status_code, "2026-11-03T09:30" in refused.text) == (422, True)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("2026-11-03T09:30", "2026-11-03T09:30"),
        ("2026-11-03T09:30+08:00", "2026-11-03T01:30"),
        ("2026-11-03T09:30:15Z", "2026-11-03T09:30:15"),
        ("2026-11-03T09:30:15.250Z", "2026-11-03T09:30:15.250"),
        ("2026-11-03", "2026-11-03T00:00"),
    ],
)
async def test_a_time_with_a_zone_is_in_its_field_in_utc(browser, written, shown):
    page = (await browser.get("/console/runs", params={"since": written, "until": written})).text

    assert re.findall(r'type="datetime-local" name="\w+" value="([^"]*)"', page) == [shown, shown]


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ("since=yesterday", ""),
        (
            "status=failed&since=yesterday&agent=patient&text=%E8%AE%A2%E5%8D%95",
            "?status=failed&agent=patient&text=%E8%AE%A2%E5%8D%95",
        ),
    ],
)
async def test_from_a_filter_that_is_refused_a_link_leads_to_the_page_without_it(browser, asked, left):
    refused = (await browser.get(f"/console/runs?{asked}")).text

    [link] = re.findall(r'href="([^"]*)">Show the page without it<', refused)
    assert html.unescape(link) == f"/console/runs{left}"
    assert (await browser.get(html.unescape(link))).status_code == 200


async def test_what_is_wrong_elsewhere_than_in_the_filter_has_no_such_link(browser):
    missing = await browser.get("/console/runs/run_none?view=journal")

    assert missing.status_code == 404
    assert "without it" not in missing.text


async def test_agents_and_definitions_are_offered_to_who_may_see_agents(browser, runtime):
    await triggered(runtime)
    page = (await browser.get("/console/runs")).text
    assert re.search(r'<datalist id="agents"[^>]*>.*value="patient"', page)
    assert re.search(r'<datalist id="definitions">.*value="patient"', page)

    await browser.sign_in(await issued(runtime, "runs:read"))

    assert '<option value="patient">' not in (await browser.get("/console/runs")).text


async def test_all_definitions_are_offered_however_many_agents_the_first_ones_have(browser, runtime):
    for number in range(110):
        await triggered(runtime, f"assistant:{number}")

    def offered(page):
        return re.findall(r'value="([^"]+)"', re.search(r'<datalist id="definitions">(.*?)</datalist>', page)[1])

    assert offered((await browser.get("/console/runs")).text) == ["assistant", "broken", "patient"]
    for pattern, names in (
        ("agent:patient:a*", ["patient"]),
        ("agent:assistant", ["assistant"]),
        ("agent:b*", ["broken"]),
    ):
        await browser.sign_in(await issued(runtime, "viewer", agents=(pattern,)))
        assert offered((await browser.get("/console/runs")).text) == names


async def test_a_search_that_stopped_says_how_far_it_looked_and_leads_further(browser, runtime, monkeypatch):
    run = await triggered(runtime, focus="old")
    at = runtime._runs[run.run_id].created_at

    async def searched(where):
        return RunPage((), run.run_id, at)

    monkeypatch.setattr(runtime, "search_runs", searched)
    page = (await browser.get("/console/runs?text=needle")).text

    assert "No run matches so far" in page
    assert "searched back to" in page
    assert f'href="/console/runs?text=needle&amp;before={place_of(runtime._runs[run.run_id])}">Search further' in page


async def test_what_would_be_done_to_all_that_match_is_shown_and_then_done_in_steps_to_these_alone(
    browser, runtime, monkeypatch
):
    monkeypatch.setattr(matches, "STEP", 2)
    ids = [(await triggered(runtime, f"patient:{number}", "batch")).run_id for number in range(7)]
    over, other = (await triggered(runtime, focus="batch")).run_id, (await triggered(runtime, "patient", "mine")).run_id

    page = (await browser.get("/console/runs/matching?action=cancel&text=batch")).text
    assert "Cancel: 7 runs" in page
    assert rows(page) == ids[::-1]
    assert all(runtime._runs[each].status is RunStatus.RUNNING for each in ids)
    later = (await triggered(runtime, "patient:late", "batch")).run_id
    sent, where = await walk(browser, page)

    assert (sent, where) == (4, "/console/runs?text=batch&did=cancel-7")
    assert "7 runs asked to stop" in (await browser.get(where)).text
    assert {runtime._runs[each].status for each in ids} == {RunStatus.CANCELLED}
    assert runtime._runs[over].status is RunStatus.COMPLETED
    assert {runtime._runs[each].status for each in (other, later)} == {RunStatus.RUNNING}


@pytest.mark.parametrize("unseen", ["\u200b", "\u202e", "\ufeff", "\U000e0041"])
async def test_a_filter_with_a_character_that_is_not_seen_acts_on_the_runs_that_it_showed(browser, runtime, unseen):
    text = f"order{unseen}17 <&\"'"
    for focus in ("order 17", "U+200B order 17", text):
        await triggered(runtime, "patient", focus)
    asked = quote_plus(text)
    listed = (await browser.get(f"/console/runs?text={asked}")).text
    assert html.unescape(re.search(r'name="text" value="([^"]*)"', listed)[1]) == text

    page = (await browser.get(f"/console/runs/matching?action=cancel&text={asked}")).text
    shown = rows(page)
    assert fields_of(page)["text"] == text
    await walk(browser, page)

    cancelled = [run.run_id for run in runtime._runs.values() if run.status is RunStatus.CANCELLED]
    assert sorted(cancelled) == sorted(shown) != []


async def test_running_all_that_match_again_twice_with_one_form_makes_one_run_each(browser, runtime, monkeypatch):
    monkeypatch.setattr(matches, "STEP", 2)
    ids = [(await triggered(runtime, focus="nightly", payload={"n": number})).run_id for number in range(5)]
    page = (await browser.get("/console/runs/matching?action=rerun&text=nightly")).text
    assert "Run again: 5 runs" in page

    for _ in range(2):
        _, where = await walk(browser, page)
        assert where == "/console/runs?text=nightly&did=rerun-5"

    again = [run for run in runtime._runs.values() if run.run_id not in ids]
    assert sorted(run.trigger.payload["n"] for run in again) == [0, 1, 2, 3, 4]


async def test_running_all_again_goes_on_behind_steps_that_are_refused_as_a_whole(browser, runtime, monkeypatch):
    monkeypatch.setattr(matches, "STEP", 2)
    good = [(await triggered(runtime, focus="nightly")).run_id for _ in range(2)]
    for _ in range(4):
        bad = (await triggered(runtime, focus="nightly")).run_id
        runtime._runs[bad] = replace(runtime._runs[bad], agent=AgentRef.parse("gone"))
    before = len(runtime._runs)
    page = (await browser.get("/console/runs/matching?action=rerun&text=nightly")).text

    _, where = await walk(browser, page)

    assert where == "/console/runs?text=nightly&did=rerun-2-4"
    assert len(runtime._runs) == before + len(good)
    assert "2 runs triggered again, 4 refused" in (await browser.get(where)).text


async def test_more_than_are_counted_are_said_to_be_more(browser, runtime, monkeypatch):
    monkeypatch.setattr(matches, "COUNTED", 4)
    for _ in range(6):
        await triggered(runtime, focus="many")

    page = (await browser.get("/console/runs/matching?action=rerun&text=many")).text

    assert "Run again: at least 4 runs" in page
    assert "Only 4 were counted" in page
    assert "None of them can be cancelled" in (await browser.get("/console/runs/matching?action=cancel&text=many")).text


async def test_the_way_to_earlier_runs_and_an_open_page_outlive_the_idle_heartbeat_that_they_are_named_after(
    browser, runtime
):
    ids = [(await triggered(runtime)).run_id for _ in range(120)]
    link = html.unescape(re.search(r'rel="next" href="([^"]+)"', (await browser.get("/console/runs")).text)[1])
    second = (await browser.get(link)).text
    live = html.unescape(re.findall(r'<live-region src="([^"]*)"', second)[-1])
    of_first = html.unescape(re.findall(r'<live-region src="([^"]*)"', (await browser.get("/console/runs")).text)[-1])

    del runtime._runs[ids[70]], runtime._runs[ids[119]]

    for path in (link, live):
        assert rows((await browser.get(path)).text) == ids[69:19:-1], path
    part = (await browser.get(of_first)).text
    assert (rows(part)[0], "new run" in part) == (ids[118], False)
    later = (await triggered(runtime)).run_id
    part = (await browser.get(of_first)).text
    assert (later in rows(part), "1 new run: show" in part) == (False, True)


async def test_what_is_done_to_all_that_match_goes_on_behind_runs_that_are_gone_meanwhile(
    browser, runtime, monkeypatch
):
    monkeypatch.setattr(matches, "STEP", 2)
    ids = [(await triggered(runtime, f"patient:{number}", "batch")).run_id for number in range(7)]
    page = (await browser.get("/console/runs/matching?action=cancel&text=batch")).text
    del runtime._runs[ids[6]]
    later = (await triggered(runtime, "patient:late", "batch")).run_id

    step = await browser.send_form("/console/runs/matching", **fields_of(page))
    assert step.status_code == 303
    page = (await browser.get(step.headers["location"])).text
    del runtime._runs[ids[4]]
    _, where = await walk(browser, page)

    assert where == "/console/runs?text=batch&did=cancel-6"
    assert {runtime._runs[each].status for each in [*ids[:4], ids[5]]} == {RunStatus.CANCELLED}
    assert runtime._runs[later].status is RunStatus.RUNNING


async def test_a_place_without_its_run_is_that_of_the_time_and_of_no_other_tenants_runs(browser, runtime):
    ids = [(await triggered(runtime)).run_id for _ in range(3)]
    for at, run_id in enumerate(ids):
        change(runtime, run_id, created_at=runtime._clock.now() - timedelta(hours=3 - at))
    place = place_of(runtime._runs[ids[1]])

    assert rows((await browser.get(f"/console/runs?before={place}")).text) == ids[:1]
    for path in (f"before=run_gone.{place.partition('.')[2]}", f"upto=run_gone.{place.partition('.')[2]}"):
        assert rows((await browser.get(f"/console/runs?{path}&fragment=rows")).text) == ids[1::-1]
    assert rows((await browser.get("/console/runs?before=run_gone.0")).text) == []
    assert (await browser.get("/console/runs?before=run_gone")).status_code == 404


async def test_what_comes_into_a_filtered_list_that_was_empty_is_counted_above_and_moves_nothing(browser, runtime):
    form = r'<form [^>]*id="list" data-v="(\w+)">'
    opened = (await browser.get("/console/runs?agent=patient")).text
    assert re.search(form, opened)[1] == "empty"
    part = html.unescape(re.search(r'src="(/console/runs\?[^"]*fragment=rows[^"]*)"', opened)[1])
    for number in (1, 2):
        run = await triggered(runtime, "patient")

        after = (await browser.get(part)).text

        assert re.search(form, after)[1] == "empty"
        assert f'href="/console/runs?agent=patient">{number} new ' in after
        assert run.run_id not in after
    assert "Cancel all…" in (await browser.get("/console/runs?agent=patient")).text


async def test_all_that_match_is_no_choice_without_a_filter(browser, runtime):
    await triggered(runtime)
    token = token_of((await browser.get("/console/agents/assistant")).text)

    assert "Cancel all" not in (await browser.get("/console/runs")).text
    assert "Cancel all" in (await browser.get("/console/runs?status=completed")).text
    assert (await browser.get("/console/runs/matching?action=cancel")).status_code == 422
    refused = await browser.send_form("/console/runs/matching", token=token, action="cancel")
    assert refused.status_code == 422


async def test_a_key_for_some_agents_acts_on_all_runs_of_these_only(browser, runtime):
    await browser.sign_in(await issued(runtime, "operator", agents=("agent:patient:a",)))
    run = (await triggered(runtime, "patient:a", "x")).run_id

    assert (await browser.get("/console/runs/matching?action=cancel&status=open")).status_code == 403
    assert (await browser.get("/console/runs/matching?action=cancel&agent=assistant")).status_code == 403
    page = (await browser.get("/console/runs/matching?action=cancel&agent=patient:a")).text
    await walk(browser, page)

    assert runtime._runs[run].status is RunStatus.CANCELLED


VISIT = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
"""What a browser says that opens an address."""


async def test_a_script_goes_on_only_behind_the_form_that_began_and_not_behind_an_address_that_is_opened(
    browser, runtime
):
    ids = [(await triggered(runtime, f"patient:{number}", "batch")).run_id for number in range(3)]
    where = f"/console/runs/matching?action=cancel&text=batch&upto={ids[2]}&before={ids[2]}&done=1"

    for site in ("cross-site", "same-site", "none", ""):
        page = (await browser.get(where, headers={**VISIT, "Sec-Fetch-Site": site})).text
        assert ("on the way" in page, "data-goes-on" in page, "Go on</button>" in page) == (True, False, True), site
    assert "data-goes-on" in (await browser.get(where, headers={**VISIT, "Sec-Fetch-Site": "same-origin"})).text


def test_recent_are_the_last_sixty_minutes_and_days_of_utc():
    now = datetime(2026, 3, 1, 7, 30, 59, 17, timezone(timedelta(hours=8)))

    assert recent_spans(now) == {
        "last hour": "2026-02-28T22:30",
        "today": "2026-02-28T00:00",
        "last 7 days": "2026-02-22T00:00",
    }


@pytest.mark.parametrize(
    ("span", "found"),
    [("last hour", ["new"]), ("last 7 days", ["new", "of hours"]), ("any time", ["new", "of hours", "old"])],
)
async def test_recent_runs_are_a_link_that_keeps_the_rest_of_the_filter(browser, runtime, span, found):
    now = runtime._clock.now()
    for focus, age in (("old", timedelta(days=9)), ("of hours", timedelta(hours=3)), ("new", timedelta(0))):
        run = await triggered(runtime, focus=focus)
        change(runtime, run.run_id, created_at=now - age)
    await triggered(runtime, "patient")

    page = (await browser.get("/console/runs?agent=assistant&until=2020-01-01T00:00")).text
    links = {name: html.unescape(path) for path, name in re.findall(r'<a href="([^"]+)">([\w ]+)</a>', page)}
    assert links[span].startswith("/console/runs?agent=assistant")
    assert "until" not in links[span]

    shown = (await browser.get(links[span])).text
    assert re.findall(r"<bdi>(new|of hours|old)</bdi></a>", shown) == found
    marked = re.search(r'<nav class="chips" aria-label="Accepted">.*?</nav>', shown, re.DOTALL)[0]
    assert re.findall(r'aria-current="true">([^<]+)<', marked) == [span]
