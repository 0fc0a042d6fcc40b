from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import cast

import httpx
import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.followers import RunFollower
from owlclaw_ray.store.queries import RunFilter, RunProgress
from serve.api import build_api
from serve.streams import KeepAliveTimer
from tests.serve.conftest import serving
from tests.serve.double import MemoryRuntime


async def submit(http: httpx.AsyncClient, agent: str = "assistant") -> str:
    return (await http.post(f"/v1/agents/{agent}/triggers")).json()["run_id"]


def frames(text: str) -> list[dict[str, str]]:
    return [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in text.split("\n\n") if frame]


async def test_a_finished_run_streams_its_journal_and_ends(http: httpx.AsyncClient):
    response = await http.get(f"/v1/runs/{await submit(http)}/events")

    *events, end = frames(response.text)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [event["id"] for event in events] == [str(seq) for seq in range(1, 9)]
    assert events[0]["event"] == "run_queued"
    assert json.loads(events[-1]["data"])["data"]["status"] == "completed"
    assert (end["event"], json.loads(end["data"]), "id" in end) == ("end", {"status": "completed"}, False)


async def test_a_stream_resumes_after_the_last_event_that_the_client_saw(http: httpx.AsyncClient):
    run_id = await submit(http)

    response = await http.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": "6"})
    nothing_new = await http.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": "8"})

    assert [event.get("id") for event in frames(response.text)] == ["7", "8", None]
    assert [event["event"] for event in frames(nothing_new.text)] == ["end"]


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "٣", "1" * 20])
async def test_a_last_event_id_that_is_none_of_ours_is_refused(http: httpx.AsyncClient, value: str):
    run_id = await submit(http)
    response = await http.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": value.encode()})

    assert (response.status_code, response.json()["problems"][0]["where"]) == (422, "header Last-Event-ID")


async def test_events_arrive_as_they_happen_with_comments_between(server: str):
    async with httpx.AsyncClient(base_url=server, trust_env=False) as http:
        run_id = await submit(http, "patient")
        seen: list[str] = []
        async with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
            async for line in response.aiter_lines():
                if line.startswith((":", "event:")):
                    seen.append(line)
                if line == ": keep-alive" and seen.count(line) == 2:
                    await http.post(f"/v1/runs/{run_id}/cancel")

    assert [line for line in seen if line != ": keep-alive"] == [
        "event: run_queued",
        "event: run_started",
        "event: cancel_requested",
        "event: run_finished",
        "event: end",
    ]
    assert seen[2:4] == [": keep-alive", ": keep-alive"]


