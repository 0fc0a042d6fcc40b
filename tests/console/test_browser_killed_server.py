"""A server that is killed while somebody looks: pages say so, come back by themselves, and miss nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from serve.loopback import free_ports
from tests.console.browsing import opened
from tests.console.shop import READY

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


@contextmanager
def server(folder: Path, port: int) -> Iterator[None]:
    """A server process on the folder's data; when the block ends it is killed with SIGKILL, and is gone."""
    command = [sys.executable, "-m", "tests.console.shop", str(folder), str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{READY}\n", "the server ended before it listened"
            yield
        finally:
            process.kill()


def client(port: int, key: str = "") -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60)


def waiting(http: httpx.Client) -> tuple[str, str]:
    """The ids of a new run that waits for a person, and of the call that it waits for."""
    order = {"focus": "refund order 17", "payload": {"order": 17}}
    run: str = http.post("/v1/agents/cashier/triggers", json=order).json()["run_id"]
    follow(http, run, "approval_requested")
    found = http.get("/v1/approvals", params={"run": run, "status": "pending"}).json()["approvals"]
    return run, found[0]["approval_id"]


def follow(http: httpx.Client, run: str, until: str) -> None:
    """Return once the run has had an event of that kind."""
    with http.stream("GET", f"/v1/runs/{run}/events") as events:
        assert any(line == f"event: {until}" for line in events.iter_lines())


def numbers(page: Page) -> list[int]:
    return [int(each) for each in page.locator("#entries article .seq").all_inner_texts()]


def test_who_looks_at_a_run_and_at_the_list_is_told_that_the_server_was_killed_and_misses_nothing_of_it(
    chromium, tmp_path
):
    here, elsewhere = free_ports(2)
    with ExitStack() as looking:
        with server(tmp_path, here), client(here) as http:
            key = http.post("/v1/keys", json={"name": "browser", "scopes": ["admin"]}).json()["key"]
            http.headers["Authorization"] = f"Bearer {key}"
            run, approval = waiting(http)
            page = looking.enter_context(opened(chromium, http, expected="net::ERR_"))
            page.goto(f"{http.base_url}/console/runs/{run}")
            expect(page.locator("#run-head .status")).to_have_text("waiting")
            before = numbers(page)
            runs = page.context.new_page()
            runs.goto(f"{http.base_url}/console/runs")
            expect(runs.locator("table.runs tbody tr")).to_have_count(1)

        for each in (page, runs):
            expect(each.locator("#connection")).to_be_visible()
        with server(tmp_path, elsewhere), client(elsewhere, key) as http:
            decision = {"decision": "deny", "reason": "said while nobody saw it"}
            assert http.post(f"/v1/approvals/{approval}/decision", json=decision).status_code == 200
            follow(http, run, "end")
            order = {"focus": "look at order 21", "payload": {"order": 21}}
            written = [http.post("/v1/agents/clerk/triggers", json=order).json()["run_id"] for _ in range(3)]
        with server(tmp_path, here):
            for each in (page, runs):
                expect(each.locator("#connection")).to_be_hidden()
            expect(page.locator("#entries")).to_contain_text("said while nobody saw it")
            expect(page.locator("#run-head .status")).to_have_text("completed")
            assert numbers(page) == [*range(1, len(numbers(page)) + 1)]
            assert len(numbers(page)) > len(before)
            runs.get_by_role("link", name="3 new runs: show").click()
            expect(runs.locator("table.runs tbody tr")).to_have_count(4)
            for each in written:
                expect(runs.locator(f"#{each}")).to_have_count(1)
