"""The page of the fleet: nodes, providers, what waits for what, and draining."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from msgspec.structs import replace

from console.fleet import models_of, providers_of
from console.jinja import iso
from console.surface import build
from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.governance import Breaker
from owlclaw_ray.domain.node import ClusterView, LeaseView, NodeCondition
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.queue_length import Queue
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.runtime.api import Health, Runtime
from owlclaw_ray.store.commands import NoteQueueLengths
from owlclaw_ray.telemetry.metrics.api import MetricFamily, Sample
from owlclaw_ray.testing.clock import ManualClock
from serve.api import build_api
from serve.numbers import Numbers
from tests.console.conftest import Browser, StageClock, issued, token_of
from tests.console.test_pages import HARMFUL, HOSTILE, change, is_harmless, triggered
from tests.serve.conftest import BODY_LIMIT
from tests.serve.double import LOST, MemoryRuntime, node_view
from tests.usage import ended, result

FLEET = "/console/fleet"


def family(name, *samples, kind="counter"):
    return MetricFamily(
        name, kind, "", tuple(Sample(each, tuple(labels.items()), value) for each, labels, value in samples)
    )


def shown_by(runtime, *families):
    async def metrics():
        return families

    runtime.metrics = metrics


def words(page):
    """What a page says, without its markup."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page.partition("<main")[2])))


async def test_nodes_are_shown_with_what_they_hold_and_what_is_wrong_with_them(browser, runtime):
    slow = node_view("gamma", memory_used=0.93, store_seconds=None, store_problem="it is locked")
    runtime.cluster = replace(runtime.cluster, nodes=(node_view(), slow, node_view("beta", **LOST)))

    page = words((await browser.get(FLEET)).text)

    for text in (
        "alpha head active", "5, 1 at work", "root, keeper, gateway", "40 % of 32 GB", "1 of 4 taken, 12 waiting", "90 of 120 GB free",
        "Ray 2.60.0", "93 % of 32 GB", "it is locked", "beta lost", "missed heartbeats",
        "held by this cluster, generation 3", "west omega 0.0.9",
    ):  # fmt: skip
        assert text in page, text


async def test_numbers_of_all_parts_are_shown_and_which_parts_are_silent(browser, runtime):
    shown_by(
        runtime,
        family(
            "owlclaw_runs", ("owlclaw_runs", {"status": "queued"}, 1203.0), ("owlclaw_runs", {"status": "waiting"}, 7.0)
        ),
        family(
            "owlclaw_queue_seconds", ("owlclaw_queue_seconds_sum", {}, 12.0), ("owlclaw_queue_seconds_count", {}, 400.0)
        ),
        family("owlclaw_up", ("owlclaw_up", {"part": "store"}, 1.0), ("owlclaw_up", {"part": "gateway beta"}, 0.0)),
    )
    runtime.healthy = Health(ready=False, parts={"store": "ok", "directory": "does not answer"})

    page = words((await browser.get(FLEET)).text)

    for text in (
        "Runs queued 1,203",
        "Runs running 0",
        "Wait in the queue, mean 30 ms",
        "missing here: gateway beta",
        "directory : does not answer",
    ):
        assert text in page, text
    assert "store :" not in page


