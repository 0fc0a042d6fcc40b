"""Two tenants on one runtime of its own: for one, what the other has does not exist in the console."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.contract.conftest import server  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def stranger(server):  # noqa: F811 - the fixture
    """A browser that a stranger's key has signed in."""
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.key}"}, timeout=60) as ours:
        ours.post("/v1/tenants", json={"tenant": "stranger"}).raise_for_status()
        asked = {"name": "stranger", "scopes": ["admin"], "tenant": "stranger"}
        key = ours.post("/v1/keys", json=asked).raise_for_status().json()["key"]
        with httpx.Client(
            base_url=server.url, headers={"Accept": "text/html", "Origin": server.url}, timeout=60
        ) as theirs:
            answer = theirs.post("/console/sign-in", data={"token": token_of(theirs, "/console/sign-in"), "key": key})
            assert answer.status_code == 303
            yield ours, theirs


def token_of(browser, path):
    return re.search(r'name="token" value="([^"]+)"', browser.get(path).text)[1]


def test_pages_and_forms_of_what_another_tenant_has_are_those_of_what_nobody_has(stranger):
    ours, theirs = stranger
    approval = ours.get("/v1/approvals?status=pending").json()["approvals"][0]
    memory = ours.get("/v1/agents/assistant/memories").json()["memories"][0]
    run, token = approval["run_id"], token_of(theirs, "/console/runs")

    for path in (
        f"runs/{run}",
        f"runs/{run}/stream",
        f"runs/{run}/entries/1",
        f"runs/{run}/payload",
        f"runs/selection?action=rerun&run={run}",
        f"runs?before={run}",
        f"runs?text=refund&before={run}",
        f"approvals/{approval['approval_id']}",
        f"agents/assistant/memories?after={memory['memory_id']}",
    ):
        assert theirs.get(f"/console/{path}").status_code == 404, path
    for path, fields in (
        (f"runs/{run}/cancel", {}),
        (f"runs/{run}/rerun", {}),
        ("runs/selection", {"action": "cancel", "run": run}),
        ("runs/matching", {"action": "cancel", "status": "open", "upto": run}),
        (f"approvals/{approval['approval_id']}/decision", {"decision": "deny"}),
        (f"agents/assistant/memories/{memory['memory_id']}", {"content": "x"}),
        (f"agents/assistant/memories/{memory['memory_id']}/archive", {}),
    ):
        answer = theirs.post(f"/console/{path}", data={"token": token, **fields})
        assert answer.status_code == 404, (path, answer.text)
    assert ours.get(f"/v1/approvals/{approval['approval_id']}").json()["status"] == "pending"
    assert ours.get(f"/v1/runs/{run}").json()["cancel_requested"] is False
    assert len(ours.get("/v1/agents/assistant/memories").json()["memories"]) == 1


def test_lists_are_of_the_own_tenant_alone(stranger):
    _, theirs = stranger

    assert "cashier:" not in theirs.get("/console/runs").text
    assert "cashier:" not in theirs.get("/console/agents").text
    assert "Nothing waits for a decision" in theirs.get("/console/approvals").text
    assert "owner" not in theirs.get("/console/agents/assistant/memories").text


def test_a_run_of_the_real_engine_is_shown_with_what_was_withheld_and_said(stranger):
    _, theirs = stranger
    page = "/console/agents/assistant"

    sent = theirs.post(
        f"{page}/triggers", data={"token": token_of(theirs, page), "focus": "look", "payload": '{"n": 1}'}
    )
    run_page = sent.headers["location"]
    streamed = theirs.get(f"{run_page}/stream").text
    shown = theirs.get(run_page).text

    assert "event: end" in streamed
    assert re.findall(r'id="e(\d+)"', streamed) == re.findall(r'<article [^>]*id="e(\d+)"', shown)
    assert ">done<" in shown
    assert "Finished" in shown
    assert run_page.rpartition("/")[2] in theirs.get("/console/runs").text
