from __future__ import annotations

from datetime import datetime, timedelta

import httpx
import pytest
from msgspec.structs import replace

from owlclaw_ray.store.run_search import RunPage, RunSearch
from tests.serve.double import FINAL_TEXT, MemoryRuntime


async def submit(http: httpx.AsyncClient, agent: str = "assistant") -> str:
    return (await http.post(f"/v1/agents/{agent}/triggers")).json()["run_id"]


async def test_a_run_has_its_result_and_its_times_in_utc(http: httpx.AsyncClient):
    run = (await http.get(f"/v1/runs/{await submit(http)}")).json()

    assert run["result"]["tokens"] == {"prompt": 40, "completion": 10, "cached": 0}
    assert run["result"]["tools_called"] == ["query_state", "recall"]
    assert run["result"]["scripted"] is True
    assert all(run[name].endswith("Z") for name in ("created_at", "started_at", "finished_at"))
    assert "events" not in run


async def test_a_run_comes_with_its_events_on_request(http: httpx.AsyncClient):
    run = (await http.get(f"/v1/runs/{await submit(http)}", params={"events": "true"})).json()

    assert [event["seq"] for event in run["events"]] == list(range(1, 9))
    assert run["events"][-1]["kind"] == "run_finished"
    assert run["events"][-1]["data"]["final_text"] == FINAL_TEXT


@pytest.mark.parametrize("path", ["", "/events"])
async def test_an_unknown_run_is_not_found(http: httpx.AsyncClient, path: str):
    response = await http.get(f"/v1/runs/run_x{path}")

    assert (response.status_code, response.json()["kind"], response.json()["id"]) == (404, "run", "run_x")


async def test_runs_are_listed_newest_first_page_by_page(http: httpx.AsyncClient):
    made = [await submit(http) for _ in range(5)]

    first = (await http.get("/v1/runs", params={"limit": 3})).json()
    second = (await http.get("/v1/runs", params={"limit": 3, "before": first["next_before"]})).json()

    assert [run["run_id"] for run in first["runs"] + second["runs"]] == made[::-1]
    assert second["next_before"] is None


async def test_a_page_after_a_run_that_is_not_there_is_not_found(http: httpx.AsyncClient):
    response = await http.get("/v1/runs", params={"before": "run_x"})

    assert (response.status_code, response.json()["id"]) == (404, "run_x")


async def test_nothing_that_is_shown_of_runs_counts_those_of_others(http: httpx.AsyncClient, runtime: MemoryRuntime):
    for _ in range(3):
        await submit(http)

    async def shown():
        pages = [(await http.get("/v1/runs", params={"limit": 2})).json()]
        pages.append((await http.get("/v1/runs", params={"before": pages[0]["next_before"]})).json())
        runs = [(await http.get(f"/v1/runs/{each['run_id']}")).json() for page in pages for each in page["runs"]]
        return pages, runs

    before = await shown()
    for run_id, run in runtime._runs.items():
        runtime._runs[run_id] = replace(run, seq=run.seq * 1_000)
    assert await shown() == before


async def test_a_listing_has_payloads_only_if_they_are_asked_for(http: httpx.AsyncClient):
    await http.post("/v1/agents/assistant/triggers", json={"payload": {"股票": 3}})

    [brief] = (await http.get("/v1/runs")).json()["runs"]
    [whole] = (await http.get("/v1/runs", params={"include": "payload"})).json()["runs"]

    assert "payload" not in brief["trigger"]
    assert whole["trigger"] == {**brief["trigger"], "payload": {"股票": 3}}
    assert (await http.get(f"/v1/runs/{brief['run_id']}")).json() == whole
    assert (await http.get("/v1/runs", params={"include": "everything"})).status_code == 422


async def test_runs_are_filtered_by_agent_and_status(http: httpx.AsyncClient):
    await submit(http)
    patient = await submit(http, "patient")

    by_agent = (await http.get("/v1/runs", params={"agent": "patient"})).json()
    by_status = (await http.get("/v1/runs", params={"status": "running"})).json()

    assert [run["run_id"] for run in by_agent["runs"]] == [patient]
    assert by_status == by_agent


