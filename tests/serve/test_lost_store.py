"""The store's file is deleted or moved away while the runtime serves, as a client sees it."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.access_key import KEY_VARIABLE
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.api import build_api
from serve.cli.project_checks import check_project
from serve.pid_file import PidFile
from tests.definitions.writing import write_definition

TRIGGERS = "/v1/agents/assistant/triggers"


@pytest.fixture
async def api(tmp_path):
    """The API of a runtime."""
    write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:echo\n")
    async with in_process_runtime(agents_dir=tmp_path / "agents", data_dir=tmp_path / "data") as runtime:
        yield build_api(runtime, clock=SystemClock(), body_limit_bytes=100_000)


@pytest.fixture
async def served(api):
    """Its client."""
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8700") as http:
        yield http


@asynccontextmanager
async def listening(api):
    """The URL of the API behind a real HTTP server."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(api, log_level="error", lifespan="off", ws="none"))
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


async def store_findings(folder):
    """What doctor finds of the store."""
    environment = {"PATH": "/usr/bin:/bin"}
    found = await asyncio.to_thread(lambda: list(check_project(folder, environment)))
    return [each for each in found if each.subject == "store"]


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


async def test_doctor_says_of_a_store_that_was_moved_away_or_replaced_what_the_runtime_that_has_it_open_says(
    api, tmp_path
):
    data_dir = tmp_path / "data"
    (tmp_path / "owlclaw.yaml").write_text("data_dir: data\n")
    async with listening(api) as url:
        PidFile(os.getpid(), url, SystemClock().now()).write(data_dir)
        whole = await store_findings(tmp_path)
        (data_dir / "owlclaw.db").rename(tmp_path / "elsewhere.db")
        moved = await store_findings(tmp_path)
        (data_dir / "owlclaw.db").write_bytes(b"another file " * 1_000)
        replaced = await store_findings(tmp_path)
        (tmp_path / "elsewhere.db").rename(data_dir / "owlclaw.db")
        back = await store_findings(tmp_path)

    for found in (whole, back):
        assert [each.level.value for each in found] == ["OK"]
        assert "opens and is sound" in found[0].message
    for found, said in ((moved, "was deleted or moved away"), (replaced, "was replaced by another file")):
        assert [each.level.value for each in found] == ["FAIL"]
        assert f"process {os.getpid()}, which serves {url}, has it open, and reports: " in found[0].message
        assert f"{data_dir / 'owlclaw.db'} {said} while the runtime uses it" in found[0].message
        assert "damaged" not in found[0].message


async def test_doctor_without_a_key_says_that_it_needs_one_to_know_what_is_wrong(tmp_path, monkeypatch):
    write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:echo\n")
    (tmp_path / "owlclaw.yaml").write_text("data_dir: data\n")
    async with in_process_runtime(agents_dir=tmp_path / "agents", data_dir=tmp_path / "data") as runtime:
        key = (await runtime.keys.create(LOCAL, KeyRequest("ops", ("system:read",)))).text
        async with listening(build_api(runtime, clock=SystemClock(), body_limit_bytes=100_000)) as url:
            PidFile(os.getpid(), url, SystemClock().now()).write(tmp_path / "data")
            (whole,) = await store_findings(tmp_path)
            async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as operator:
                assert "parts" in (await operator.get(f"{url}/readyz")).json()
            (tmp_path / "data" / "owlclaw.db").rename(tmp_path / "elsewhere.db")
            (stranger,) = await store_findings(tmp_path)
            monkeypatch.setenv(KEY_VARIABLE, key)
            (known,) = await store_findings(tmp_path)
            (tmp_path / "elsewhere.db").rename(tmp_path / "data" / "owlclaw.db")

    assert whole.level.value == "OK"
    assert (stranger.level.value, known.level.value) == ("FAIL", "FAIL")
    assert "not ready; what is wrong it says with OWLCLAW_API_KEY set" in stranger.message
    assert "was deleted or moved away" in known.message


async def test_doctor_takes_no_store_for_sound_whose_runtime_ceases_to_answer_meanwhile(api, tmp_path):
    asked, over = [], asyncio.Event()

    async def falls_silent(scope, receive, send):
        asked.append(scope["path"])
        if len(asked) == 1:
            await api(scope, receive, send)
        else:
            await over.wait()

    (tmp_path / "owlclaw.yaml").write_text("data_dir: data\n")
    async with listening(falls_silent) as url:
        PidFile(os.getpid(), url, SystemClock().now()).write(tmp_path / "data")
        (found,) = await store_findings(tmp_path)
        over.set()

    assert asked == ["/readyz", "/readyz"]
    assert found.level.value == "WARN"
    assert "has it open, and does not report its state" in found.message


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