def test_providers_and_models_are_read_off_the_metrics():
    now = Numbers(
        [
            family(
                "owlclaw_provider_slots",
                ("owlclaw_provider_slots", {"provider": "openai", "node": "b"}, 16.0),
                ("owlclaw_provider_slots", {"provider": "openai", "node": "a"}, 8.0),
            ),
            family(
                "owlclaw_provider_calls",
                ("owlclaw_provider_calls", {"provider": "openai", "node": "b", "state": "waiting"}, 3.0),
            ),
            family(
                "owlclaw_model_calls",
                ("owlclaw_model_calls_total", {"model": "m", "error": "ok", "node": "a"}, 5.0),
                ("owlclaw_model_calls_total", {"model": "m", "error": "ok", "node": "b"}, 5.0),
                ("owlclaw_model_calls_total", {"model": "unknown", "error": "failed"}, 2.0),
            ),
            family("owlclaw_model_attempts_failed", ("owlclaw_model_attempts_failed_total", {"model": "m"}, 4.0)),
            family(
                "owlclaw_model_call_seconds",
                ("owlclaw_model_call_seconds_sum", {"model": "m"}, 20.0),
                ("owlclaw_model_call_seconds_count", {"model": "m"}, 10.0),
            ),
            family(
                "owlclaw_tokens",
                ("owlclaw_tokens_total", {"model": "m", "kind": "prompt"}, 100.0),
                ("owlclaw_tokens_total", {"model": "m", "kind": "cached"}, 90.0),
            ),
        ]
    )

    assert [(each.node, each.slots, each.running, each.waiting) for each in providers_of(now)] == [
        ("a", 8, 0, 0),
        ("b", 16, 0, 3),
    ]
    busiest, unknown = models_of(now)
    assert (busiest.calls, busiest.failed, busiest.failed_attempts, busiest.seconds, busiest.tokens) == (
        10,
        0,
        4,
        2,
        100,
    )
    assert (unknown.model, unknown.calls, unknown.failed, unknown.seconds) == ("unknown", 2, 2, None)


async def test_the_model_gateway_of_a_node_says_whether_it_answers_and_how_many_calls_it_has(browser, runtime):
    runtime.cluster = replace(runtime.cluster, nodes=(node_view(), node_view("beta"), node_view("gamma")))
    calls = "owlclaw_provider_calls"
    shown_by(
        runtime,
        family(
            "owlclaw_up",
            ("owlclaw_up", {"part": "gateway@alpha"}, 1.0),
            ("owlclaw_up", {"part": "gateway@beta"}, 0.0),
            ("owlclaw_up", {"part": "keeper@gamma"}, 1.0),
        ),
        family(
            calls,
            (calls, {"provider": "openai", "node": "alpha", "state": "running"}, 3.0),
            (calls, {"provider": "ollama", "node": "alpha", "state": "running"}, 1.0),
            (calls, {"provider": "openai", "node": "alpha", "state": "waiting"}, 2.0),
        ),
    )

    page = (await browser.get(FLEET)).text
    alpha, beta, gamma = (words("<main>" + each) for each in page.split('<article class="card node">')[1:])

    assert "Model gateway 4 calls, 2 waiting" in alpha
    assert "Model gateway no answer" in beta
    assert "Model gateway" not in gamma


async def test_breakers_that_are_not_closed_are_shown_with_when_they_are_tried_again(browser, runtime):
    await triggered(runtime, "patient")
    now = runtime._clock.now().timestamp()
    await triggered(runtime, "assistant")
    runtime.breakers[AgentRef.parse("assistant")] = (Breaker("shop.pay", 3),)
    runtime.breakers[AgentRef.parse("patient")] = (
        Breaker("shop.pay", 3),
        Breaker("shop.ask", 5, now + 40),
        Breaker("shop.look", 6, now - 5),
        Breaker(HOSTILE, 7, now + 4),
    )
    page = await browser.get(FLEET)
    shown = words(page.text)

    assert "patient shop.ask 5 open : one call tests it" in shown
    assert "patient shop.look 6 half open: the next call tests it" in shown
    assert "shop.pay" not in shown
    assert shown.index("shop.ask") < shown.index("shop.look")
    is_harmless(page, FLEET)
    runtime.breakers.clear()
    assert "All are closed" in words((await browser.get(FLEET)).text)
    await browser.sign_in(await issued(runtime, "system:read"))
    assert "Circuit breakers" not in (await browser.get(FLEET)).text


