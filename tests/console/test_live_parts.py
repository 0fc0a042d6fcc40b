"""Parts that open pages ask for again and again: made once for all who see the same, and soon made anew."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from console import live_parts
from console.live_parts import Audience, LiveParts
from console.pages import page
from owlclaw_ray.domain.principal import Principal, PrincipalKind
from owlclaw_ray.errors import AccessDeniedError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.testing.clock import ManualClock
from serve.parameters import PRINCIPAL, principal_of
from tests.console.conftest import StageClock, issued

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
    assert len(parts._parts) == 2


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
