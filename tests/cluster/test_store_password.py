"""Where the password of the database is while a runtime works: only in processes that open the store."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from benchmarks.chaos.installation import title_of
from tests.e2e.conftest import Installation

pytestmark = [
    pytest.mark.ray,
    pytest.mark.postgres,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root reads others' memory"),
]

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
CALLS = [
    {"name": "handler.trial.act", "arguments": {"what": "it"}},
    {"name": "log_decision", "arguments": {"reasoning": "so"}},
]


@pytest.fixture
def installation(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.setenv("OWLCLAW_STORE_URL", postgres_url)
    monkeypatch.setenv("SHOP_KEY", "a-key-of-the-shop")
    made = Installation(tmp_path)
    made.define("worker", {"turns": [{"tool_calls": CALLS}, {"text": "done"}]})
    yield made
    if made.process is not None and made.process.poll() is None:
        made.interrupt()


def kind_of(process: psutil.Process) -> str:
    """Return the class of the actor, or the function of the task, that a process of Ray's has; else its program."""
    return re.split(r"[.:( ]", title_of(process).removeprefix("ray::"))[0]


def environment_of(process: psutil.Process) -> bytes:
    """Return what others see of the environment that the process was started with; nothing if it is gone."""
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return b""


def in_memory(process: psutil.Process, *secrets: bytes) -> list[bytes]:
    """Return which of the texts the writable memory of the process has."""
    found = set[bytes]()
    maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    with Path(f"/proc/{process.pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            span, rights, *_ = line.split()
            if not rights.startswith("rw") or "/dev/shm" in line:
                continue
            start, end = (int(each, 16) for each in span.split("-"))
            try:
                memory.seek(start)
                content = memory.read(end - start)
            except (OSError, OverflowError, ValueError):
                continue
            found |= {each for each in secrets if each in content}
    return sorted(found)


def test_only_processes_that_open_the_store_have_its_password(installation, postgres_url):
    password, shop_key = (urlsplit(postgres_url).password or "").encode(), b"a-key-of-the-shop"
    installation.up()
    with installation.client() as client:
        run_id = client.submit("worker")["run_id"]
        while (status := client.run(run_id)["status"]) in {"queued", "running"}:
            time.sleep(0.2)
    assert status == "completed"

    family = [(kind_of(each), each) for each in installation.family()]
    seen = [(kind, in_memory(each, password, shop_key)) for kind, each in family if kind in OURS]
    having = {secret: {kind for kind, found in seen if secret in found} for secret in (password, shop_key)}

    assert {kind for kind, _ in seen} >= OURS - TOOL_WORKERS
    assert {kind for kind, _ in seen} & TOOL_WORKERS
    assert having[password] == {"KeeperActor"}
    assert having[shop_key] >= {"ModelGatewayActor", "SchedulerActor"}
    processes = [*family, ("owlclaw", psutil.Process(installation.process.pid))]
    assert [kind for kind, each in processes if password in environment_of(each)] == []