async def test_breakers_of_more_agents_than_a_page_has_are_on_the_next_one(browser, runtime):
    names = [f"patient:{number:03}" for number in range(203)]
    for name in names:
        await triggered(runtime, name)
        runtime.breakers[AgentRef.parse(name)] = (Breaker("shop.ask", 5, runtime._clock.now().timestamp() + 40),)

    def shown(page):
        return set(re.findall(r"patient:\d{3}", words(page).partition("Circuit breakers")[2]))

    first = (await browser.get(FLEET)).text
    address = html.unescape(re.search(r'href="([^"]*breakers_after[^"]*)"', first)[1])
    second = (await browser.get(address)).text
    live = html.unescape(re.search(r'<live-region src="([^"]*)"', second)[1])

    assert shown(first) == {*names[:200]}
    assert shown(second) - {names[199]} == {*names[200:]}
    assert "behind patient:199" in words(second)
    assert "Next agents" not in second
    assert shown((await browser.get(live)).text.join(("<main>", ""))) == shown(second)


async def test_what_waits_says_for_what_and_leads_there(browser, runtime):
    approval = runtime.request_approval()
    asks, parent, behind, over_quota = [
        await triggered(runtime, f"patient:{name}", name) for name in ("asks", "parent", "behind", "quota")
    ]
    approval = replace(approval, request=replace(approval.request, run_id=asks.run_id))
    runtime._approvals = {approval.request.approval_id: approval}
    change(runtime, asks.run_id, status=RunStatus.WAITING)
    change(runtime, parent.run_id, status=RunStatus.WAITING, awaits=(RunId("run_child"), RunId("run_other")))
    change(runtime, behind.run_id, status=RunStatus.QUEUED)
    change(runtime, over_quota.run_id, status=RunStatus.QUEUED, waits_for="running_runs")

    text = (await browser.get(FLEET)).text
    page = words(text)

    for said in (
        "asks somebody's decision about a call",
        "parent the end of a run that it started and 1 more",
        "quota queued the tenant's quota running_runs is reached",
        "behind queued it is about to begin",
    ):
        assert said in page, said
    for target in (f"approvals/{approval.request.approval_id}", "runs/run_child", f"runs/{behind.run_id}"):
        assert f'href="/console/{target}"' in text, target
    runtime.healthy = Health(ready=True, parts={"store": "ok"}, holder="west")
    assert "cluster west runs the agents, and this one stands by" in words((await browser.get(FLEET)).text)
    runtime.healthy = Health(ready=True, parts={"store": "ok"})
    runtime.cluster = ClusterView((node_view(state=NodeCondition.DRAINING),))
    assert "behind queued no node is active" in words((await browser.get(FLEET)).text)
    await browser.sign_in(await issued(runtime, "system:read"))
    assert "What waits" not in (await browser.get(FLEET)).text


async def test_a_queue_is_one_line_that_says_what_is_in_front_of_it(browser, runtime, monkeypatch):
    runs = [await triggered(runtime, "patient", f"order {number}") for number in range(3)]
    for run in runs[1:]:
        change(runtime, run.run_id, status=RunStatus.QUEUED)
    view = await runtime.agent(runs[0].agent)
    record = replace(view.record, queued_runs=2, running_run=runs[0].run_id)

    async def agent(_ref):
        return replace(view, record=record)

    monkeypatch.setattr(runtime, "agent", agent)
    text = (await browser.get(FLEET)).text

    assert "patient 2 queued runs the agent is at work" in words(text)
    assert f'<a href="/console/runs/{runs[0].run_id}">the agent is at work</a>' in text


async def test_a_long_queue_hides_no_other_one(browser, runtime):
    victim = await triggered(runtime, "patient:victim", "waits for a quota")
    change(runtime, victim.run_id, status=RunStatus.QUEUED, waits_for="running_runs")
    for number in range(60):
        change(runtime, (await triggered(runtime, "patient", f"order {number}")).run_id, status=RunStatus.QUEUED)

    page = words((await browser.get(FLEET)).text)

    assert "the tenant's quota running_runs is reached" in page
    assert "patient:victim" in page


