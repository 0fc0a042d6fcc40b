"""The pages of schedules: what they show, and what their forms do."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, ScheduleRequest, ScheduleStatus
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.schedules.timetable import new_schedule
from owlclaw_ray.store.commands import CreateSchedule
from owlclaw_ray.store.queries import RunFilter, ScheduleFilter, TicksOfSchedule
from owlclaw_ray.testing.clock import ManualClock
from tests.console.conftest import issued, token_of
from tests.console.test_pages import HARMFUL, is_harmless
from tests.serve.double import MemoryRuntime

LIST = "/console/schedules"
START = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def runtime(clock: ManualClock) -> MemoryRuntime:
    return MemoryRuntime(clock)


async def made(runtime, agent="assistant", focus="look", **fields) -> Schedule:
    return await runtime.timetable.create(AgentRef.parse(agent), ScheduleRequest(focus, **fields))


async def stored(runtime, number, **changes) -> Schedule:
    asked = ScheduleRequest(f"look {number}", interval_seconds=600 + number)
    found = new_schedule(
        asked, schedule_id=ScheduleId(f"sch_{number:03d}"), agent=AgentRef.parse("assistant"), now=runtime._clock.now()
    )
    found = replace(found, **changes)
    await runtime.schedules.apply([CreateSchedule(found, 1_000)])
    return found


def rows(page):
    return re.findall(r'<tr id="([^"]+)"', page)


def forms(page):
    return set(re.findall(r'method="post" action="([^"]+)"', page))


async def test_schedules_are_listed_in_words_by_status_and_agent_in_pages(browser, runtime):
    cron = await made(runtime, focus="看一下大盘", cron_expression="0 9 * * MON-FRI", timezone="Asia/Shanghai")
    other = await made(runtime, "patient", interval_seconds=900)
    await runtime.timetable.pause(other.agent.tenant, other.schedule_id)

    page = (await browser.get(LIST)).text
    for text in ("看一下大盘", "At 09:00, Monday through Friday", "Asia/Shanghai", "Every 15 minutes", "paused"):
        assert text in page, text
    assert rows(page) == [cron.schedule_id, other.schedule_id]
    assert rows((await browser.get(f"{LIST}?status=paused")).text) == [other.schedule_id]
    assert rows((await browser.get(f"{LIST}?agent=assistant")).text) == [cron.schedule_id]
    assert "No schedule matches" in (await browser.get(f"{LIST}?status=done")).text
    for wrong, status in (
        ("status=x", 422),
        ("agent=NO", 422),
        ("after=sch_gone", 404),
        ("after=%00", 404),
        ("agent=nobody", 404),
    ):
        assert (await browser.get(f"{LIST}?{wrong}")).status_code == status, wrong


async def test_the_list_leads_on_to_the_schedules_behind_it(browser, runtime):
    ids = [(await stored(runtime, number)).schedule_id for number in range(130)]

    first = (await browser.get(LIST)).text
    following = html.unescape(re.search(r'rel="next" href="([^"]+)"', first)[1])
    second = (await browser.get(following)).text

    assert rows(first) + rows(second) == ids
    assert 'rel="next"' not in second


async def test_a_schedule_shows_its_next_five_times_and_what_became_of_the_past_ones(browser, runtime, clock):
    daily = await made(
        runtime, focus="nightly report", cron_expression="0 1 * * *", catch_up_seconds=60, overlap=OverlapPolicy.ENQUEUE
    )
    page = (await browser.get(f"{LIST}/{daily.schedule_id}")).text
    assert re.findall(r'class="num"><relative-time datetime="2026-(\d\d-\d\d)T01:00:00.000Z" exact', page) == [
        "11-27", "11-28", "11-29", "11-30", "12-01",
    ]  # fmt: skip
    assert "None of its times has come yet" in page

    await clock.advance(13 * 3_600)
    await runtime.firings.fire_all_due()
    await clock.advance(86_400 + 30)
    await runtime.firings.fire_all_due()
    await clock.advance(3 * 86_400)
    await runtime.firings.fire_all_due()

    page = (await browser.get(f"{LIST}/{daily.schedule_id}")).text
    ticks = await runtime.schedules.read(TicksOfSchedule(daily.schedule_id))
    fired = [each.run_id for each in ticks if each.run_id]
    assert len(fired) == 3
    assert re.findall(r'class="tick is-(\w+) num" href="/console/runs/(\w+)"', page) == [
        ("caught_up", fired[0]), ("caught_up", fired[1]), ("fired", fired[2]),
    ]  # fmt: skip
    assert "01:00 \N{MULTIPLICATION SIGN}2" in page
    assert "2 skipped: superseded by a later due time" in page
    assert [int(each) for each in re.findall(r'<h3 class="num">\w+ (\d+) \w+', page)] == [1, 29, 28, 27]


async def test_ticks_are_read_in_pages_by_the_clock_of_the_schedule(browser, runtime, clock):
    hourly = await made(runtime, cron_expression="@hourly", timezone="Asia/Shanghai")
    for _ in range(210):
        await clock.advance(3_600)
        await runtime.firings.fire_all_due()

    def times(page):
        return re.findall(r'class="tick is-\w+ num"[^>]*>(\d\d:\d\d)', page)

    first = (await browser.get(f"{LIST}/{hourly.schedule_id}")).text
    following = html.unescape(re.search(r'rel="next" href="([^"]+)"', first)[1])
    second = (await browser.get(following)).text
    assert len(times(first)) == 200
    assert times(second) == [*(f"{hour:02d}:00" for hour in range(7)), "21:00", "22:00", "23:00"]
    assert "in Asia/Shanghai" in first
    assert (await browser.get(f"{LIST}/{hourly.schedule_id}?before=yesterday")).status_code == 422


async def test_a_month_counts_what_became_of_each_day_and_leads_to_the_days_and_the_months_beside_it(
    browser, runtime, clock
):
    daily = await made(
        runtime,
        focus="nightly",
        cron_expression="0 1,13 * * *",
        timezone="Asia/Shanghai",
        overlap=OverlapPolicy.ENQUEUE,
        catch_up_seconds=3_600,
    )
    await clock.advance(5 * 3_600)  # 27 November, 01:00 there
    await runtime.firings.fire_all_due()
    await clock.advance(3 * 86_400 + 1_800)
    await runtime.firings.fire_all_due()
    page = f"{LIST}/{daily.schedule_id}"

    async def calendar(asked=""):
        found = (await browser.get(f"{page}{asked}")).text
        table = re.search(r"<table class=.weeks.*?</table>", found, re.DOTALL)[0]
        days = re.findall(r'href="([^"]+)"[^>]*><span class="day num">(\d+)<(.*?)</a>', table)
        return found, {int(day): (address, re.findall(r"is-(\w+)\">(\d+)<", tallies)) for address, day, tallies in days}

    shown, november = await calendar()
    assert re.search(r'<h3 id="month">(.+?)</h3>', shown)[1] == "November 2026"
    assert len(november) == 30
    assert november[26] == (f"{page}?day=2026-11-26#d2026-11-26", [])
    assert [november[day][1] for day in (27, 28, 29, 30)] == [
        [("fired", "1"), ("skipped", "1")], [("skipped", "2")], [("skipped", "2")], [("caught_up", "1"), ("to_come", "1")],
    ]  # fmt: skip
    assert re.findall(r'aria-current="date"><span class="day num">(\d+)', shown) == ["30"]

    links = dict(re.findall(r'<a class="button" href="([^"]+)">\W*(\w+)\W*</a>', shown))
    assert links.items() >= {(f"{page}?month=2026-10", "October"), (f"{page}?month=2026-12", "December")}
    december, days = await calendar("?month=2026-12")
    assert (len(days), days[31][1]) == (31, [("to_come", "2")])
    assert "None of its times of this month has come yet" in december
    assert f'src="{page}?month=2026-12&amp;fragment=live"' in december

    async def day(asked):
        found, _ = await calendar(f"?day={asked}")
        article = re.search(rf'<article class="tick-day" id="d{asked}">.*?</article>', found, re.DOTALL)[0]
        return found, re.findall(r'class="tick is-(\w+) num"[^>]*>(\d\d:\d\d)', article)

    assert (await day("2026-11-30"))[1] == [("caught_up", "01:00"), ("to_come", "13:00")]
    missed, ticks = await day("2026-11-29")
    assert ticks == []
    assert "13:00 \N{MULTIPLICATION SIGN}5 until 29 Nov 13:00" in missed
    assert "Nothing is due on this day" in (await day("2026-11-03"))[0]
    for wrong in ("month=2026-13", "month=x", "day=2026-02-30", "day=tomorrow"):
        assert (await browser.get(f"{page}?{wrong}")).status_code == 422, wrong


async def test_what_has_ended_shows_the_month_of_its_end(browser, runtime, clock):
    once = await made(runtime, delay_seconds=60)
    await clock.advance(61)
    await runtime.firings.fire_all_due()
    await clock.advance(90 * 86_400)

    assert '<h3 id="month">November 2026</h3>' in (await browser.get(f"{LIST}/{once.schedule_id}")).text


async def test_a_schedule_is_paused_resumed_and_cancelled_by_its_forms(browser, runtime):
    page = f"{LIST}/{(await made(runtime, interval_seconds=60)).schedule_id}"

    async def status():
        (found,) = await runtime.timetable.schedules(ScheduleFilter(LOCAL.tenant))
        return found.status

    for action, becomes in (
        ("pause", ScheduleStatus.PAUSED),
        ("resume", ScheduleStatus.ACTIVE),
        ("cancel", ScheduleStatus.CANCELLED),
    ):
        done = await browser.fill(page, f"{page}/{action}")
        assert (done.status_code, done.headers["location"], await status()) == (303, page, becomes)
    shown = (await browser.get(page)).text
    assert "never fires again" in shown
    assert not forms(shown)
    assert (await browser.fill(LIST + "/new", f"{page}/pause")).status_code == 409


async def test_what_runs_next_is_one_list_of_all_schedules_in_the_order_of_time(browser, runtime):
    await made(runtime, focus="in two days", delay_seconds=2 * 86_400)
    await made(runtime, focus="tonight", cron_expression="30 2 * * *", timezone="Europe/Berlin")
    await made(runtime, "patient", focus="soon", delay_seconds=60)
    await made(runtime, "patient", focus="often", interval_seconds=600)
    paused = await made(runtime, "patient:b", focus="paused", interval_seconds=600)
    await runtime.timetable.pause(paused.agent.tenant, paused.schedule_id)
    await stored(runtime, 1, kind=ScheduleKind.HEARTBEAT, focus="beats")

    async def shown(asked=""):
        page = (await browser.get(f"{LIST}/upcoming{asked}")).text
        return re.findall(r'<a class="row"[^>]*><bdi>([^<]+)<', page), page

    focuses, page = await shown()
    assert focuses == ["soon", "often", "tonight"]
    assert page.count("and on</span>") == 1
    assert 'datetime="2026-11-27T01:30:00.000Z" exact' in page
    assert "Heartbeats are not shown" in page
    assert "There is more" not in page
    assert (await shown("?heartbeats=yes"))[0] == ["soon", "often", "beats", "tonight"]
    assert (await shown("?hours=72"))[0] == ["soon", "often", "tonight", "tonight", "in two days", "tonight"]
    assert (await shown("?hours=6&agent=patient"))[0] == ["soon", "often"]
    assert "Nothing is scheduled until then" in (await shown("?agent=patient:c"))[1]
    for wrong in ("hours=7", "hours=x", "agent=NO"):
        assert (await browser.get(f"{LIST}/upcoming?{wrong}")).status_code == 422


async def test_of_more_than_fit_the_next_ones_are_shown_whichever_agents_they_are_of(browser, runtime):
    at = runtime._clock.now()
    for number in range(520):
        agent = AgentRef.parse(f"patient:{number:03}")
        await stored(runtime, number, agent=agent, next_fire_at=at + timedelta(minutes=600 - number))

    page = (await browser.get(f"{LIST}/upcoming?hours=24")).text

    focuses = re.findall(r'<a class="row"[^>]*><bdi>([^<]+)<', page)
    assert focuses == [f"look {number}" for number in reversed(range(20, 520))]
    assert "There is more than is shown here" in page


async def test_a_backfill_is_shown_before_anything_is_queued_and_gives_no_time_a_second_run(browser, runtime, clock):
    hourly = await made(runtime, cron_expression="0 * * * *", timezone="Asia/Shanghai")
    await clock.advance(3_600)
    await runtime.firings.fire_all_due()
    await clock.advance(4 * 3_600)
    page = f"{LIST}/{hourly.schedule_id}/backfill"
    asked = f"{page}?since=2026-11-26T21:00&until=2026-11-27T00:30"

    async def runs():
        return len(await runtime.schedules.read(RunFilter(LOCAL.tenant)))

    assert 'value="2026-11-27T01:00"' in (await browser.get(page)).text
    plan = (await browser.get(asked)).text
    assert "Backfill: 3 runs" in plan
    assert re.findall(r'<span class="tick is-fired num">(\d\d:\d\d)', plan) == ["22:00", "23:00", "00:00"]
    assert "1 time has its run already" in plan
    assert await runs() == 1

    fields = {name: re.search(f'type="hidden" name="{name}" value="([^"]+)"', plan)[1] for name in ("since", "until")}
    for did in ("backfill-3-1-0", "backfill-0-4-0"):
        done = await browser.send_form(page, token=token_of(plan), **fields)
        assert (done.status_code, done.headers["location"]) == (303, f"{LIST}/{hourly.schedule_id}?did={did}")
        assert await runs() == 4
    assert "0 runs queued, 4 times had one already" in (await browser.get(done.headers["location"])).text
    assert "Each of its times then has its run" in (await browser.get(asked)).text
    for wrong in (
        "since=2026-11-26T21:00",
        "since=x&until=y",
        "since=2026-11-26T21:00&until=2036-01-01T00:00",
        "since=0001-01-01T00:00&until=2026-11-26T00:00",
    ):
        assert (await browser.get(f"{page}?{wrong}")).status_code == 422, wrong
    once = await made(runtime, "patient", delay_seconds=60)
    assert (
        await browser.get(f"{LIST}/{once.schedule_id}/backfill?since=2026-11-26T21:00&until=2026-11-26T22:00")
    ).status_code == 409
    assert "Backfill" not in (await browser.get(f"{LIST}/{once.schedule_id}")).text


async def test_a_schedule_is_made_by_a_form_once_however_often_it_is_sent(browser, runtime):
    page = (await browser.get(f"{LIST}/new?agent=patient")).text
    assert 'name="agent" value="patient"' in page
    fields = {
        "token": token_of(page), "once": "o" * 16, "agent": "patient", "focus": " 看一下 ", "cron": "0 9 * * MON-FRI", "minutes": "",
        "at": "", "timezone": "Asia/Shanghai", "overlap": "skip", "jitter_seconds": "30", "catch_up_seconds": "1.5", "task_type": "",
    }  # fmt: skip

    answers = [await browser.send_form(LIST, **fields) for _ in range(2)]

    (found,) = await runtime.timetable.schedules(ScheduleFilter(LOCAL.tenant))
    assert {each.headers["location"] for each in answers} == {f"{LIST}/{found.schedule_id}"}
    assert (found.focus, found.agent.agent_id, found.cron_expression) == ("看一下", "patient", "0 9 * * MON-FRI")
    assert (found.timezone, found.overlap.value, found.jitter_seconds, found.catch_up_seconds) == (
        "Asia/Shanghai",
        "skip",
        30,
        1.5,
    )


async def test_a_time_of_a_form_is_of_the_clock_of_the_zone_that_it_names(browser, runtime):
    fields = {"agent": "patient", "focus": "look", "timezone": "Asia/Shanghai"}
    await browser.fill(f"{LIST}/new", LIST, **fields, at="2026-11-27T09:30")
    await browser.fill(f"{LIST}/new", LIST, **fields, minutes="15")

    once, interval = await runtime.timetable.schedules(ScheduleFilter(LOCAL.tenant))
    assert (once.next_fire_at, interval.interval_seconds) == (datetime(2026, 11, 27, 1, 30, tzinfo=UTC), 900)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"cron": "0 9 * *"}, "must have five"),
        ({"cron": "0 9 * * *", "minutes": "5"}, "exactly one of"),
        ({}, "exactly one of"),
        ({"minutes": "often"}, "a number"),
        ({"minutes": "0"}, "interval_seconds"),
        ({"minutes": "1.51"}, "interval_seconds"),
        ({"at": "tomorrow"}, "2026-11-03T09:30"),
        ({"at": "2026-11-27T09:30", "timezone": "Asia/Shangai"}, "such as Asia/Shanghai"),
        ({"at": "2020-01-01T00:00"}, "is over"),
        ({"minutes": "5", "focus": " "}, "focus"),
        ({"minutes": "5", "overlap": "never"}, "overlap"),
        ({"minutes": "5", "agent": "NO"}, "NO"),
        ({"cron": "@daily", "timezone": "x" * 5_000}, "IANA"),
    ],
)
async def test_a_form_that_makes_no_schedule_says_why(browser, runtime, fields, what):
    refused = await browser.fill(f"{LIST}/new", LIST, **({"agent": "patient", "focus": "look"} | fields))

    assert (refused.status_code, what in html.unescape(refused.text)) == (422, True), refused.text
    assert await runtime.timetable.schedules(ScheduleFilter(LOCAL.tenant)) == []


async def test_cancelling_a_schedule_is_behind_a_word_of_what_it_means(browser, runtime):
    schedule = await made(runtime, cron_expression="0 * * * *")

    page = (await browser.get(f"{LIST}/{schedule.schedule_id}")).text

    behind = re.search(r"<details[^>]*><summary>Cancel it…</summary>.*?</details>", page, re.DOTALL)[0]
    assert f'action="{LIST}/{schedule.schedule_id}/cancel"' in behind
    assert "cannot be undone" in behind
    assert page.count("/cancel") == 1


async def test_a_span_that_cannot_be_backfilled_stays_in_its_fields_beside_what_is_wrong(browser, runtime, clock):
    hourly = await made(runtime, cron_expression="0 * * * *")
    page = f"{LIST}/{hourly.schedule_id}/backfill"

    for since, wrong in (("soon", "since"), ("2020-01-01T00:00", "ask for fewer")):
        refused = await browser.get(f"{page}?since={since}&until=2026-11-03T09:00")

        assert refused.status_code == 422
        assert f'name="since" value="{since}"' in refused.text
        assert 'name="until" value="2026-11-03T09:00"' in refused.text
        assert wrong in re.search(r'role="alert">(.*?)</div>', refused.text, re.DOTALL)[1]
        assert forms(refused.text) == set(), "there is nothing to queue"


async def test_whoever_is_signed_in_is_who_asks_for_a_schedule_and_its_backfilled_runs(browser, runtime, clock):
    key = await runtime.keys.create(LOCAL, KeyRequest("ada", ("operator",)))
    await browser.sign_in(key.text)
    sent = await browser.fill(f"{LIST}/new", LIST, agent="patient", focus="look", cron="@hourly")
    await clock.advance(3_600)
    page = sent.headers["location"]
    span = {"since": "2026-11-26T11:30:00Z", "until": "2026-11-26T12:30:00Z"}
    assert (await browser.fill(page, f"{page}/backfill", **span)).status_code == 303

    (schedule,) = await runtime.timetable.schedules(ScheduleFilter(LOCAL.tenant))
    (run,) = await runtime.schedules.read(RunFilter(LOCAL.tenant))
    assert schedule.submitters == run.trigger.submitters == (f"key:{key.key.key_id}",)


async def test_what_a_key_may_not_do_with_schedules_is_not_offered(browser, runtime):
    found = await made(runtime, interval_seconds=60)
    await browser.sign_in(await issued(runtime, "viewer"))

    for path in (LIST, f"{LIST}/upcoming", f"{LIST}/{found.schedule_id}"):
        page = (await browser.get(path)).text
        assert forms(page) == {"/console/sign-out"}, path
        assert not {"New schedule", "Backfill"} & set(re.findall(r'class="button[^>]*>([^<…]+)', page)), path


async def test_a_key_that_is_for_some_agents_meets_no_others_schedules(browser, runtime):
    ours, other = (
        await made(runtime, "assistant:ours", interval_seconds=60),
        await made(runtime, "assistant:other", interval_seconds=60),
    )
    await browser.sign_in(await issued(runtime, "operator", agents=("agent:assistant:ours",)))

    for path in (LIST, f"{LIST}/upcoming"):
        page = await browser.get(path)
        assert (page.status_code, "assistant:other" in page.text, "agent:assistant:ours" in page.text) == (
            200,
            False,
            True,
        )
        assert ours.schedule_id in (await browser.get(f"{path}?agent=assistant:ours")).text
        assert (await browser.get(f"{path}?agent=assistant:other")).status_code == 403
    token = token_of((await browser.get(f"{LIST}/{ours.schedule_id}")).text)
    for path in ("", "/backfill"):
        assert (await browser.get(f"{LIST}/{other.schedule_id}{path}")).status_code == 403
    assert (await browser.get(f"{LIST}?after={other.schedule_id}&agent=assistant:ours")).status_code == 403
    for action in ("pause", "resume", "cancel", "backfill"):
        refused = await browser.send_form(f"{LIST}/{other.schedule_id}/{action}", token=token)
        assert refused.status_code == 403
    refused = await browser.send_form(LIST, token=token, agent="assistant:other", focus="x", minutes="5")
    assert refused.status_code == 403
    assert (await runtime.timetable.schedule(LOCAL.tenant, other.schedule_id)).status is ScheduleStatus.ACTIVE


@HARMFUL
async def test_whatever_is_in_a_field_of_a_schedule_is_shown_as_text(browser, runtime, clock, hostile):
    hostile = hostile.replace("\0", "")
    await stored(runtime, 1, focus=hostile, task_type=hostile, interval_seconds=3_600)
    gone = await stored(
        runtime, 2, focus=hostile, kind=ScheduleKind.CRON, interval_seconds=0, cron_expression=hostile, timezone=hostile
    )
    await clock.advance(7_200)
    await runtime.firings.fire_all_due()

    assert "it could not be planned" in (await browser.get(f"{LIST}/{gone.schedule_id}")).text
    for path in (
        "", "/upcoming", "/sch_001", "/sch_002", "/sch_001/backfill", "/new?agent=%22%3E%3Cscript%3E", "?agent=%3Cscript%3E",
        "/sch_001?before=%3Cscript%3E", "/upcoming?hours=%3Cscript%3E", "/%3Cscript%3E", "/sch_001/backfill?since=%3Cscript%3E",
    ):  # fmt: skip
        page = await browser.get(f"{LIST}{path}")
        assert page.status_code in {200, 404, 422}, path
        is_harmless(page, path)
    is_harmless(await browser.get("/console/agents/assistant"), "agent")


async def test_a_run_leads_to_the_schedule_that_it_is_of(browser, runtime):
    found = await made(runtime, interval_seconds=60)
    run = await runtime.submit(found.agent, (await _trigger(runtime, found)))

    page = (await browser.get(f"/console/runs/{run.run_id}")).text
    assert f'href="{LIST}/{found.schedule_id}"' in page
    assert f'href="{LIST}/{found.schedule_id}"' in (await browser.get("/console/agents/assistant")).text


async def _trigger(runtime, schedule):
    from owlclaw_ray.schedules.firings import run_of

    return run_of(schedule, START + timedelta(minutes=1), runtime._clock.now()).trigger