async def test_runs_are_filtered_by_definition_trigger_time_text_and_whether_they_are_over(
    http: httpx.AsyncClient, runtime: MemoryRuntime
):
    made = {}
    for agent, focus in (("assistant:a", "order 17"), ("assistant", "处理订单"), ("patient", "Order 18")):
        answer = await http.post(f"/v1/agents/{agent}/triggers", json={"focus": focus, "kind": "event"})
        made[agent] = answer.json()["run_id"]
    long_ago = runtime._clock.now() - timedelta(days=2)
    runtime._runs[made["assistant"]] = replace(runtime._runs[made["assistant"]], created_at=long_ago)
    yesterday = (long_ago + timedelta(days=1)).isoformat()

    async def found(**query: str) -> list[str]:
        page = (await http.get("/v1/runs", params=query)).json()
        assert (page["next_before"], page["searched_to"]) == (None, None)
        ids = {run_id: agent for agent, run_id in made.items()}
        return sorted(ids[run["run_id"]] for run in page["runs"])

    assert await found(definition="assistant") == ["assistant", "assistant:a"]
    assert await found(trigger="event") == sorted(made)
    assert await found(trigger="webhook") == []
    assert await found(since=yesterday) == ["assistant:a", "patient"]
    assert await found(until=yesterday) == ["assistant"]
    assert await found(text="ORDER") == ["assistant:a", "patient"]
    assert await found(text="订单") == ["assistant"]
    assert await found(open="true") == ["patient"]
    assert await found(definition="assistant", text="order 17", since=yesterday) == ["assistant:a"]


async def test_a_page_that_stopped_searching_says_how_far_it_looked_and_where_to_go_on(
    http: httpx.AsyncClient, runtime: MemoryRuntime, monkeypatch: pytest.MonkeyPatch
):
    run = runtime._runs[await submit(http)]

    async def searched(where: RunSearch) -> RunPage:
        return RunPage((), run.run_id, run.created_at)

    monkeypatch.setattr(runtime, "search_runs", searched)
    page = (await http.get("/v1/runs", params={"text": "needle"})).json()

    assert (page["runs"], page["next_before"]) == ([], run.run_id)
    assert datetime.fromisoformat(page["searched_to"]) == run.created_at


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ({"limit": "0"}, "query limit"),
        ({"limit": "many"}, "query limit"),
        ({"status": "done"}, "query status"),
        ({"trigger": "phone"}, "query trigger"),
        ({"since": "yesterday"}, "query since"),
        ({"until": "2026-11-03"}, "query until"),
        ({"text": "x" * 501}, "query text"),
    ],
)
async def test_wrong_parameters_are_refused_with_their_names(
    http: httpx.AsyncClient, query: dict[str, str], where: str
):
    response = await http.get("/v1/runs", params=query)

    assert response.status_code == 422
    (problem,) = response.json()["problems"]
    assert problem["where"] == where
    assert next(iter(query.values())) in problem["what"]


async def test_cancelling_is_accepted_and_then_final(http: httpx.AsyncClient):
    run_id = await submit(http, "patient")

    first = await http.post(f"/v1/runs/{run_id}/cancel")
    second = await http.post(f"/v1/runs/{run_id}/cancel")

    assert (first.status_code, first.json()["cancel_requested"]) == (202, True)
    assert (second.status_code, second.json()["status"]) == (200, "cancelled")


async def test_cancelling_a_finished_run_leaves_it_as_it_is(http: httpx.AsyncClient):
    response = await http.post(f"/v1/runs/{await submit(http)}/cancel")

    assert (response.status_code, response.json()["status"]) == (200, "completed")


async def test_cancelling_an_unknown_run_is_not_found(http: httpx.AsyncClient):
    assert (await http.post("/v1/runs/run_x/cancel")).status_code == 404