async def test_a_queue_waits_since_its_oldest_run(browser, runtime):
    runs = [await triggered(runtime, "patient", f"order {number}") for number in range(3)]
    times = [runtime._clock.now() - timedelta(hours=hours) for hours in (3, 2, 1)]
    for run, at in zip(runs, times, strict=True):
        change(runtime, run.run_id, status=RunStatus.QUEUED, created_at=at)

    line = (await browser.get(FLEET)).text.partition("3 queued runs")[2].partition("</tr>")[0]

    assert f'datetime="{iso(times[0])}"' in line


async def test_the_fleet_is_shown_while_the_store_is_away(browser, runtime, monkeypatch):
    async def away(*_arguments, **_options):
        raise StoreUnavailableError("it restarts")

    for question in ("runs", "longest_queues", "agents", "run_usage", "queue_minutes", "pending_approvals"):
        monkeypatch.setattr(runtime, question, away)
    runtime.healthy = Health(ready=False, parts={"store": "it restarts"})

    page = await browser.get(FLEET)

    assert page.status_code == 200
    assert "store : it restarts" in words(page.text)
    assert "alpha" in page.text


async def test_a_node_is_drained_after_a_page_that_says_what_that_means_and_taken_back(browser, runtime):
    asked = (await browser.get(f"{FLEET}/nodes/id-of-alpha/drain")).text
    assert "5 agents leave it, 1 of them at work" in words(asked)
    assert "No other node is active" in asked
    assert runtime.drained == set()

    drained = await browser.send_form(f"{FLEET}/nodes/id-of-alpha/drain", token=token_of(asked))
    assert (drained.status_code, drained.headers["location"], runtime.drained) == (303, FLEET, {"id-of-alpha"})
    page = (await browser.get(FLEET)).text
    assert "draining" in page
    back = await browser.fill(FLEET, f"{FLEET}/nodes/id-of-alpha/undrain")
    assert (back.status_code, back.headers["location"], runtime.drained) == (303, FLEET, set())
    for nowhere in ("id-of-beta", "all", "alpha", "id-of", "%00"):
        assert (await browser.get(f"{FLEET}/nodes/{nowhere}/drain")).status_code == 404
        assert (await browser.send_form(f"{FLEET}/nodes/{nowhere}/drain", token=token_of(asked))).status_code == 404


async def test_who_may_not_drain_is_not_offered_it_and_other_tenants_see_no_fleet(browser, runtime):
    runtime.drained = {"id-of-alpha"}
    await browser.sign_in(await issued(runtime, "system:read"))
    page = (await browser.get(FLEET)).text
    assert "Drain" not in page
    assert "Take back" not in page

    await runtime.tenants.create(LOCAL, "acme")
    theirs = await runtime.keys.create(LOCAL, KeyRequest("theirs", ("admin",), tenant=TenantId("acme")))
    await browser.sign_in(theirs.text)
    assert (await browser.get(FLEET)).status_code == 403
    assert FLEET not in (await browser.get("/console/runs")).text
    assert (await browser.send_form(f"{FLEET}/nodes/id-of-alpha/undrain", token="x")).status_code == 403


async def test_a_runtime_without_nodes_and_one_that_stands_by_say_so(browser, runtime):
    runtime.cluster = ClusterView()
    assert "one process, without Ray" in (await browser.get(FLEET)).text
    runtime.cluster = ClusterView((), LeaseView("east", held=False, generation=0, holder="west"))
    assert "This cluster stands by: west runs the agents" in words((await browser.get(FLEET)).text)


