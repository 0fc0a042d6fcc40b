"""A tenant is exported and deleted over HTTP, while the processes that carry it out are killed."""

from __future__ import annotations

import json
import os
import signal
from threading import Event

import httpx
import pytest

from serve.processes import title_of

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600)]

AGENTS, HELD = 40, 5


def kill(installation, title):
    for each in installation.family():
        if title_of(each).startswith(title):
            os.kill(each.pid, signal.SIGKILL)


def test_a_deletion_ends_whatever_is_killed_and_leaves_a_sealed_ledger_alone(installation):
    held = {"when": {"payload": "payload == 'hold'"}, "turns": [{"text": "late", "latency": 3_600}]}
    installation.define("watch", held, {"turns": [{"text": "done"}]})
    first = installation.owlclaw("keys", "create", "--first").strip()
    installation.up()
    url = f"http://127.0.0.1:{installation.port}"
    installation.variables = {"OWLCLAW_URL": url, "OWLCLAW_API_KEY": first}

    def of_acme(*arguments):
        return json.loads(installation.owlclaw("tenants", *arguments, "acme", "--json"))

    installation.owlclaw("tenants", "create", "acme")
    key = installation.owlclaw("keys", "create", "acme", "--scope", "admin", "--tenant", "acme").strip()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as acme:
        for number in range(AGENTS):
            path = f"/v1/agents/watch:{number}"
            acme.post(f"{path}/triggers?wait=60", json={"payload": "look"}).raise_for_status()
            acme.post(f"{path}/memories", json={"content": f"Memory {number}."}).raise_for_status()
        for number in range(HELD):
            acme.post(f"/v1/agents/watch:{number}/triggers", json={"payload": "hold"}).raise_for_status()
        while len(acme.get("/v1/runs?status=running").json()["runs"]) < HELD:
            Event().wait(0.2)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {first}"}, timeout=60) as ours:
        ours.post("/v1/agents/watch:0/triggers?wait=60", json={"payload": "look"}).raise_for_status()
        runs = ours.get("/v1/runs").json()["runs"]

        of_acme("suspend")
        file = installation.folder / "acme.jsonl"
        installation.owlclaw("tenants", "export", "acme", "--to", str(file))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert lines[-1]["lines"] == len(lines)
        assert lines[-1]["counts"]["runs"] == AGENTS + HELD
        assert lines[-1]["counts"]["memory"] == AGENTS

        assert of_acme("delete", "--yes")["status"] == "deleting"
        kill(installation, "ray::SchedulerActor")
        Event().wait(3)
        kill(installation, "ray::KeeperActor")
        while (found := of_acme("show"))["status"] != "deleted":
            Event().wait(1)

        assert found["deletion"]["left"] == {}
        assert found["deletion"]["removed"]["runs"] == AGENTS + HELD
        assert found["deletion"]["removed"]["files of data_dir"] >= AGENTS
        assert not (installation.folder / ".owlclaw/agents/acme").exists()
        assert ours.get("/v1/runs").json()["runs"] == runs
        assert ours.get("/v1/tenants", headers={"Authorization": f"Bearer {key}"}).status_code == 401
        last = ours.get("/v1/tenants/acme/export").text.splitlines()
        kinds = json.loads(last[-1])["counts"]
        assert kinds.keys() == {"tenants", "ledger", "ledger_heads"}
        assert "holds" in installation.owlclaw("ledger", "verify", "--tenant", "acme")
    assert installation.interrupt() == 0
