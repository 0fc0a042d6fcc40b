from __future__ import annotations

import json

import httpx
import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ports.runtime import Runtime


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
    http: httpx.AsyncClient, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    run_id = await submit(http)

    async def unavailable(*_args: object) -> None:
        raise StoreUnavailableError("the store is being restarted")

    monkeypatch.setattr(runtime, "watch", unavailable)
    response = await http.get(f"/v1/runs/{run_id}/events")

    assert response.text == ": interrupted: the store is being restarted\n\n"