@HARMFUL
@pytest.mark.parametrize("path", [FLEET, f"{FLEET}?fragment=live", f"{FLEET}/nodes/id-of-alpha/drain"])
async def test_whatever_a_node_or_a_metric_says_is_shown_as_text(browser, runtime, path, hostile):
    node = replace(node_view(), name=hostile, address=hostile, problem=hostile, parts=(hostile,))
    versions = replace(node.report.versions, platform=hostile, ray=hostile)
    load = replace(node.report.load, store_seconds=None, store_problem=hostile)
    node = replace(
        node, report=replace(node.report, versions=versions, load=load), slots=(replace(node.slots[0], name=hostile),)
    )
    other = replace(
        runtime.cluster.lease.others[0], cluster=hostile, machines=(hostile,), version=hostile, since=hostile
    )
    runtime.cluster = ClusterView(
        (node, node), LeaseView(hostile, held=False, generation=1, holder=hostile, others=(other,))
    )
    runtime.healthy = Health(ready=False, parts={hostile: hostile}, holder=hostile)
    shown_by(
        runtime,
        family("owlclaw_up", ("owlclaw_up", {"part": hostile}, 0.0)),
        family("owlclaw_provider_slots", ("owlclaw_provider_slots", {"provider": hostile, "node": hostile}, 1.0)),
        family("owlclaw_model_calls", ("owlclaw_model_calls_total", {"model": hostile, "error": hostile}, 1.0)),
    )
    run = await triggered(runtime, "patient", hostile)
    change(runtime, run.run_id, status=RunStatus.QUEUED, waits_for=hostile)

    is_harmless(await browser.get(path), path)


async def test_a_queue_of_an_agent_whose_definition_is_gone_is_one_line_too(browser, runtime, monkeypatch):
    await triggered(runtime, "patient:a")
    run = await triggered(runtime, "patient:a", "queued behind it")
    change(runtime, run.run_id, status=RunStatus.QUEUED, agent=AgentRef.parse("gone:a"))

    page = await browser.get(FLEET)

    assert page.status_code == 200
    assert "gone:a" in page.text


async def test_open_pages_share_what_they_ask_for_again_and_a_page_that_is_loaded_asks_anew(
    browser, runtime, monkeypatch
):
    monkeypatch.setattr(StageClock, "step", 0.0)
    asked = []
    nodes = runtime.nodes

    async def counted():
        asked.append("nodes")
        return await nodes()

    monkeypatch.setattr(runtime, "nodes", counted)
    await browser.get(FLEET)
    for _ in range(5):
        assert "alpha" in (await browser.get(f"{FLEET}?fragment=live")).text
    assert len(asked) == 1
    await browser.get(FLEET)
    assert len(asked) == 2


async def test_pages_that_are_loaded_while_the_nodes_are_asked_share_the_next_round(browser, runtime, monkeypatch):
    monkeypatch.setattr(StageClock, "step", 0.0)
    rounds, nodes, goes_on = [], runtime.nodes, asyncio.Event()

    async def slow():
        rounds.append("nodes")
        await goes_on.wait()
        return await nodes()

    monkeypatch.setattr(runtime, "nodes", slow)
    first = asyncio.create_task(browser.get(FLEET))
    while not rounds:
        await asyncio.sleep(0)
    others = [asyncio.create_task(browser.get(FLEET)) for _ in range(5)]
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert len(rounds) == 1
    goes_on.set()

    assert {each.status_code for each in await asyncio.gather(first, *others)} == {200}
    assert len(rounds) == 2


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 11, 26, 12, tzinfo=UTC))


@pytest.fixture
def runtime(clock: ManualClock) -> MemoryRuntime:
    return MemoryRuntime(clock)


@pytest.fixture
async def fresh(runtime: MemoryRuntime, clock: ManualClock) -> AsyncIterator[Browser]:
    """A browser before a server that nobody has looked at yet."""
    api = build_api(cast("Runtime", runtime), clock=clock, body_limit_bytes=BODY_LIMIT, surfaces=[build])
    async with Browser(api) as found:
        yield found


class Lengths:
    """The metrics of a runtime whose queues are as long as one says."""

    def __init__(self, runtime):
        self.queued, self.calls = 0.0, {"waiting": 2.0, "running": 5.0}
        runtime.metrics = self.families

    async def families(self):
        calls, slots = "owlclaw_provider_calls", "owlclaw_node_waiting_calls"
        return [
            family("owlclaw_runs", ("owlclaw_runs", {"status": "queued"}, self.queued)),
            family(calls, *((calls, {"provider": "x", "state": each}, number) for each, number in self.calls.items())),
            family(slots, *((slots, {"node": each, "slots": "tool_slots"}, 6.0) for each in ("a", "b"))),
        ]


