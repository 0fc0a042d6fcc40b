"""Tenants' own keys of a provider through a whole runtime: which arrives, and that no other place has one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import yaml

from owlclaw_ray.configuration.own_variables import KEYS_VARIABLE
from owlclaw_ray.secrets.keyring import new_key
from owlclaw_ray.testing.openai_server import CannedFailure, CannedReply, OpenAIServer
from tests.e2e.test_no_secret_anywhere import command_lines, files_with

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600)]

KEYS = {"acme": "sk-provider-key-of-acme", "bear": "sk-provider-key-of-bear"}
RUNTIME_KEY = "sk-provider-key-of-the-runtime"
RUNS = 6


def provider(recorded):
    """Say again which key came: in a reply, and in an error if the trigger asks for one."""
    said = recorded.headers["authorization"]
    if "please fail" in str(recorded.body["messages"]):
        return CannedFailure(401, f"Incorrect API key provided: {said}")
    return CannedReply(f"you sent {said}")


def test_agents_of_two_tenants_ask_with_their_own_keys_at_the_same_time_and_no_key_is_told(installation, monkeypatch):
    master = new_key()
    monkeypatch.setenv(KEYS_VARIABLE, master)
    monkeypatch.setenv("PROVIDER", RUNTIME_KEY)
    installation.define("worker")
    (installation.folder / "agents" / "worker" / "agent.yaml").write_text("model: openai/test\n")
    first = installation.owlclaw("keys", "create", "--first").strip()
    with OpenAIServer(provider) as server:
        path = installation.folder / "owlclaw.yaml"
        endpoint = {"api_base": server.base_url, "api_key_env": "PROVIDER", "key_secret": "PROVIDER_KEY"}
        path.write_text(
            yaml.safe_dump(yaml.safe_load(path.read_text()) | {"models": {"providers": {"openai": endpoint}}})
        )
        installation.up()
        url = f"http://127.0.0.1:{installation.port}"
        installation.variables = {"OWLCLAW_URL": url, "OWLCLAW_API_KEY": first}
        callers = {"default": httpx.Client(base_url=url, headers={"Authorization": f"Bearer {first}"}, timeout=60)}
        for tenant, secret in {**KEYS, "core": ""}.items():
            installation.owlclaw("tenants", "create", tenant)
            key = installation.owlclaw("keys", "create", tenant, "--scope", "admin", "--tenant", tenant).strip()
            callers[tenant] = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60)
            if secret:
                callers[tenant].put("/v1/secrets/PROVIDER_KEY", json={"value": secret}).raise_for_status()

        def ask(tenant, number, focus=""):
            path = f"/v1/agents/worker:{number}/triggers?wait=60"
            return callers[tenant].post(path, json={"payload": f"of {tenant}", "focus": focus}).json()

        with ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(ask, tenant, number) for number in range(RUNS) for tenant in callers]
            runs = [each.result() for each in asked]
        failed = [ask(tenant, RUNS, "please fail") for tenant in KEYS]
        texts = [
            callers[tenant].get(path).text
            for tenant, each in zip(KEYS, failed, strict=True)
            for path in (f"/v1/runs/{each['run_id']}?events=true", "/v1/runs?include=payload", "/v1/ledger", "/metrics")
        ]
        lines, kept = command_lines(installation), files_with([installation.scratch()], KEYS)
        for each in callers.values():
            each.close()
        assert installation.interrupt() == 0

    arrived = {
        tenant: {
            each.headers["authorization"] for each in server.requests if f"of {tenant}" in str(each.body["messages"])
        }
        for tenant in callers
    }
    assert arrived == {tenant: {f"Bearer {KEYS.get(tenant, RUNTIME_KEY)}"} for tenant in callers}
    assert {each["status"] for each in runs} == {"completed"}
    assert {each["status"] for each in failed} == {"failed"}
    assert "[redacted:PROVIDER_KEY]" in str(failed)
    said = [*texts, *map(str, runs), *map(str, failed), *installation.said, *lines]
    assert [name for name, key in KEYS.items() if key in "".join(said)] == []
    assert kept + files_with([installation.folder / ".owlclaw"], KEYS) == []
