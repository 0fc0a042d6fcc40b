"""Parts that open pages ask for again and again: made once for all who see the same, and soon made anew."""

from __future__ import annotations

import asyncio
import html
import re

import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from console import live_parts
from console.jinja import Templates
from console.live_parts import Audience, LiveParts, SharedAnswers
from console.pages import page
from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.node import NodeCondition
from owlclaw_ray.domain.principal import LOCAL, Principal, PrincipalKind
from owlclaw_ray.domain.schedule import ScheduleRequest
from owlclaw_ray.errors import AccessDeniedError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.testing.clock import ManualClock
from serve.parameters import PRINCIPAL, principal_of
from tests.console.conftest import StageClock, issued, token_of
from tests.console.test_pages import triggered

ONE = Principal(DEFAULT_TENANT, PrincipalKind.KEY, "one", scopes=frozenset({"runs:read"}))
OTHERS = {
    "tenant": Principal(TenantId("acme"), PrincipalKind.KEY, "one", scopes=ONE.scopes),
    "scopes": Principal(DEFAULT_TENANT, PrincipalKind.KEY, "one", scopes=frozenset({"runs:write"})),
    "patterns": Principal(DEFAULT_TENANT, PrincipalKind.KEY, "one", scopes=ONE.scopes, patterns=("agent:a",)),
}


def audience(principal=ONE, address="/console/runs?fragment=rows", *, compressed=False):
    return Audience.of(address, principal, compressed=compressed)


def asked_by(principal, query):
    return Request(
        {"type": "http", "path": "/console/runs", "query_string": query, "headers": [], PRINCIPAL: principal}
    )


class Maker:
    """Makes parts, and counts them."""

    def __init__(self):
        self.made = 0
        self.ready = asyncio.Event()
        self.ready.set()

    async def __call__(self):
        self.made += 1
        number = self.made
        await self.ready.wait()
        return Response(f"part {number}", headers={"Vary": "Accept-Encoding"})


async def test_all_who_ask_within_the_time_get_what_was_made_for_the_first():
    clock, make = ManualClock(), Maker()
    parts = LiveParts(clock)

    first = await parts.answer(audience(), 1.0, make)
    await clock.advance(0.9)
    second = await parts.answer(audience(), 1.0, make)
    await clock.advance(0.2)
    third = await parts.answer(audience(), 1.0, make)

    assert (first.body, second.body, third.body) == (b"part 1", b"part 1", b"part 2")
    assert second.headers["vary"] == "Accept-Encoding"


async def test_what_takes_longer_than_the_time_is_not_made_twice_at_once():
    clock, make = ManualClock(), Maker()
    make.ready.clear()
    parts = LiveParts(clock)

    asked = [asyncio.create_task(parts.answer(audience(), 1.0, make))]
    await clock.advance(5)
    asked.append(asyncio.create_task(parts.answer(audience(), 1.0, make)))
    await clock.advance(0)
    make.ready.set()

    assert [each.body for each in await asyncio.gather(*asked)] == [b"part 1"] * 2


async def test_what_never_gets_done_is_made_anew_after_a_while_and_spoils_nothing_for_those_who_come_then():
    clock, stuck, make = ManualClock(), Maker(), Maker()
    stuck.ready.clear()
    parts = LiveParts(clock)

    waiting = asyncio.create_task(parts.answer(audience(), 1.0, stuck))
    await clock.advance(29)
    follower = asyncio.create_task(parts.answer(audience(), 1.0, make))
    await clock.advance(1)

    assert (await parts.answer(audience(), 1.0, make)).body == b"part 1"
    assert not follower.done()
    stuck.ready.set()
    assert {each.body for each in await asyncio.gather(waiting, follower)} == {b"part 1"}
    assert (stuck.made, make.made) == (1, 1)


async def test_those_who_ask_while_it_is_made_wait_for_it_and_one_who_goes_away_spoils_it_for_nobody():
    make = Maker()
    make.ready.clear()
    parts = LiveParts(ManualClock())

    asked = [asyncio.create_task(parts.answer(audience(), 1.0, make)) for _ in range(3)]
    await asyncio.sleep(0)
    asked[0].cancel()
    await asyncio.sleep(0)
    make.ready.set()

    assert [each.body for each in await asyncio.gather(*asked[1:])] == [b"part 1"] * 2
    assert asked[0].cancelled()


@pytest.mark.parametrize(
    "other",
    [
        *map(audience, OTHERS.values()),
        audience(address="/console/runs?fragment=chart"),
        audience(compressed=True),
        replace(audience(), who="key:one"),
    ],
)
async def test_who_may_see_something_else_gets_a_part_of_their_own(other):
    parts, make = LiveParts(ManualClock()), Maker()

    await parts.answer(audience(), 1.0, make)

    assert (await parts.answer(other, 1.0, make)).body == b"part 2"


