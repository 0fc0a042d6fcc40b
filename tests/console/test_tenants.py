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
        f"runs/{run}/entries/4/prompt",
        f"runs/{run}/payload",
        f"runs/{run}/rerun",
        f"runs/selection?action=rerun&run={run}",
        f"runs?before={run}",
        f"runs?text=refund&before={run}",
        f"approvals/{approval['approval_id']}",
        f"approvals?after={approval['approval_id']}",
        f"agents/assistant/memories?after={memory['memory_id']}",
        f"agents/assistant/memories/{memory['memory_id']}",
    ):
        assert theirs.get(f"/console/{path}").status_code == 404, path
    for path, fields in (
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


def test_schedules_webhooks_callbacks_records_and_keys_of_another_tenant_are_nobody_s(stranger):
    ours, theirs = stranger
    asked = {"focus": "look", "delay_seconds": 86_000}
    schedule = ours.post("/v1/agents/assistant/schedules", json=asked).raise_for_status().json()["schedule_id"]
    delivery = ours.get("/v1/deliveries").json()["deliveries"][0]["delivery_id"]
    callback = ours.get("/v1/callbacks").json()["callbacks"][0]["callback_id"]
    key = ours.get("/v1/keys").json()["keys"][0]["key_id"]
    place = f"ledger/{ours.get('/v1/ledger?agent=cashier:1&limit=1').json()['next_after']}"
    token = token_of(theirs, "/console/runs")
    times = {"since": "2026-11-02T00:00:00Z", "until": "2026-11-03T00:00:00Z"}

    for path in (
        f"schedules/{schedule}",
        f"schedules/{schedule}/backfill",
        f"schedules?after={schedule}",
        f"webhooks/deliveries/{delivery}",
        f"webhooks/deliveries/{delivery}/body",
        f"webhooks?before={delivery}",
        f"webhooks/callbacks?before={callback}",
        place,
    ):
        assert page_of(ours, path) is not None
        assert theirs.get(f"/console/{path}").status_code == 404, path
    for path, fields in (
        (f"schedules/{schedule}/pause", {}),
        (f"schedules/{schedule}/resume", {}),
        (f"schedules/{schedule}/cancel", {}),
        (f"schedules/{schedule}/backfill", times),
        (f"webhooks/deliveries/{delivery}/redelivery", {}),
        (f"webhooks/callbacks/{callback}/redelivery", {}),
        (f"keys/{key}/rotate", {}),
        (f"keys/{key}/revoke", {}),
    ):
        answer = theirs.post(f"/console/{path}", data={"token": token, **fields})
        assert answer.status_code == 404, (path, answer.text)
    assert ours.get(f"/v1/schedules/{schedule}").json()["status"] == "active"
    assert ours.get("/v1/keys").status_code == 200
    for path, what in (
        ("schedules", schedule),
        ("schedules/upcoming?hours=24", schedule),
        ("webhooks", delivery),
        ("webhooks/callbacks", callback),
        ("keys", f"/console/keys/{key}/"),
        ("ledger", "cashier"),
    ):
        assert what in page_of(ours, path), path
        assert what not in page_of(theirs, path), path


def page_of(browser, path):
    answer = browser.get(f"/console/{path}", headers={"Accept": "text/html"})
    assert answer.status_code == 200, (path, answer.text)
    return answer.text


def test_lists_are_of_the_own_tenant_alone(stranger):
    _, theirs = stranger

    assert "cashier:" not in theirs.get("/console/runs").text
    assert "cashier:" not in theirs.get("/console/agents").text
    assert "Nothing waits for a decision" in theirs.get("/console/approvals").text
    assert "owner" not in theirs.get("/console/agents/assistant/memories").text


def test_a_run_of_the_real_engine_is_shown_with_what_was_withheld_and_said(stranger):
    ours, theirs = stranger
    page = "/console/agents/assistant:guest"

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
    assert "assistant:guest" in page_of(theirs, "usage")
    assert "assistant:guest" not in page_of(ours, "usage")
