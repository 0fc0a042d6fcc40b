"""The store's file is deleted or moved away while the runtime serves, as a client sees it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from owlclaw_ray.adapters.system_clock import SystemClock
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.api import build_api
from tests.identity.writing import write_definition

TRIGGERS = "/v1/agents/assistant/triggers"


@pytest.fixture
async def served(tmp_path):
    """The API of a runtime."""
    write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:echo\n")
    async with in_process_runtime(agents_dir=tmp_path / "agents", data_dir=tmp_path / "data") as runtime:
        transport = httpx.ASGITransport(build_api(runtime, clock=SystemClock(), body_limit_bytes=100_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8700") as http:
            yield http


async def test_a_deleted_store_is_not_ready_and_accepts_nothing(served, tmp_path):
    http = served
    assert (await http.post(TRIGGERS, params={"wait": 20})).json()["status"] == "completed"
    assert (await http.get("/readyz")).status_code == 200
    (tmp_path / "data" / "owlclaw.db").unlink()

    refused = await http.post(TRIGGERS)
    ready = await http.get("/readyz")

    assert (refused.status_code, refused.headers["content-type"]) == (503, "application/problem+json")
    assert refused.json()["type"] == "urn:owlclaw:problem:store-unavailable"
    assert ready.status_code == 503
    for said in (refused.json()["detail"], ready.json()["parts"]["store"]):
        assert f"{tmp_path}/data/owlclaw.db was deleted or moved away" in said
        assert "put a backup there, and start it again" in said


async def test_runs_wait_for_a_store_that_was_moved_away_and_go_on_when_it_is_back(served, tmp_path):
    http = served
    accepted = (await http.post(TRIGGERS)).json()["run_id"]
    (tmp_path / "data").rename(tmp_path / "elsewhere")

    assert (await http.post(TRIGGERS)).status_code == 503
    (tmp_path / "elsewhere").rename(tmp_path / "data")

    assert (await http.get("/readyz")).status_code == 200
    run = (await http.get(f"/v1/runs/{accepted}")).json()
    while not RunStatus(run["status"]).final:
        await asyncio.sleep(0.02)
        run = (await http.get(f"/v1/runs/{accepted}")).json()
    assert run["status"] == "completed"
    assert [each["run_id"] for each in (await http.get("/v1/runs")).json()["runs"]] == [accepted]
