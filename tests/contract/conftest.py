from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from tests.contract.world import made
from tests.listening import listening


class Served(NamedTuple):
    """An API, and a key that may do everything there."""

    url: str
    key: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An API that has something of each kind: runs, schedules, memories, approvals, callbacks, deliveries, artifacts."""
    with listening(made(tmp_path_factory.mktemp("contract"))) as url:
        yield Served(url, _fill(url))


def _fill(url: str) -> str:
    """Have the server do something of each kind; return a key."""
    with httpx.Client(base_url=url, timeout=60) as http:
        told = {"callback_url": "https://shop.example.org/ended"}
        for number in range(5):
            run = http.post(f"/v1/agents/cashier:{number}/triggers", json=told).json()["run_id"]
        http.post("/v1/agents/clerk/triggers?wait=60").raise_for_status()
        http.post("/v1/webhooks/github", json={"action": "opened"})
        http.post("/v1/agents/assistant/memories", json={"content": "The owner is away.", "tags": ["owner"]})
        while http.get("/v1/approvals").json()["approvals"] == []:
            assert http.get(f"/v1/runs/{run}").json()["status"] in {"queued", "running", "waiting"}
        key: str = http.post("/v1/keys", json={"name": "contract", "scopes": ["admin"]}).json()["key"]
        return key