async def test_a_problem_is_told_to_those_who_waited_and_the_next_one_tries_again():
    parts = LiveParts(ManualClock())

    async def fail():
        raise LookupError("store unavailable")

    with pytest.raises(LookupError):
        await parts.answer(audience(), 1.0, fail)

    assert (await parts.answer(audience(), 1.0, Maker())).body == b"part 1"


async def test_only_so_many_are_kept(monkeypatch):
    monkeypatch.setattr(live_parts, "_MOST", 2)
    parts, make = LiveParts(ManualClock()), Maker()
    for number in (1, 2, 3, 2, 1):
        await parts.answer(audience(address=f"/{number}"), 1.0, make)

    assert make.made == 4
    assert len(parts._made._made) == 2


def test_what_was_drawn_is_drawn_again_when_it_is_of_other_facts_and_for_each_audience_by_itself():
    parts, drawn = LiveParts(ManualClock()), []

    def draw():
        drawn.append(None)
        return Response(f"drawing {len(drawn)}")

    def asked(facts, principal=ONE):
        return parts.drawn(audience(principal), facts, draw).body

    assert [asked({"runs": [1]}), asked({"runs": [1]}), asked({"runs": [1, 2]}), asked({"runs": [1]})] == [
        b"drawing 1",
        b"drawing 1",
        b"drawing 2",
        b"drawing 3",
    ]
    assert [asked({"runs": [1]}, each) for each in OTHERS.values()] == [
        b"drawing 4",
        b"drawing 5",
        b"drawing 6",
    ]
    assert asked({"runs": [1]}) == b"drawing 3"


def test_only_so_many_drawings_are_kept(monkeypatch):
    monkeypatch.setattr(live_parts, "_MOST", 2)
    parts, drawn = LiveParts(ManualClock()), []
    for number in (1, 2, 1, 3, 1, 2):
        parts.drawn(audience(address=f"/{number}"), {}, lambda number=number: drawn.append(number) or Response())

    assert drawn == [1, 2, 3, 2]


async def test_what_is_forgotten_is_made_anew():
    answers, made = SharedAnswers(ManualClock()), []

    async def make():
        made.append(None)
        return len(made)

    assert [await answers.answer("a", 9.0, make) for _ in range(2)] == [1, 1]
    answers.forget("a")
    answers.forget("b")
    assert await answers.answer("a", 9.0, make) == 2


@pytest.fixture
def drawings(monkeypatch):
    """The parts that are rendered."""
    found, part = [], Templates.part

    def noted(self, name, block, context):
        found.append(name)
        return part(self, name, block, context)

    monkeypatch.setattr(Templates, "part", noted)
    return found


@pytest.mark.parametrize(
    "path",
    [
        "agents?fragment=rows",
        "agents/patient?fragment=live",
        "approvals?status=any&fragment=live",
        "runs?fragment=rows",
    ],
)
async def test_a_part_that_says_what_it_said_is_not_drawn_again_and_a_change_is_seen(browser, runtime, drawings, path):
    runtime.request_approval("patient", tool="first.tool")
    await triggered(runtime, "patient", "the first")
    before = [(await browser.get(f"/console/{path}")).text for _ in range(3)]
    assert len(drawings) <= 1  # another test may have left the same drawing
    assert len({*before}) == 1

    runtime.request_approval("patient", tool="second.tool")
    await triggered(runtime, "patient", "the second")
    drawings.clear()
    after = [(await browser.get(f"/console/{path}")).text for _ in range(3)]

    assert len(drawings) == 1
    assert len({*after}) == 1
    assert after[0] != before[0]


@pytest.mark.parametrize(
    "path",
    [
        "agents?fragment=rows",
        "agents/patient?fragment=live",
        "approvals?fragment=live",
        "fleet?fragment=live",
        "runs?status=failed&fragment=rows",
        "schedules?fragment=rows",
    ],
)
async def test_the_badge_in_a_part_follows_what_waits(browser, runtime, drawings, path):
    path = f"/console/{path}"
    await triggered(runtime, "patient", "of whom there is a page")
    runtime.request_approval()
    assert '<b class="badge" data-badge data-v="1">' in (await browser.get(path)).text
    runtime.request_approval()
    assert '<b class="badge" data-badge data-v="2">' in (await browser.get(path)).text
    for _ in range(98):
        runtime.request_approval()
    assert '<b class="badge" data-badge data-v="99+">' in (await browser.get(path)).text


