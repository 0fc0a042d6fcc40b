from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import NamedTuple

import httpx
import pytest
import uvicorn

from tests.contract.world import serve


class Served(NamedTuple):
    """An API, and a key that may do everything there."""

    url: str
    key: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An API that has something of each kind: runs, schedules, memories, approvals, callbacks, deliveries."""
    started: Future[uvicorn.Server] = Future()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        serving = serve(tmp_path_factory.mktemp("contract"), listener, started)
        thread = threading.Thread(target=asyncio.run, args=(serving,))
        thread.start()
        running = started.result(60)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield Served(url, _fill(url))
        running.should_exit = True
        thread.join()


def _fill(url: str) -> str:
    """Have the server do something of each kind; return a key."""
    with httpx.Client(base_url=url, timeout=60) as http:
        told = {"callback_url": "https://shop.example.org/ended"}
        for number in range(5):
            run = http.post(f"/v1/agents/cashier:{number}/triggers", json=told).json()["run_id"]
        http.post("/v1/webhooks/github", json={"action": "opened"})
        http.post("/v1/agents/assistant/memories", json={"content": "The owner is away.", "tags": ["owner"]})
        while http.get("/v1/approvals").json()["approvals"] == []:
            assert http.get(f"/v1/runs/{run}").json()["status"] in {"queued", "running", "waiting"}
        key: str = http.post("/v1/keys", json={"name": "contract", "scopes": ["admin"]}).json()["key"]
        return key
