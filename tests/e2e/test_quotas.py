"""Quotas of a tenant, over HTTP, while the process that commits is killed."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Event

import httpx
import pytest

from owlclaw_ray.kernel.system_clock import SystemClock
from serve.processes import title_of

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600)]

ALLOWED, ASKED, CALLERS = 100, 1_000, 16


class Caller:
    """Starts runs, each until the server says what became of it."""

    def __init__(self, url, key):
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60)

    def start(self, number):
        """Return the status of the answer that counts, and the run."""
        headers = {"Idempotency-Key": f"order-{number}"}
        while True:
            try:
                answer = self.http.post(f"/v1/agents/watch:{number}/triggers", headers=headers)
            except httpx.TransportError:
                continue
            if answer.status_code in {202, 429}:
                return answer
            assert answer.status_code == 503, answer.text
            Event().wait(0.2)


def keeper_of(installation):
    [keeper] = [each for each in installation.family() if title_of(each).startswith("ray::KeeperActor")]
    return keeper.pid


def test_a_thousand_starts_at_once_admit_as_many_as_may_be_open_while_the_keeper_is_killed(installation):
    installation.define("watch", {"turns": [{"text": "done", "latency": 3_600}]})
    installation.define("@acme/greeter", {"turns": [{"text": "hello from acme"}]})
    first = installation.owlclaw("keys", "create", "--first").strip()
    installation.up()
    url = f"http://127.0.0.1:{installation.port}"
    installation.variables = {"OWLCLAW_URL": url, "OWLCLAW_API_KEY": first}
    installation.owlclaw("tenants", "create", "acme", "--quota", f"open_runs={ALLOWED}")
    key = installation.owlclaw("keys", "create", "acme", "--scope", "operator", "--tenant", "acme").strip()
    caller = Caller(url, key)

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = [each.result() for each in [pool.submit(caller.start, number) for number in range(ALLOWED // 3)]]
        keeper = keeper_of(installation)
        starts = [pool.submit(caller.start, number) for number in range(ALLOWED // 3, ASKED)]
        os.kill(keeper, signal.SIGKILL)
        killed_at = SystemClock().now()
        starts[ASKED // 2].result()
        os.kill(keeper_of(installation), signal.SIGKILL)
        answers += [each.result() for each in starts]

    started = [each.json()["run_id"] for each in answers if each.status_code == 202]
    refused = [each for each in answers if each.status_code == 429]
    assert (len({*started}), len(started), len(refused)) == (ALLOWED, ALLOWED, ASKED - ALLOWED)
    accepted = [caller.http.get(f"/v1/runs/{run_id}").json()["created_at"] for run_id in started]
    assert ALLOWED // 3 <= sum(datetime.fromisoformat(at) < killed_at for at in accepted) < ALLOWED
    assert {each.json()["type"] for each in refused} == {"urn:owlclaw:problem:quota-reached"}
    assert {each.headers["ratelimit-policy"] for each in refused} == {f'"open_runs";q={ALLOWED}'}
    shown = json.loads(installation.owlclaw("tenants", "show", "acme", "--json"))
    assert shown["use"]["open_runs"] == ALLOWED
    assert f"{ALLOWED}   {ALLOWED}" in installation.owlclaw("tenants", "show", "acme")

    for run_id in started:
        caller.http.post(f"/v1/runs/{run_id}/cancel").raise_for_status()
    while json.loads(installation.owlclaw("tenants", "show", "acme", "--json"))["use"]["open_runs"]:
        Event().wait(0.5)
    assert caller.start(ASKED).status_code == 202
    greeted = caller.http.post("/v1/agents/greeter/triggers", params={"wait": 60})
    assert greeted.json()["result"]["final_text"] == "hello from acme"
    agents = httpx.get(f"{url}/v1/agents", headers={"Authorization": f"Bearer {first}"}).json()["agents"]
    assert [each["agent"] for each in agents] == ["watch"]
    caller.http.close()
    assert installation.interrupt() == 0