async def test_a_stream_that_the_store_interrupts_closes_without_end(
    http: httpx.AsyncClient, runtime: MemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    run_id = await submit(http, "patient")
    entry = JournalEntry(1, EntryKind.RUN_QUEUED, datetime(2026, 11, 3, tzinfo=UTC))
    answers = [
        RunProgress((entry,), RunStatus.RUNNING, more=True),
        StoreUnavailableError("the store is being restarted"),
    ]

    async def watched(_position: object) -> RunProgress:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(runtime, "_watched", watched)
    response = await http.get(f"/v1/runs/{run_id}/events")

    assert response.text.endswith(": interrupted: the store is being restarted\n\n")
    assert "event: end" not in response.text


async def test_a_stream_of_a_run_that_is_removed_meanwhile_ends_and_there_is_none_to_go_on_with(
    http: httpx.AsyncClient, runtime: MemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    run_id = await submit(http, "patient")
    entry = JournalEntry(1, EntryKind.RUN_QUEUED, datetime(2026, 11, 3, tzinfo=UTC))
    answers = [RunProgress((entry,), RunStatus.COMPLETED, more=True)]

    async def watched(_position: object) -> RunProgress | None:
        return answers.pop() if answers else None

    monkeypatch.setattr(runtime, "_watched", watched)
    response = await http.get(f"/v1/runs/{run_id}/events")
    again = await http.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": "1"})

    assert (response.status_code, [event["event"] for event in frames(response.text)]) == (200, ["run_queued"])
    assert (again.status_code, again.json()["id"]) == (404, run_id)


async def test_a_stream_of_a_run_that_there_is_not_is_a_problem(http: httpx.AsyncClient):
    response = await http.get("/v1/runs/run_none/events")

    assert (response.status_code, response.json()["id"]) == (404, "run_none")


async def test_a_stream_that_the_store_cannot_begin_is_a_problem(
    http: httpx.AsyncClient, runtime: MemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    run_id = await submit(http)

    async def unavailable(_position: object) -> None:
        raise StoreUnavailableError("the store is being restarted")

    monkeypatch.setattr(runtime, "_watched", unavailable)
    response = await http.get(f"/v1/runs/{run_id}/events")

    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")


async def test_a_client_that_goes_away_is_followed_no_more(server: str, runtime: MemoryRuntime):
    async with httpx.AsyncClient(base_url=server, trust_env=False) as http:
        run_id = await submit(http, "patient")
        async with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
            lines = response.aiter_lines()
            await anext(lines)
            assert runtime.followers == 1
    async with asyncio.timeout(30):
        while runtime.followers:
            await asyncio.sleep(0.01)


async def test_what_is_too_much_is_refused_at_once_and_everything_else_goes_on(runtime: MemoryRuntime):
    """Of two places one is an event stream's, the other a trigger's that waits."""
    api = build_api(runtime, clock=SystemClock(), body_limit_bytes=1_000, streams=2)
    with serving(api) as url:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
            run_id = await submit(http, "patient")
            async with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
                lines = response.aiter_lines()
                await anext(lines)
                waiting = asyncio.create_task(http.post("/v1/agents/patient/triggers?wait=60"))
                async with asyncio.timeout(30):
                    while runtime.followers < 2:
                        await asyncio.sleep(0.01)

                streamed = await http.get(f"/v1/runs/{run_id}/events")
                waited = await http.post("/v1/agents/assistant/triggers?wait=5")
                triggered = await http.post("/v1/agents/assistant/triggers")
                alive = await http.get("/healthz")

                for run in (await http.get("/v1/runs?agent=patient")).json()["runs"]:
                    await http.post(f"/v1/runs/{run['run_id']}/cancel")
                await waiting
            async with asyncio.timeout(30):
                while runtime.followers:
                    await asyncio.sleep(0.01)
            again = await http.post("/v1/agents/assistant/triggers?wait=5")

    for refused in (streamed, waited):
        assert refused.status_code == 503
        assert refused.headers["content-type"] == "application/problem+json"
        assert int(refused.headers["Retry-After"]) > 0
        assert (refused.json()["type"], refused.json()["limit"]) == ("urn:owlclaw:problem:too-many-streams", 2)
    assert (triggered.status_code, alive.status_code, again.status_code) == (202, 200, 200)
    assert len(await runtime.runs(RunFilter(DEFAULT_TENANT, AgentRef.parse("assistant")))) == 2


async def test_every_stream_is_kept_alive_in_turn_by_one_timer(monkeypatch: pytest.MonkeyPatch):
    loop = asyncio.get_running_loop()
    timers: list[float] = []

    def call_later(seconds: float, callback: Callable[[], None]) -> None:
        timers.append(seconds)
        loop.call_soon(callback)

    monkeypatch.setattr(loop, "call_later", call_later)
    pulse, nudged = KeepAliveTimer(15), Counter[int]()
    followers = [Nudged(nudged, at) for at in range(512)]
    with ExitStack() as stack:
        for follower in followers:
            stack.enter_context(pulse.beating(cast("RunFollower", follower)))
        most = 0
        while sum(nudged.values()) < len(followers):
            before = sum(nudged.values())
            await asyncio.sleep(0)
            most = max(most, sum(nudged.values()) - before)
    beats = len(timers)
    for _ in range(10):
        await asyncio.sleep(0)

    assert set(nudged.values()) == {1}
    assert most == 2
    assert sum(timers[:256]) == pytest.approx(15)
    assert len(timers) <= beats + 1, "the timer goes on although nobody is there"


class Nudged:
    def __init__(self, nudged: Counter[int], number: int) -> None:
        self._nudged, self._number = nudged, number

    def nudge(self) -> None:
        self._nudged[self._number] += 1