async def test_a_runs_head_and_a_schedules_page_have_the_badge_for_who_has_them_open(browser, runtime):
    run = await triggered(runtime, "patient", "a page that is open")
    daily = ScheduleRequest("look", interval_seconds=86_400)
    schedule = await runtime.timetable.create(AgentRef.parse("patient"), daily)
    runtime.request_approval()

    for path in (f"runs/{run.run_id}?fragment=head", f"schedules/{schedule.schedule_id}?fragment=live"):
        assert (await browser.get(f"/console/{path}")).text.count("data-badge") == 1, path


async def test_what_waits_is_counted_once_for_all_pages_and_anew_after_a_decision(browser, runtime, monkeypatch):
    counted, count = [], runtime.pending_approvals

    async def counting(tenant, limit):
        counted.append(tenant)
        return await count(tenant, limit)

    monkeypatch.setattr(runtime, "pending_approvals", counting)
    approval = runtime.request_approval()
    page = (await browser.get("/console/approvals")).text
    counted.clear()
    monkeypatch.setattr(StageClock, "step", 0.0)
    for path in ("runs", "agents", "schedules", "approvals"):
        assert 'data-v="1">1<span class="unseen"> waiting' in (await browser.get(f"/console/{path}")).text
    assert counted == []

    path = f"/console/approvals/{approval.request.approval_id}/decision"
    await browser.send_form(path, token=token_of(page), decision="deny")

    assert 'data-v="" hidden' in (await browser.get("/console/runs")).text
    assert counted == [DEFAULT_TENANT]


async def test_the_badge_of_a_narrowed_key_counts_the_calls_of_its_agents_and_leads_to_their_inboxes(browser, runtime):
    for agent in ("patient:a", "patient:a", "patient:b", "assistant"):
        runtime.request_approval(agent)
    await browser.sign_in(await issued(runtime, "approver", agents=("agent:patient:*",)))

    assert '<b class="badge" data-badge data-v="3">' in (await browser.get("/console/runs?agent=patient:a")).text
    inbox = (await browser.get("/console/approvals")).text
    assert re.findall(r'href="/console/approvals\?agent=([^"]+)"', inbox) == ["patient%3Aa", "patient%3Ab"]
    assert "assistant" not in inbox
    await browser.sign_in(await issued(runtime, "approver", agents=("agent:patient:c",)))
    assert 'data-badge data-v="" hidden' in (await browser.get("/console/approvals")).text


async def test_the_badge_says_that_there_may_be_more_calls_than_it_counts(browser, runtime, monkeypatch):
    monkeypatch.setattr("console.badge._LOOKED_AT", 3)
    for agent in ("assistant", "patient", "assistant", "patient"):
        runtime.request_approval(agent)
    await browser.sign_in(await issued(runtime, "approver", agents=("agent:patient",)))

    assert '<b class="badge" data-badge data-v="1+">' in (await browser.get("/console/approvals")).text


async def test_who_asked_for_a_run_and_who_did_not_never_get_the_same_part(browser, runtime, monkeypatch):
    mine = await runtime.keys.create(LOCAL, KeyRequest("mine", ("approver",)))
    other = await issued(runtime, "approver")
    runtime.request_approval(excluded=(f"key:{mine.key.key_id}",))
    await browser.sign_in(mine.text)
    asked = (await browser.get("/console/approvals")).text
    monkeypatch.setattr(StageClock, "step", 0.0)
    part = "/console/approvals?status=pending&fragment=live"
    assert html.unescape(re.search(r'<live-region src="([^"]+)"', asked)[1]) == part

    own = (await browser.get(part)).text
    await browser.sign_in(other)
    of_another = (await browser.get(part)).text

    assert "You asked for this run" in own
    assert 'value="allow_once"' not in own
    assert "You asked for this run" not in of_another
    assert 'value="allow_once"' in of_another


async def test_parts_that_many_get_have_forms_without_a_token_and_the_page_has_it_for_them(browser, runtime):
    approval = runtime.request_approval()
    schedule = await runtime.timetable.create(AgentRef.parse("assistant"), ScheduleRequest("look", interval_seconds=60))
    nodes = [replace(each, state=NodeCondition.DRAINING) for each in runtime.cluster.nodes]
    runtime.cluster = replace(runtime.cluster, nodes=tuple(nodes))
    for path, action in (
        ("approvals", f"approvals/{approval.request.approval_id}/decision"),
        (f"schedules/{schedule.schedule_id}", f"schedules/{schedule.schedule_id}/pause"),
        ("fleet", f"fleet/nodes/{nodes[0].node_id}/undrain"),
    ):
        whole = (await browser.get(f"/console/{path}")).text
        region = re.search(r'<live-region src="([^"]+)"[^>]* token="([^"]+)"', whole)
        part = (await browser.get(html.unescape(region[1]))).text

        assert f'action="/console/{action}"' in part
        assert {*re.findall(r'name="token" value="([^"]*)"', part)} == {""}
        assert (await browser.send_form(f"/console/{action}", token="", decision="deny")).status_code == 403
        sent = await browser.send_form(f"/console/{action}", token=region[2], decision="deny")
        assert sent.status_code == 303, path


