"""Where secrets are while a runtime works: those of the runtime in the Keeper, a tenant's where a tool reads it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from owlclaw_ray.configuration.own_variables import KEYS_VARIABLE
from owlclaw_ray.secrets.keyring import new_key
from serve.processes import title_of
from tests.e2e.conftest import Installation, environment_of

pytestmark = [
    pytest.mark.ray,
    pytest.mark.postgres,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root reads others' memory"),
]

APP = """
from owlclaw_ray import OwlClaw, ToolContext

app = OwlClaw("trial")


@app.handler("login")
def login(context: ToolContext) -> str:
    '''Log in.'''
    return f"logged in with {context.secret('CRM')}"
"""
VALUE = "correct-horse-battery-staple"
MAPPING = re.compile(
    r"^(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) rw(?![^\n]*/dev/shm)[^\n]*\n(?:[A-Z][^\n]*\n)*?Rss: +[1-9]", re.MULTILINE
)
"""A writable part of a process's memory, as /proc/<pid>/smaps has it, of which there is something."""
TOOL_WORKERS = {"run_tools", "warm_worker", "IDLE"}
OURS = {
    "AgentActor",
    "RootActor",
    "KeeperActor",
    "DirectoryActor",
    "SchedulerActor",
    "ModelGatewayActor",
    "ServeReplica",
    *TOOL_WORKERS,
}
CALLS = [{"name": "trial.login", "arguments": {}}, {"name": "log_decision", "arguments": {"reasoning": VALUE}}]


@pytest.fixture
def installation(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.setenv("OWLCLAW_STORE_URL", postgres_url)
    monkeypatch.setenv("SHOP_KEY", "a-key-of-the-shop")
    monkeypatch.setenv(KEYS_VARIABLE, new_key())
    made = Installation(tmp_path)
    (tmp_path / "trial_app.py").write_text(APP)
    made.define("worker", {"turns": [{"tool_calls": CALLS}, {"text": "done"}]})
    yield made
    if made.process is not None and made.process.poll() is None:
        made.interrupt()


def kind_of(process: psutil.Process) -> str:
    """Return the class of the actor, or the function of the task, that a process of Ray's has; else its program."""
    return re.split(r"[.:( ]", title_of(process).removeprefix("ray::"))[0]


def in_memory(process: psutil.Process, *secrets: bytes) -> list[bytes]:
    """Return which of the texts the writable memory of the process has; none if it is gone."""
    found = set[bytes]()
    with suppress(FileNotFoundError), Path(f"/proc/{process.pid}/mem").open("rb", buffering=0) as memory:
        for mapping in MAPPING.finditer(Path(f"/proc/{process.pid}/smaps").read_text()):
            start, end = (int(mapping[each], 16) for each in ("start", "end"))
            with suppress(OSError, OverflowError, ValueError):
                memory.seek(start)
                content = memory.read(end - start)
                found |= {each for each in secrets if each in content}
    return sorted(found)


@pytest.mark.timeout(600)
def test_secrets_are_in_the_processes_that_use_them_and_in_no_others(installation, postgres_url):
    password, shop_key = (urlsplit(postgres_url).password or "").encode(), b"a-key-of-the-shop"
    master_key = os.environ[KEYS_VARIABLE].encode()  # noqa: TID251 - as the fixture has set it
    installation.up()
    with installation.client() as client:
        client.set_secret("CRM", VALUE)
        run_id = client.submit("worker")["run_id"]
        while (run := client.run(run_id, events=True))["status"] in {"queued", "running"}:
            time.sleep(0.2)
        records = str(client.ledger())
        listed = str(client.secrets())
    assert run["status"] == "completed"
    results = [each["data"] for each in run["events"] if each["kind"] == "tool_finished"]
    assert "logged in with [redacted:CRM]" in str(results)
    assert "[redacted:CRM]" in records
    assert VALUE not in records + listed

    family = [(kind_of(each), each) for each in installation.family()]
    secrets = (password, shop_key, master_key, VALUE.encode())
    seen = [(kind, in_memory(each, *secrets)) for kind, each in family if kind in OURS]
    having = {secret: {kind for kind, found in seen if secret in found} for secret in secrets}

    assert {kind for kind, _ in seen} >= OURS - TOOL_WORKERS
    assert having[password] == having[master_key] == {"KeeperActor"}
    assert having[shop_key] >= {"ModelGatewayActor", "SchedulerActor"}
    assert having[VALUE.encode()] & TOOL_WORKERS
    processes = [*family, ("owlclaw", psutil.Process(installation.process.pid))]
    hidden = (password, shop_key, master_key)
    assert [kind for kind, each in processes if any(secret in environment_of(each) for secret in hidden)] == []
    logs = b"".join(each.read_bytes() for each in installation.folder.glob(".owlclaw/**/*") if each.is_file())
    assert not any(secret in logs for secret in (password, master_key))
