from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.tenant_removal import FILES_AFTER, TenantRemoval
from owlclaw_ray.testing.clock import ManualClock
from tests.serve.cli.conftest import Run
from tests.serve.double import MemoryRuntime


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(clock: ManualClock) -> MemoryRuntime:
    return MemoryRuntime(clock)


@pytest.fixture
def suspended(owlclaw: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line against a server with a suspended tenant."""
    key = owlclaw("keys", "create", "ci", "--scope", "admin").output
    monkeypatch.setenv("OWLCLAW_API_KEY", next(word for word in key.split() if word.startswith("owl_")))
    owlclaw("tenants", "create", "acme", "--name", "Acme")
    assert owlclaw("tenants", "suspend", "acme").exit_code == 0
    return owlclaw


def finish(runtime: MemoryRuntime, clock: Clock) -> None:
    async def nobody(agent: object, run_id: object) -> None:
        """There are no hosts."""

    async def removed() -> None:
        assert isinstance(clock, ManualClock)
        await clock.advance(FILES_AFTER.total_seconds())
        assert await TenantRemoval(runtime.schedules, (), nobody, clock).tick() == 1

    asyncio.run(removed())


def test_a_tenant_is_exported_deleted_and_shown(suspended: Run, runtime: MemoryRuntime, clock: Clock, tmp_path: Path):
    exported = suspended("tenants", "export", "acme", "--to", "acme.jsonl")
    lines = (tmp_path / "acme.jsonl").read_text().splitlines()
    assert exported.output == f"acme.jsonl: {len(lines)} lines\n"
    assert json.loads(lines[-1])["lines"] == len(lines)

    deleted = suspended("tenants", "delete", "acme", "--yes")
    assert deleted.output.splitlines() == [
        "acme (Acme) · deleting · weight 1",
        "it goes on by itself; how far it is: owlclaw tenants show acme",
    ]
    finish(runtime, clock)

    shown = suspended("tenants", "show", "acme").output
    assert shown.startswith("acme (Acme) · deleted · weight 1\ndeletion requested by key:")
    assert "nothing is left, its ledger is sealed" in shown
    assert json.loads(suspended("tenants", "delete", "acme", "--yes", "--json").output)["status"] == "deleted"


def test_a_deletion_is_confirmed_by_the_id_of_the_tenant(suspended: Run, monkeypatch: pytest.MonkeyPatch):
    unasked = suspended("tenants", "delete", "acme")
    assert (unasked.exit_code, "--yes" in unasked.output) == (2, True)
    monkeypatch.setattr("serve.cli.tenants.is_terminal", lambda: True)

    wrong = suspended("tenants", "delete", "acme", stdin="other\n")
    right = suspended("tenants", "delete", "acme", stdin="acme\n")

    assert (wrong.exit_code, "nothing was deleted" in wrong.output) == (2, True)
    assert (right.exit_code, "deleting" in right.output) == (0, True)


def test_an_export_that_breaks_off_leaves_the_file_that_was_there(
    suspended: Run, runtime: MemoryRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "acme.jsonl").write_text("the one of yesterday")
    read = runtime.schedules.read

    async def breaks(query: object) -> object:
        if getattr(query, "table", "") == "ledger":
            raise OSError(5, "Input/output error")
        return await read(query)  # type: ignore[arg-type]

    monkeypatch.setattr(runtime.schedules, "read", breaks)

    failed = suspended("tenants", "export", "acme", "--to", "acme.jsonl")

    assert (failed.exit_code, "cut off" in failed.output) == (1, True)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("acme.jsonl", "the one of yesterday")]


def test_an_export_goes_only_where_there_is_a_folder(suspended: Run):
    refused = suspended("tenants", "export", "acme", "--to", "nowhere/acme.jsonl")

    assert (refused.exit_code, "there is no folder" in refused.output) == (2, True)


def test_a_retention_is_given_changed_shown_and_taken_back(suspended: Run):
    made = suspended("tenants", "create", "brief", "--retention", "artifact_days=1", "--retention", "webhook_days=14.5")
    assert made.exit_code == 0, made.output
    suspended("tenants", "update", "brief", "--retention", "artifact_days=none", "--retention", "memory_days=0")
    suspended("tenants", "update", "brief", "--retention", "run_days=90")

    shown = suspended("tenants", "show", "brief")
    lines = [" ".join(line.split()) for line in shown.output.splitlines()]
    assert lines[-4:] == ["KEEPS FOR", "webhooks 14.5 days", "memories ever", "runs 90 days"]
    assert json.loads(suspended("tenants", "show", "brief", "--json").output)["retention"] == {
        "artifact_days": None,
        "webhook_days": 14.5,
        "memory_days": 0.0,
        "run_days": 90.0,
    }


@pytest.mark.parametrize("said", ["artifact_days", "artifact_days=", "artifact_days=a month", "artifact_days=-1"])
def test_a_retention_that_is_no_number_of_days_is_refused(suspended: Run, said: str):
    refused = suspended("tenants", "update", "acme", "--retention", said)

    assert (refused.exit_code, "is not NAME=DAYS" in refused.output) == (2, True)


def test_where_a_tenant_s_callbacks_may_go_is_given_changed_shown_and_taken_back(suspended: Run):
    two = ("--callback-network", "10.1.0.0/16", "--callback-network", "fd00::/8")
    steps = [("create", *two), ("update", "--callback-network", "public"), ("update", "--callback-network", "none")]
    found, said = [], []
    for command, *options in steps:
        made = suspended("tenants", command, "brief", *options)
        assert made.exit_code == 0, made.output
        found.append(json.loads(suspended("tenants", "show", "brief", "--json").output)["callback_networks"])
        said.append(suspended("tenants", "show", "brief").output.splitlines()[-1])

    assert found == [["10.1.0.0/16", "fd00::/8"], [], None]
    assert said[:2] == ["callbacks: public addresses, 10.1.0.0/16, fd00::/8", "callbacks: public addresses"]
    assert "callbacks" not in said[2]