def queues_of(page):
    """By queue: now, most, least, and the columns of its picture by their titles."""
    bodies = re.findall(r'<table class="small queues">.*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    found = {}
    for row in re.findall(r"<tr>(.*?)</tr>", "".join(bodies), re.DOTALL):
        name, *numbers = re.findall(r"<td[^>]*>([^<]*)</td>", row)
        found[name] = numbers, re.findall(r"<title>(.*?)</title>", row), re.search(r'aria-label="([^"]*)"', row)[1]
    return found


async def noted(runtime, clock, *lengths):
    """Note how long the queue of runs was, each time so many seconds before the next."""
    for queued, seconds in lengths:
        await runtime.schedules.apply([NoteQueueLengths(clock.now(), {Queue.QUEUED_RUNS: queued})])
        await clock.advance(seconds)


async def test_a_queue_shows_how_long_it_was_in_minutes_in_which_nobody_looked(fresh, runtime, clock):
    await noted(runtime, clock, (40, 20), (3, 160), (0, 60))
    Lengths(runtime).queued = 1_200.0

    page = (await fresh.get(FLEET)).text
    numbers, columns, words_of_it = queues_of(page)["Runs queued"]

    assert numbers == ["1,200", "1,200", "0"]
    assert columns == ["12:00 UTC: 3 to 40", "12:03 UTC: 0", "12:04 UTC: 1,200"]
    assert words_of_it == "Runs queued: 1,200 now, at most 1,200 and at least 0 in the minutes that are known"
    assert queues_of(page)["Model calls that wait for a provider"][0] == ["2", "2", "2"]
    assert queues_of(page)["Tool calls that wait for a slot"][0] == ["12", "12", "12"]
    assert "Callbacks to be sent" not in queues_of(page)


async def test_what_was_noted_of_this_minute_is_shown_together_with_the_present_length(fresh, runtime, clock):
    await noted(runtime, clock, (40, 20), (5, 20))
    Lengths(runtime).queued = 3.0

    numbers, columns, _ = queues_of((await fresh.get(FLEET)).text)["Runs queued"]

    assert (numbers, columns) == (["3", "40", "3"], ["12:00 UTC: 3 to 40"])


async def test_lengths_of_an_hour_are_shown_and_what_did_not_answer_has_none(fresh, runtime, clock):
    await noted(runtime, clock, (40, 60), (41, 58 * 60))
    Lengths(runtime).queued = 7.0
    page = (await fresh.get(FLEET)).text
    expected = ["12:00 UTC: 40", "12:01 UTC: 41", "12:59 UTC: 7"]
    assert queues_of(page)["Runs queued"][:2] == (["7", "41", "7"], expected)
    shown_by(runtime)
    await clock.advance(1)
    assert "Runs queued" not in queues_of((await fresh.get(FLEET)).text)
    Lengths(runtime).queued = 8.0
    await clock.advance(60)

    page = (await fresh.get(FLEET)).text

    assert queues_of(page)["Runs queued"][:2] == (["8", "41", "8"], ["12:01 UTC: 41", "13:00 UTC: 8"])


async def test_how_many_runs_ended_is_known_of_minutes_in_which_nobody_looked(fresh, runtime, clock):
    at = clock.now()
    await ended(runtime.schedules, AgentRef.parse("assistant"), at, result())
    await ended(runtime.schedules, AgentRef.parse("patient"), at, result())
    await ended(runtime.schedules, AgentRef.parse("patient", TenantId("acme")), at, result())
    await clock.advance(300)

    numbers, columns, _ = queues_of((await fresh.get(FLEET)).text)["Runs that ended, of this tenant"]

    assert numbers == ["0", "2", "0"]
    assert (len(columns), columns[-6]) == (60, "12:00 UTC: 2")
    await fresh.sign_in(await issued(runtime, "system:read"))
    assert "Runs that ended" not in (await fresh.get(FLEET)).text