async def test_what_surrounds_the_list_of_runs_is_asked_for_once_for_all_who_look(browser, runtime, monkeypatch):
    asked = []

    def noted(name, ask):
        async def answer(*given, **more):
            asked.append(name)
            return await ask(*given, **more)

        monkeypatch.setattr(runtime, name, answer)

    noted("agents", runtime.agents)
    noted("run_usage", runtime.run_usage)
    await browser.get("/console/runs")
    asked.clear()
    await browser.get("/console/schedules")
    monkeypatch.setattr(StageClock, "step", 0.0)
    await browser.get("/console/runs")
    page = (await browser.get("/console/runs")).text
    assert sorted(asked) == ["agents", "run_usage"]

    assert '<option value="assistant">' in page
    await browser.sign_in(await issued(runtime, "runs:read"))
    assert '<option value="assistant">' not in (await browser.get("/console/runs")).text
    await browser.sign_in(await issued(runtime, "runs:read", "agents:read", agents=("agent:patient",)))
    page = (await browser.get("/console/runs?agent=patient")).text
    assert '<option value="patient">' in page
    assert '<option value="assistant">' not in page


async def test_many_who_look_at_the_list_of_runs_ask_the_store_once(browser, runtime, monkeypatch):
    asked = []
    search = type(runtime).search_runs

    async def counting(self, where):
        asked.append(where)
        return await search(self, where)

    monkeypatch.setattr(type(runtime), "search_runs", counting)
    monkeypatch.setattr(StageClock, "step", 0.0)
    path = "/console/runs?status=failed&fragment=rows"
    answers = await asyncio.gather(*(browser.get(path) for _ in range(5)))

    assert len({each.text for each in answers}) == 1
    assert len(asked) == 1
    await browser.get(path.partition("&")[0])
    assert len(asked) == 2


async def test_each_who_is_refused_a_part_gets_a_refusal_of_their_own():
    class Refusing:
        _live = LiveParts(ManualClock())

        @page("GET /console/runs", "runs:read", live={"rows": 1.0})
        async def rows(self, request):
            await asyncio.sleep(0)
            raise AccessDeniedError(f"key {principal_of(request).id} is for other agents")

    pages = Refusing()
    refused = await asyncio.gather(
        *(pages.rows(asked_by(replace(ONE, id=name), b"fragment=rows")) for name in ("one", "two")),
        return_exceptions=True,
    )

    assert [str(each) for each in refused] == ["key one is for other agents", "key two is for other agents"]


async def test_what_is_no_text_in_an_address_tells_parts_apart_like_any_other():
    class Counting:
        _live = LiveParts(ManualClock())
        make = Maker()

        @page("GET /console/runs", "runs:read", live={"rows": 1.0})
        async def rows(self, _request):
            return await self.make()

    pages = Counting()
    found = [await pages.rows(asked_by(ONE, b"fragment=rows&text=" + each)) for each in (b"\xff", b"\xfe", b"\xff")]

    assert [each.body for each in found] == [b"part 1", b"part 2", b"part 1"]


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("gzip, deflate, br", True), ("br,gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0.05, br", True), ("br;q=0, gzip", True),
        ("gzip;q=0", False), ("br, gzip; q=0.000, x", False), ("", False), ("br", False), ("identity", False),
    ],
)  # fmt: skip
async def test_pages_are_compressed_for_those_who_take_it(browser, header, taken):
    answer = await browser.get("/console/agents", headers={"Accept-Encoding": header})

    assert (answer.headers.get("content-encoding") == "gzip") is taken


async def test_a_part_is_not_shown_to_a_key_that_may_not_read_it(browser, runtime):
    reader, other = await issued(runtime, "runs:read"), await issued(runtime, "agents:read")
    path = "/console/runs?status=completed&fragment=rows"
    await browser.sign_in(reader)
    assert (await browser.get(path)).status_code == 200
    await browser.sign_in(other)

    assert (await browser.get(path)).status_code == 403
